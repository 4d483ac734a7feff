"""The forms of an exported folder besides the library's weights in float32: ONNX, and int8 matrices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import WorkbenchError
from workbench.interop import int8_weights, onnx_file
from workbench.interop.checkpoint_files import Also
from workbench.interop.library_class import check_texts
from workbench.interop.sentence_modules import WITH

ONNX_FORM: Also = "onnx"


def check_forms(also: Sequence[Also], int8: bool, streams: Sequence[str], pool: str | None = None) -> None:
    """Check before anything is written that forms can be.

    Args:
        streams: that are exported.
        pool: the stated pooling of sentence-transformers.

    Raises:
        WorkbenchError: two forms exclude each other, a pooling is stated without its form, a network reads more than
            texts, or a package is not installed.
    """
    if pool is not None and WITH not in also:
        raise WorkbenchError(
            f"--pool {pool} is the pooling of sentence-transformers; add --also {WITH}, or leave out --pool"
        )
    if int8 and ONNX_FORM in also:
        raise WorkbenchError(
            "--int8 and --also onnx exclude each other, as model.onnx has the weights in float32; export twice, into "
            "two folders"
        )
    if int8:
        check_texts("--int8", streams)
        int8_weights.check_packages()
    if ONNX_FORM in also:
        check_texts("--also onnx", streams)
        onnx_file.check_packages()


def write_forms(folder: Path, also: Sequence[Also], int8: bool) -> list[str]:
    """Write the forms into an exported folder; returns what they are, for people."""
    written = [int8_weights.write_int8(folder)] if int8 else []
    return [*written, onnx_file.write_onnx(folder)] if ONNX_FORM in also else written
