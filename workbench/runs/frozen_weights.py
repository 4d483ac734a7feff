"""Frozen weights: stored once in the run's folder (`frozen.safetensors`) and not in its checkpoints.

If a checkpoint of the source run has all of them bit for bit, the file is a hard link to that checkpoint's file: there
is no second copy, and either run may be moved or removed. Otherwise, and if no link is possible (another disk), the run
writes them. A checkpoint maps their names: `{"networks.teacher....": "networks.main...."}`, the model's name and the
file's. The run's `data.json` has the file's checksum, like that of all other data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from workbench.components.build_context import Identities
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import check_file, explained, sha256_of, sync
from workbench.runs.data_record import BASE, read_data, refuse_other
from workbench.runs.names import FROZEN
from workbench.runs.pieces import StoredTensors
from workbench.runs.weights import read_weights, save_weights

FrozenNames = dict[str, str]
"""The names in the file of a run's frozen weights, by those of the model."""


def read_frozen(run: Path, kept: FrozenNames) -> dict[str, Tensor]:
    """The tensors of the frozen weights, by the model's names.

    Raises:
        WorkbenchError: as `stored_frozen`.
    """
    stored = stored_frozen(run, kept)
    return {own: stored[name] for own, name in kept.items()}


def stored_frozen(run: Path, kept: FrozenNames) -> StoredTensors:
    """The file of the frozen weights, whose tensors are read one by one.

    Raises:
        WorkbenchError: the file is missing, is another one than in the run's record, or lacks some weights.
    """
    if not kept:
        return StoredTensors([])
    refuse_other(run, base_identity(run))
    stored = StoredTensors([run / FROZEN])
    if lacks := sorted(set(kept.values()) - stored.keys()):
        raise WorkbenchError(
            f"{run / FROZEN} lacks {len(lacks)} of the weights that {run} takes from it ({lacks[0]}, ...): "
            "it is of another model. Restore it"
        )
    return stored


def base_identity(run: Path) -> Identities:
    """The identity of a run's frozen weights.

    Raises:
        WorkbenchError: the file is missing.
    """
    path = run / FROZEN
    check_file(path)
    if not path.exists():
        raise WorkbenchError(f"{path} is not there: it has the weights that {run} doesn't change. Restore it")
    return {BASE: {FROZEN: sha256_of(path)}}


def recorded_base_identity(run: Path) -> Identities:
    """The present identity of the frozen weights, if the record of a run names any.

    Raises:
        WorkbenchError: the file is missing, or the record is damaged.
    """
    record = read_data(run)
    return base_identity(run) if record is not None and BASE in record["read"] else {}


def save_frozen(run: Path, tensors: Mapping[str, Tensor], sources: Iterable[Path]) -> FrozenNames:
    """Store the frozen weights of a new run in its folder.

    Args:
        tensors: by the model's names, `networks.NAME...`.
        sources: files of weights that they may have come from.

    Raises:
        MachineError: the disk is full.
    """
    if not tensors:
        return {}
    path = run / FROZEN
    for source in sources:
        if _linked(source, path) and (names := _found(tensors, read_weights(path))) is not None:
            return names
    save_weights(path, tensors)
    return {name: name for name in tensors}


def _linked(source: Path, path: Path) -> bool:
    """Link a file to `path`, replacing the file of an earlier start; returns whether that is possible.

    A link is complete at once. The linked content is compared afterwards: a run in training replaces its files.
    """
    with explained(path):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # another disk, one without links, or a file that has just gone
        os.link(source.resolve(), path)
        sync(path.parent)
        return True
    return False


def _found(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> dict[str, str] | None:
    """The names of the same tensors in a source, also in a network of another name; None if it lacks one."""
    networks = {name.split(".")[1] for name in source if name.startswith("networks.")}
    names: dict[str, str] = {}
    for own, tensor in tensors.items():
        _, network, rest = own.split(".", 2)
        places = [f"networks.{other}.{rest}" for other in sorted(networks, key=lambda other: other != network)]
        same = (place for place in places if place in source and _equal(source[place], tensor))
        place = next(same, None)
        if place is None:
            return None
        names[own] = place
    return names


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)
