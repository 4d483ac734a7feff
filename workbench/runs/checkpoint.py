"""A checkpoint: a folder with everything that is needed to resume, written, checked and read.

    model.safetensors   weights (shared tensors once; without frozen weights: `workbench.runs.frozen_weights`)
    trainer.pt          optimizer moments by parameter name (tensors only)
    tables/             rows and moments of sharded tables (`workbench.runs.table_files`), if there are any
    memory.safetensors  the memory of texts in continuous order, if there is one
    state.json          step, best metric, running sums, versions, checksums of all files

The ranks of a sharded run save what each has, in files of pieces (`workbench.runs.pieces`):

    model-pieces/rank-R.safetensors     of the weights; names of shared tensors are in state.json
    trainer-pieces/rank-R.safetensors   of the moments, by `parameter/key`; values.json has the optimizer's numbers

Its last checkpoint and `best` have model.safetensors in place of the pieces of weights. Either kind is read by any
number of ranks, sharded or not. Random generators and the reader need no state: both are functions of the step. The
files are compared with their checksums before use: neither safetensors nor torch's files have any.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import check_file, sha256_of, sync, write_text
from workbench.core.files.text_files import parse_json
from workbench.core.processes.distributed import World
from workbench.optimization.optimizer_state import load_optimizer_state, optimizer_state
from workbench.runs.frozen_weights import FrozenNames, read_frozen, stored_frozen
from workbench.runs.names import FROZEN, MEMORY, MODEL, MODEL_PIECES, STATE, TABLES, TRAINER, TRAINER_PIECES, VALUES
from workbench.runs.pieces import (
    ALONE,
    StoredTensors,
    box_of,
    cut,
    fill,
    is_sharded,
    is_spread,
    own_piece,
    placed,
    write_pieces,
    write_whole,
)
from workbench.runs.table_files import read_tables, table_pieces, table_updates
from workbench.runs.weights import check_fits, read_weights, save_weights

CHECKSUMS, KEPT, TIES = "sha256", "kept", "tied"
NAME = re.compile("step-(0|[1-9][0-9]*)")
"""The name of a checkpoint's folder, with the number of finished updates. `best` has another name."""
PIECES = re.compile(rf"({MODEL_PIECES}|{TRAINER_PIECES}|{TABLES})/rank-[0-9]+\.safetensors")
State = dict[str, Any]
Sums = dict[str, str]
"""The checksum of each file, by its path in the checkpoint."""


class DamagedError(WorkbenchError):
    """A checkpoint that differs from what was saved: incomplete, changed, or renamed."""


@dataclass(frozen=True)
class Content:
    """What this rank writes of a checkpoint.

    Attributes:
        state: without checksums; the main rank writes it when all files of all ranks are there.
        files: by path in the checkpoint, the functions that write them.
    """

    state: State
    files: dict[str, Callable[[Path], Any]] = field(default_factory=dict)

    def write(self, draft: Path) -> Sums:
        """Write the files into a folder; they are on the disk when this returns."""
        sums = {}
        for name, write in self.files.items():
            path = draft / name
            path.parent.mkdir(exist_ok=True)
            sums[name] = write(path) or sha256_of(path)
            sync(path.parent)
        return sums


def content_of(
    root: nn.Module,
    state: State,
    kept: FrozenNames,
    optimizer: torch.optim.Optimizer | None = None,
    memory: dict[str, Tensor] | None = None,
    *,
    rank: int = 0,
    copied: bool = False,
) -> Content:
    """What a rank writes: weights, moments (with an optimizer) and the memory of texts.

    Args:
        kept: the frozen weights, which are left out.
        copied: whether the content is a copy on the host, which later steps don't change.
    """
    main, sharded = rank == 0, is_sharded(root)
    tensors = {name: tensor for name, tensor in root.state_dict(keep_vars=True).items() if name not in kept}
    moments = optimizer_state(root, optimizer) if optimizer is not None else {}
    state = {**state, KEPT: kept} if kept else dict(state)
    if updates := table_updates(root):
        state[TABLES] = updates
    content = Content(json.loads(json.dumps(state)))
    hold = _on_host if copied else dict
    if rows := table_pieces(root, moments=optimizer is not None):
        held = hold({name: piece.values for name, piece in rows.items()})
        rows = {name: replace(piece, values=held[name]) for name, piece in rows.items()}
        content.files[f"{TABLES}/rank-{rank:05d}.safetensors"] = partial(write_pieces, pieces=rows)
    if sharded:
        ties = _ties(tensors)
        if ties:
            content.state[TIES] = ties
        own = {name: tensor for name, tensor in tensors.items() if name not in ties}
        content.files.update(_pieces(MODEL_PIECES, own, root, rank, hold))
        flat = {f"{name}/{key}": value for name, of in moments.items() for key, value in of.items()}
        values = {name: value for name, value in flat.items() if not isinstance(value, Tensor)}
        if optimizer is not None:
            content.files.update(
                _pieces(TRAINER_PIECES, {n: t for n, t in flat.items() if n not in values}, root, rank, hold)
            )
        if values and main:
            content.files[f"{TRAINER_PIECES}/{VALUES}"] = partial(write_text, text=json.dumps(values))
    elif main:
        content.files[MODEL] = _saving(hold({name: tensor.detach() for name, tensor in tensors.items()}))
    if memory and main:
        content.files[MEMORY] = _saving(hold(memory))
    if optimizer is not None and main and not sharded:
        content.files[TRAINER] = partial(_save_moments, moments={name: hold(of) for name, of in moments.items()})
    return content


