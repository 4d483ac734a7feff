"""Held-out parts by document: which part a sample belongs to depends on the document alone.

A document keeps its part when the inputs grow, are reordered, or are prepared with other options. The document is the
image's content (two copies of a photo never end up on both sides) or the record's key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.keyed import digest
from workbench.sequences.sequence import Sample

MAIN = ""


def parse_splits(texts: Sequence[str]) -> dict[str, float]:
    """Shares by name from `held-out=0.05`; a bare `0.05` is called `held-out`.

    Raises:
        WorkbenchError: not a name and a number, a share outside (0, 1), a name twice, or nothing left to train on.
    """
    splits: dict[str, float] = {}
    for text in texts:
        name, named, share_text = text.rpartition("=")
        name = name if named else "held-out"
        try:
            share = float(share_text)
        except ValueError:
            raise WorkbenchError(f"--split {text!r} is not NAME=SHARE, for example held-out=0.05") from None
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise WorkbenchError(f"--split {text!r}: the name may have letters, digits, - and _")
        if not 0 < share < 1 or name in splits:
            problem = "is given twice" if name in splits else f"has the share {share}; it must lie between 0 and 1"
            raise WorkbenchError(f"--split {name!r} {problem}")
        splits[name] = share
    if sum(splits.values()) >= 1:
        raise WorkbenchError(
            f"the shares of --split add up to {sum(splits.values()):g}; keep some for the corpus itself"
        )
    return splits


def part_of(document: str, splits: Mapping[str, float]) -> str:
    """The part of a document: a split's name, or `""` for the corpus itself."""
    point = digest("split", document) / 2**128
    for name, share in splits.items():
        point -= share
        if point < 0:
            return name
    return MAIN


def document_of(sample: Sample) -> str:
    """What must not be torn apart: the original image's content where there is one, else the record."""
    meta = sample.get("meta", {})
    return str(meta.get("source_sha256") or meta.get("sha256") or sample["key"])


def part_folder(output: Path, part: str) -> Path:
    """The folder of a part's corpus: OUTPUT, or OUTPUT-part."""
    return output.with_name(f"{output.name}-{part}") if part else output
