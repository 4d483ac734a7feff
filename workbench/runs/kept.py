"""Weights that a run never changes are in none of its checkpoints: these name the file that holds them.

    {"file": "frozen.safetensors", "names": {"networks.teacher....": "networks.main...."}}

That is a checkpoint of the run which the weights came from, where it has every one of them bit for bit, and otherwise a
file that the run writes once. The names are those of the model and of the file. The run's `data.json` has the file's
checksum, as that of all else that the run reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.files.drafts import sha256_of
from workbench.files.identities import Identities
from workbench.runs.data_record import BASE, read_data, refuse_other
from workbench.runs.names import FROZEN
from workbench.runs.weights import read_weights, save_weights


@dataclass(frozen=True)
class Kept:
    """Tensors of a model in a file. A relative path is one of the run's folder."""

    file: str
    names: dict[str, str]

    def read(self, run: Path) -> dict[str, Tensor]:
        """The tensors by the model's names.

        Raises:
            WorkbenchError: the file is not there any more, is another one than the run's record says, or lacks some.
        """
        refuse_other(run, base_of(run, [self.file]))
        tensors = read_weights(run / self.file)
        if lacks := sorted(set(self.names.values()) - tensors.keys()):
            raise WorkbenchError(
                f"{run / self.file} lacks {len(lacks)} of the weights that {run} takes from it ({lacks[0]}, ...): "
                "it is of another model. Restore it"
            )
        return {own: tensors[name] for own, name in self.names.items()}


def base_of(run: Path, files: Iterable[str]) -> Identities:
    """The identity of the files with weights that a run does not change.

    Raises:
        WorkbenchError: one is not there any more.
    """
    for file in files:
        if not (run / file).is_file():
            raise WorkbenchError(
                f"{run} was trained with weights that it doesn't change, which lie in {run / file}, and this file is "
                "not there. Restore it: what was trained fits these weights alone"
            )
    return {BASE: {file: sha256_of(run / file) for file in files}}


def recorded_base(run: Path) -> Identities:
    """What these files, as the record of a run names them, are now.

    Raises:
        WorkbenchError: one is not there any more, or the record is damaged.
    """
    files = list((read_data(run) or {"read": {}})["read"].get(BASE, {}))
    return base_of(run, files) if files else {}


def keep(run: Path, tensors: Mapping[str, Tensor], sources: Iterable[Path]) -> Kept | None:
    """Where the weights lie that the run will not change; None without any.

    Args:
        tensors: by the model's names, `networks.NAME...`.
        sources: files of weights that they may have come from.

    Raises:
        MachineError: the disk is full.
    """
    if not tensors:
        return None
    for path in sources:
        names = _found(tensors, read_weights(path))
        if names is not None:
            return Kept(str(path.resolve()), names)
    save_weights(run / FROZEN, tensors)
    return Kept(FROZEN, {name: name for name in tensors})


def _found(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> dict[str, str] | None:
    """The names in a source of the same tensors, be they of a network of another name; None if it lacks one."""
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