def _pieces(
    folder: str,
    tensors: Mapping[str, Tensor],
    root: nn.Module,
    rank: int,
    hold: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Callable[[Path], str]]:
    """The file of this rank's pieces of tensors, if it has any. The ranks of a tensor group have equal pieces of
    tensors that are not cut, and take turns."""
    from workbench.parallel.tensor_order import in_own_order, place_in_group
    from workbench.parallel.tensor_parallel import cut_parameters

    cuts, (place, places) = cut_parameters(root), place_in_group(root)
    found = {}
    for i, (name, tensor) in enumerate(tensors.items()):
        cut = cuts.get(name.rpartition("/")[0] or name)
        if cut is not None or not is_spread(tensor) or i % places == place:
            found[name] = own_piece(in_own_order(tensor, cut), i, is_main=rank == 0)
    pieces = {name: piece for name, piece in found.items() if piece is not None}
    values = hold({name: piece.values for name, piece in pieces.items()})
    pieces = {name: replace(piece, values=values[name]) for name, piece in pieces.items()}
    return {f"{folder}/rank-{rank:05d}.safetensors": partial(write_pieces, pieces=pieces)}


def _ties(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The further names of tensors that have several, with the first name of each."""
    first: dict[int, str] = {}
    return {name: first[id(t)] for name, t in tensors.items() if first.setdefault(id(t), name) != name}


def _saving(tensors: dict[str, Tensor]) -> Callable[[Path], None]:
    return lambda path: save_weights(path, tensors)


def _on_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies in the memory of the host; what several names share is one copy.

    Those of CUDA tensors are pinned, so that all are under way at once, and are waited for together.
    """
    copies: dict[tuple[Any, ...], Tensor] = {}
    devices: set[torch.device] = set()

    def copy(tensor: Tensor) -> Tensor:
        same = (tensor.data_ptr(), tensor.shape, tensor.stride())
        key = same if tensor.numel() else (id(tensor),)
        if key not in copies and tensor.device.type == "cuda":
            devices.add(tensor.device)
            held = torch.empty_like(tensor.detach(), device="cpu", pin_memory=True)
            copies[key] = held.copy_(tensor.detach(), non_blocking=True)
        elif key not in copies:
            copies[key] = tensor.detach().to("cpu", copy=True)
        return copies[key]

    held = {name: copy(value) if isinstance(value, Tensor) else value for name, value in values.items()}
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return held


def _save_moments(path: Path, moments: dict[str, dict[str, Tensor]]) -> None:
    with path.open("wb") as file:
        try:
            torch.save(moments, file)
        except RuntimeError as error:  # torch replaces the error of the file by its own
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
    sync(path)


def consolidate(draft: Path, state: State, sums: Sums) -> Sums:
    """Replace the pieces of weights by model.safetensors; the checksums of the files that are there then."""
    pieces = [name for name in sums if name.startswith(f"{MODEL_PIECES}/")]
    if not pieces:
        return sums
    whole = write_whole(draft / MODEL, StoredTensors([draft / name for name in pieces], state.pop(TIES, {})))
    shutil.rmtree(draft / MODEL_PIECES)
    return {MODEL: whole} | {name: found for name, found in sums.items() if name not in pieces}


def write_state(draft: Path, state: State, sums: Sums) -> None:
    """Complete a checkpoint whose other files are written: its state, with the checksums of all."""
    write_text(draft / STATE, json.dumps({**state, CHECKSUMS: {**sums, STATE: _checksum(state)}}, indent=2))
    sync(draft)


def _checksum(state: State) -> str:
    """The checksum of the state as it is read back: as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def read_state(folder: Path) -> State:
    """The state of a checkpoint, compared with its checksum; the checksums of the other files are in `sha256`.

    Raises:
        DamagedError: it is missing, damaged, or of another step than in the folder's name.
        WorkbenchError: a folder, a pipe or a link to nothing has its name.
    """
    check_file(folder / STATE)
    try:
        state = parse_json((folder / STATE).read_text("utf-8"))
        sums = state[CHECKSUMS]
        whole = sums[STATE] == _checksum({key: value for key, value in state.items() if key != CHECKSUMS})
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DamagedError(f"{folder} is no whole checkpoint: {STATE} cannot be read ({_short(error)})") from error
    if not whole:
        raise DamagedError(f"{folder} is no whole checkpoint: {STATE} does not have the checksum it was saved with")
    named = NAME.fullmatch(folder.name)
    if named and int(named[1]) != state["step"]:
        raise DamagedError(f"{folder} was renamed: its state is of step {state['step']}")
    return state


def verify_checkpoint(folder: Path, rank: int = 0, size: int = 1) -> State:
    """The state of a checkpoint (or of `best`) whose files have their recorded checksums.

    Args:
        rank, size: each of `size` ranks compares its share of the files.

    Raises:
        DamagedError: a file is missing or was changed.
        WorkbenchError: a folder, a pipe or a link to nothing has the name of a file.
    """
    state = read_state(folder)
    files = {name: expected for name, expected in state[CHECKSUMS].items() if name != STATE}
    for name, expected in list(files.items())[rank::size]:
        check_file(folder / name)
        try:
            found = sha256_of(folder / name)
        except OSError as error:
            raise DamagedError(f"{folder} is no whole checkpoint: {name} cannot be read ({_short(error)})") from error
        if found != expected:
            raise DamagedError(f"{folder} is no whole checkpoint: {name} does not have the checksum it was saved with")
    return state


def check_whole(folder: Path) -> None:
    """Check that a checkpoint (or `best`) is as it was saved.

    Raises:
        DamagedError: it was changed; the message says what to do.
    """
    try:
        verify_checkpoint(folder)
    except DamagedError as error:
        raise DamagedError(f"{error}. Restore it from a copy, or move it away to use another checkpoint") from error


def read_checkpoint(folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint (or of `best`), compared with their checksum.

    Raises:
        DamagedError: they were changed; the message says what to do.
    """
    check_whole(folder)
    return stored_weights(folder).read_all() | read_frozen(_run_of(folder), frozen_of(folder))


def frozen_of(folder: Path) -> FrozenNames:
    """The frozen weights, which a checkpoint does not contain."""
    return read_state(folder).get(KEPT, {})


def files_of(folder: Path) -> list[Path]:
    """The files with the weights of a checkpoint: its own file, and the file of the frozen weights."""
    state = read_state(folder)
    return [*_files(folder, state, MODEL, MODEL_PIECES), *([_run_of(folder) / FROZEN] if state.get(KEPT) else [])]


def stored_weights(folder: Path, world: World = ALONE) -> StoredTensors:
    """The weights in a checkpoint itself, without frozen ones; they are read one by one, by all ranks of `world`.

    Raises:
        WorkbenchError: a file is missing or damaged.
    """
    state = read_state(folder)
    return StoredTensors(_files(folder, state, MODEL, MODEL_PIECES), state.get(TIES), world)


def stored_tables(folder: Path, world: World = ALONE) -> StoredTensors:
    """The rows of sharded tables in a checkpoint (`workbench.runs.table_files`), read by all ranks of `world`.

    Raises:
        WorkbenchError: a file is missing or damaged.
    """
    return StoredTensors(_pieces_in(folder, read_state(folder), TABLES), world=world)


def _files(folder: Path, state: State, whole: str, pieces: str) -> list[Path]:
    """The files with the pieces of tensors, or the file with whole ones."""
    return _pieces_in(folder, state, pieces) or [folder / whole]


def _pieces_in(folder: Path, state: State, pieces: str) -> list[Path]:
    """The files of pieces that a checkpoint lists; other paths in the list lead nowhere."""
    return [folder / name for name in state[CHECKSUMS] if name.startswith(f"{pieces}/") and PIECES.fullmatch(name)]


def step_of(folder: Path) -> int:
    """The number of finished updates of a checkpoint `step-N`."""
    return int(folder.name.removeprefix("step-"))


def _run_of(folder: Path) -> Path:
    return folder.parent if NAME.fullmatch(folder.name) is None else folder.parent.parent


def restore(folder: Path, root: nn.Module, optimizer: torch.optim.Optimizer, world: World = ALONE) -> State:
    """Load weights and optimizer from a verified checkpoint; returns its state. All ranks of `world` call it, and read
    what they have of the model.

    Raises:
        WorkbenchError: a damaged checkpoint, or one of another model.
    """
    state = read_state(folder)
    load_checkpoint(folder, root, world)
    read_tables(root, stored_tables(folder, world), state.get(TABLES, {}))
    order, moments = _order(root), _moments(folder, state, dict(root.named_parameters()), world)
    for name, of in moments.items():
        of.update({key: order(name, value) for key, value in of.items() if isinstance(value, Tensor)})
    load_optimizer_state(root, optimizer, moments)
    return {key: value for key, value in state.items() if key not in (CHECKSUMS, TIES)}


def load_checkpoint(folder: Path, root: nn.Module, world: World = ALONE) -> None:
    """Load the weights of a verified checkpoint. All ranks of `world` call it.

    Raises:
        WorkbenchError: a damaged checkpoint, or one of another model.
    """
    kept = frozen_of(folder)
    stored, frozen = stored_weights(folder, world), stored_frozen(_run_of(folder), kept)
    check_fits(root, stored.shapes | {name: frozen.shapes[other] for name, other in kept.items()}, str(folder))
    order = _order(root)
    with torch.no_grad():
        for name, own in root.state_dict(keep_vars=True).items():
            box = box_of(own)
            fill(own, frozen.read(kept[name], box) if name in kept else stored.read(name, box))
            if (ordered := order(name, own)) is not own:
                own.copy_(ordered)


def _order(root: nn.Module) -> Callable[[str, Tensor], Tensor]:
    """What makes of a stored tensor of a parameter the one that tensor parallelism computes with."""
    if not is_sharded(root):
        return lambda name, tensor: tensor
    from workbench.parallel.tensor_order import in_rank_order
    from workbench.parallel.tensor_parallel import cut_parameters

    cuts = cut_parameters(root)
    return lambda name, tensor: in_rank_order(tensor, cuts.get(name))


def _moments(folder: Path, state: State, parameters: Mapping[str, nn.Parameter], world: World) -> dict[str, State]:
    """The optimizer's state of each parameter; of a sharded one, this rank's part."""
    found: dict[str, State] = {}
    files = _files(folder, state, TRAINER, TRAINER_PIECES)
    if files[0].name == TRAINER:
        for name, of in _read_moments(files[0], mapped=any(map(is_spread, parameters.values()))).items():
            own = parameters.get(name)
            found[name] = {
                key: placed(value.shape, partial(cut, value), own) if isinstance(value, Tensor) else value
                for key, value in of.items()
            }
        return found
    stored = StoredTensors(files, world=world)
    for path, shape in stored.shapes.items():
        name, _, key = path.rpartition("/")
        found.setdefault(name, {})[key] = placed(shape, partial(stored.read, path), parameters.get(name))
    for path, value in _read_values(folder, state).items():
        name, _, key = path.rpartition("/")
        found.setdefault(name, {})[key] = value
    return found


def _read_values(folder: Path, state: State) -> dict[str, float | str | None]:
    """The numbers and texts of the optimizer's state, by `parameter/key`."""
    if f"{TRAINER_PIECES}/{VALUES}" not in state[CHECKSUMS]:
        return {}
    path = folder / TRAINER_PIECES / VALUES
    try:
        values: dict[str, float | str | None] = parse_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} is damaged ({_short(error)})") from error
    return values


def read_memory(folder: Path) -> dict[str, Tensor]:
    """The memory of texts in continuous order, from a verified checkpoint."""
    return read_weights(folder / MEMORY) if MEMORY in read_state(folder)[CHECKSUMS] else {}


def _read_moments(path: Path, *, mapped: bool) -> dict[str, dict[str, Tensor]]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise DamagedError(f"{path} is damaged ({_short(error)})") from error


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
