"""Are two runs, or two outputs, the same? Is anything left over?"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch

from tests.robustness.soak.engine import require

COMPARED = ("step", "lr", "grad_norm")
"""Metrics that do not measure the machine, besides losses and accuracies (`mlm/loss`)."""
LOCK = ".lock"
"""The end of the name of a lock, which stays for the next start."""


def content(path: Path) -> dict[str, str]:
    """The checksum of every file in a folder (or of one file), by name."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def same_content(found: Path, wanted: Path) -> None:
    """Byte for byte, no file more and none less.

    Raises:
        FindingError: they differ.
    """
    one, other = content(found), content(wanted)
    for files in (one, other):
        for name in [name for name in files if name.endswith(LOCK)]:
            del files[name]
    different = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    detail = ", ".join(
        f"{name} ({'more' if name not in other else 'less' if name not in one else 'other'})" for name in different
    )
    require(not different, f"{found.name} differs from what an undisturbed command writes: {detail}")


def hidden(folder: Path) -> list[str]:
    """Files that begin with a dot, less locks: nothing keeps one when a command is done."""
    found = (p.relative_to(folder) for p in folder.rglob(".*"))
    return sorted(str(p) for p in found if not p.name.endswith(LOCK))


def no_leftovers(folder: Path) -> None:
    """
    Raises:
        FindingError: hidden files are there.
    """
    left = hidden(folder)
    require(not left, f"left over in {folder.name}: {', '.join(left)}")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl, without what measures the machine."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [{k: v for k, v in record.items() if "/" in k or k in COMPARED} for record in records]


def steps(run: Path) -> list[int]:
    """The steps that have a checkpoint."""
    folder = run / "checkpoints"
    return (
        sorted(int(n.removeprefix("step-")) for n in os.listdir(folder) if n.startswith("step-"))
        if folder.is_dir()
        else []
    )


def same_run(found: Path, wanted: Path) -> None:
    """Losses and gradient norms of every step, weights, moments and `best` of two runs, bit for bit.

    Raises:
        FindingError: they differ.
    """
    one, other = metrics(found), metrics(wanted)
    mine, theirs = [record["step"] for record in one], [record["step"] for record in other]
    require(mine == theirs, f"metrics.jsonl has the steps {mine}, undisturbed: {theirs}")
    for record, undisturbed in zip(one, other, strict=True):
        require(record == undisturbed, f"metrics.jsonl: {record}, undisturbed: {undisturbed}")
    require(steps(found)[-1:] == steps(wanted)[-1:], f"the last checkpoint is {steps(found)[-1:]}")
    last = f"checkpoints/step-{steps(wanted)[-1]}"
    require((found / "best").is_dir() == (wanted / "best").is_dir(), "one of the runs has no best/")
    for folder in (last, "best") if (wanted / "best").is_dir() else (last,):
        weights = [
            hashlib.sha256((run / folder / "model.safetensors").read_bytes()).digest() for run in (found, wanted)
        ]
        require(weights[0] == weights[1], f"the weights of {folder} differ")
    _same_moments(found / last / "trainer.pt", wanted / last / "trainer.pt")


def _same_moments(found: Path, wanted: Path) -> None:
    one, other = (torch.load(path, weights_only=True) for path in (found, wanted))
    equal = _equal(one, other)
    require(equal, "the optimiser's moments differ")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return one == other
