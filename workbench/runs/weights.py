"""Weights on disk: safetensors files in which shared tensors are stored once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import clear_drafts, draft
from workbench.core.files.text_files import parse_json

TIED = "tied"
"""The key of a file's metadata with the names of tied weights. It is a single key, since the library writes several in
random order."""


def save_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a safetensors file. A tensor with several names (tied weights) is stored under the first.

    The other names are in the file's metadata. Equal tensors yield equal bytes. The file is on the disk when this
    returns.
    """
    first: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    unique: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and same in first:
            tied[name] = first[same]
        else:
            first[same] = name
            unique[name] = tensor.detach().cpu().contiguous()
    save_tensors(path, _apart(unique), {TIED: json.dumps(tied, sort_keys=True)})


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, completely or not at all; it is on the disk when this returns. Equal content becomes
    equal bytes.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: the folder cannot be written.
    """
    clear_drafts(path)
    with draft(path) as temporary:
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata)  # replaces the file by one that nobody else may read
            temporary.chmod(mode)
        except SafetensorError as error:  # the library has a single error: the system's number is in its message
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        if len(metadata) > 1:
            _sort_metadata(temporary)


def _sort_metadata(path: Path) -> None:
    """Sort the keys of the metadata: the library writes them in an order that differs from run to run."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        if len(text) <= size:
            file.seek(8)
            file.write(text.ljust(size))


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with a storage each, as safetensors requires; views of one storage (slices of a table) are copied."""
    storages: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        whole = storage.nbytes() == tensor.numel() * tensor.element_size()
        if storage.data_ptr() in storages or not whole:
            tensors[name] = tensor.clone()
        storages.add(storage.data_ptr())
    return tensors


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU; names that shared a tensor share it again.

    Raises:
        WorkbenchError: the file is missing or damaged.
    """
    with opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        tied = parse_json((file.metadata() or {}).get(TIED, "{}"))
    return tensors | {name: tensors[first] for name, first in tied.items()}


def weight_names(path: Path) -> list[str]:
    """The names of the tensors of a safetensors file.

    Raises:
        WorkbenchError: the file is missing or damaged.
    """
    with opened(path) as file:
        return list(file.keys())


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An open safetensors file.

    Raises:
        WorkbenchError: it is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise WorkbenchError(f"there are no weights at {path}") from None
    except (SafetensorError, OSError) as error:
        raise WorkbenchError(f"{path} is no whole safetensors file ({error}); use another checkpoint") from error


OWN_SIZES = "Use the sizes of the recipe that created it"


def check_shapes(module: nn.Module, shapes: Mapping[str, torch.Size], where: str) -> None:
    """Check the shapes of tensors.

    Raises:
        WorkbenchError: a tensor's shape is not the module's; the message names the tensor and both shapes.
    """
    own = module.state_dict(keep_vars=True)
    wrong = [(n, shape, own[n].shape) for n, shape in shapes.items() if n in own and shape != own[n].shape]
    if wrong:
        listed = "; ".join(f"{n}: found {list(found)}, expected {list(wanted)}" for n, found, wanted in wrong[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise WorkbenchError(f"{where}: shapes differ: {listed}{more}. {OWN_SIZES}")


def check_fits(module: nn.Module, shapes: Mapping[str, torch.Size], where: str) -> None:
    """Check that weights are those of a module.

    Raises:
        WorkbenchError: missing or unexpected tensors, or other shapes.
    """
    check_shapes(module, shapes, where)
    own = module.state_dict(keep_vars=True)
    missing, unexpected = sorted(set(own) - set(shapes)), sorted(set(shapes) - set(own))
    if missing or unexpected:
        raise WorkbenchError(
            f"{where}: not the weights of this model. Missing: {', '.join(missing[:5]) or 'none'} ({len(missing)}); "
            f"unexpected: {', '.join(unexpected[:5]) or 'none'} ({len(unexpected)})"
        )


def copy_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors that the module has; shapes are known to fit."""
    own = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in own:
                own[name].copy_(tensor)
