"""The form of an exported folder for onnxruntime: `model.onnx`, of the class of Hugging Face that the folder holds.

The file takes any number of texts of any length. It is written by the exporter of torch that traces a program
(torch.onnx with `dynamo`), and compared with the class on random batches of other sizes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import draft
from workbench.interop.checkpoint_files import ONNX, WEIGHTS
from workbench.interop.library_class import (
    compared,
    input_names,
    library_class,
    outputs_of,
    quiet_library,
    random_batches,
)

EXTRA = "onnx"
TRACED = 2
"""The random batch that is traced: of several texts, as torch takes a size of 1 for a constant."""
LARGEST = 2_000_000_000
"""Bytes of weights: a message of protobuf has at most two gigabytes."""
TOLERANCE = 1e-4
"""The largest difference from the class, relative to its largest output: more is an error of the exporter."""


def check_packages() -> None:
    """
    Raises:
        WorkbenchError: a package is not installed.
    """
    for name in ("transformers", "onnx", "onnxscript", "onnxruntime"):
        quiet_library(name, EXTRA)


def write_onnx(folder: Path) -> str:
    """Write `model.onnx` into an exported folder; returns what it is, for people.

    Raises:
        WorkbenchError: the exporter has no form for the class, the file would be too large, or it computes something
            else.
    """
    if (folder / WEIGHTS).stat().st_size > LARGEST:
        raise WorkbenchError(f"--also onnx: a file of this form has at most {LARGEST / 1e9:g} GB; export without it")
    model = library_class(folder, EXTRA)
    names = input_names(model, folder)
    example = [*random_batches(model, folder, names)][TRACED]
    computed = outputs_of(model, example)
    dynamic = {name: dict.fromkeys(range(value.dim()), torch.export.Dim.DYNAMIC) for name, value in example.items()}
    given: dict[str, Any] = {"kwargs": example, "dynamic_shapes": dynamic, "verbose": False, "dynamo": True}
    try:
        with warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(model, (), input_names=names, output_names=[*computed], **given)
    except torch.onnx.OnnxExporterError as error:
        raise WorkbenchError(
            f"--also onnx: torch's exporter has no form for {type(model).__name__}: {_reason(error)}; export without it"
        ) from error
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # lines of this machine's files
    with draft(folder / ONNX) as temporary:
        program.save(temporary, external_data=False)
    return _checked(model, folder, names, [*computed], program.model.opset_imports[""])


def _reason(error: BaseException) -> str:
    """The first line that an error or its cause says, or else the kind of its cause."""
    said = [line for each in (error.__cause__, error) if each is not None for line in str(each).strip().splitlines()]
    return said[0] if said else type(error.__cause__ or error).__name__


def _checked(model: Any, folder: Path, names: list[str], outputs: list[str], opset: int | None) -> str:
    """What the file is, after it was compared with the class.

    Raises:
        WorkbenchError: it computes something else; it is removed.
    """
    difference, largest = compared(model, folder, names, OnnxModel(folder))
    if not difference <= TOLERANCE * max(1.0, largest):  # NaN is an error too
        (folder / ONNX).unlink()
        raise WorkbenchError(
            f"--also onnx: {ONNX} differs from {type(model).__name__} by {difference:.2g}, and is removed; export "
            "without it"
        )
    return (
        f"`{ONNX}`: opset {opset}; inputs {', '.join(names)} (int64, any number of texts of any length); outputs "
        f"{', '.join(outputs)}; its largest difference from the class is {difference:.2g}, of outputs up to "
        f"{largest:.2g}, on random batches"
    )


class OnnxModel:
    """`model.onnx` of a folder, opened by onnxruntime on the CPU.

    Attributes:
        names: its inputs.
        choices: whether its inputs have the choices of a text as a dimension.
    """

    def __init__(self, folder: Path) -> None:
        runtime = quiet_library("onnxruntime", EXTRA)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = runtime.InferenceSession(os.fspath(folder / ONNX), options, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self.session.get_inputs()]
        self.choices = len(self.session.get_inputs()[0].shape) > 2

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        computed = self.session.run(None, {name: value.numpy() for name, value in inputs.items()})
        outputs = [each.name for each in self.session.get_outputs()]
        return {name: torch.from_numpy(value) for name, value in zip(outputs, computed, strict=True)}
