"""Files with pieces of tensors: what is read from them, by us and by torch, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import Tensor

from tests.runs.gloo_ranks import Phase, on_ranks
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.processes.distributed import World
from workbench.runs import pieces as pieces_module
from workbench.runs.pieces import OFFSETS, Piece, StoredTensors, box_of, own_piece, write_pieces, write_whole
from workbench.runs.weights import save_weights

WHOLE: dict[str, Tensor] = {
    "table": torch.arange(35.0).view(7, 5),
    "half": torch.arange(12.0).view(3, 4).to(torch.bfloat16),
    "count": torch.tensor(3),
    "none": torch.empty(0, 4),
    "flags": torch.tensor([True, False, True]),
    "columns": torch.arange(24.0).view(2, 3, 4),
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The tensors in two files: rows of some, columns of one, and what both ranks have in the first."""
    first = {
        "table": Piece(WHOLE["table"][:4], (0, 0)),
        "half": Piece(WHOLE["half"][:3], (0, 0)),
        "count": Piece(WHOLE["count"], ()),
        "none": Piece(WHOLE["none"], (0, 0)),
        "flags": Piece(WHOLE["flags"][:2], (0,)),
        "columns": Piece(WHOLE["columns"][:, :2], (0, 0, 0)),
    }
    second = {
        "table": Piece(WHOLE["table"][4:], (4, 0)),
        "flags": Piece(WHOLE["flags"][2:], (2,)),
        "columns": Piece(WHOLE["columns"][:, 2:], (0, 2, 0)),
    }
    paths = [tmp_path / "pieces" / f"rank-{rank:05d}.safetensors" for rank in range(2)]
    paths[0].parent.mkdir()
    for path, pieces in zip(paths, (first, second), strict=True):
        assert write_pieces(path, pieces) == sha256_of(path)
    return paths


def test_tensors_are_read_whole_and_in_boxes(files: list[Path]) -> None:
    stored = StoredTensors(files, {"decoder": "table"})
    assert set(stored) == {*WHOLE, "decoder"}
    for name, tensor in WHOLE.items():
        assert stored[name].dtype == tensor.dtype
        assert torch.equal(stored[name], tensor)
    assert torch.equal(stored.read("table", ((2, 1), (4, 3))), WHOLE["table"][2:6, 1:4])
    assert torch.equal(stored.read("columns", ((0, 1, 0), (2, 2, 2))), WHOLE["columns"][:, 1:3, :2])
    assert stored.read("half", ((3, 0), (0, 4))).shape == (0, 4)
    found = stored.read_all()
    assert found["decoder"] is found["table"]


def test_a_whole_file_has_the_bytes_that_are_saved_without_pieces(files: list[Path], tmp_path: Path) -> None:
    whole, plain = tmp_path / "whole.safetensors", tmp_path / "plain.safetensors"
    assert write_whole(whole, StoredTensors(files, {"decoder": "table"})) == sha256_of(whole)
    save_weights(plain, {**WHOLE, "decoder": WHOLE["table"]})
    assert whole.read_bytes() == plain.read_bytes()


def test_torch_reads_the_pieces(files: list[Path]) -> None:
    found = {name: torch.zeros_like(WHOLE[name]) for name in ("table", "half", "columns")}
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(str(files[0].parent)), no_dist=True)
    assert all(torch.equal(tensor, WHOLE[name]) for name, tensor in found.items())


def test_elements_that_no_file_has_are_named(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"rank-00001\.safetensors lack elements of"):
        StoredTensors(files[1:])
    assert set(StoredTensors(files[:1])) == set(WHOLE), "what is missing at the end shows in the shapes alone"
    bad = tmp_path / "bad.safetensors"
    for offsets in ("[", "[]", '{"x": {"saved_offsets": [-1]}}', '{"x": {"saved_offsets": [0, 0]}}', '{"x": 1}'):
        save_file({"x": torch.zeros(2)}, bad, {OFFSETS: offsets})
        with pytest.raises(WorkbenchError, match=r"bad\.safetensors doesn't say where its pieces lie"):
            StoredTensors([bad])
    save_file({"x": torch.zeros(2)}, bad, {OFFSETS: json.dumps({"x": {"saved_offsets": [10**12]}})})
    with pytest.raises(WorkbenchError, match="lack elements of x"):
        StoredTensors([bad])


RANKS = 24


def looks(monkeypatch: pytest.MonkeyPatch, stored: StoredTensors) -> list[int]:
    """The files that are asked for a piece, one entry each time."""
    found: list[int] = []
    for name in ("_file", "_view"):
        plain = getattr(stored, name)
        monkeypatch.setattr(stored, name, lambda number, plain=plain: found.append(number) or plain(number))
    return found


def test_what_is_read_grows_with_the_pieces_that_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole file takes one look at each piece; a rank's rows take as many as there are pieces with some of them."""
    whole = {"square": torch.randn(3 * RANKS, 4), "one row each": torch.randn(RANKS), "grid": torch.randn(RANKS, 6)}
    files = [tmp_path / f"rank-{rank:05d}.safetensors" for rank in range(RANKS)]
    for rank in reversed(range(RANKS)):  # in another order than that of the rows
        grid = Piece(whole["grid"][rank // 2 * 2 :][:2, rank % 2 * 3 :][:, :3], (rank // 2 * 2, rank % 2 * 3))
        rows = {name: len(whole[name]) // RANKS for name in ("square", "one row each")}
        pieces = {n: Piece(whole[n][r * rank : r * rank + r], (r * rank, 0)[: whole[n].ndim]) for n, r in rows.items()}
        write_pieces(files[RANKS - 1 - rank], {**pieces, "grid": grid})
    stored = StoredTensors(files)
    looked = looks(monkeypatch, stored)
    assert all(torch.equal(stored[name], tensor) for name, tensor in whole.items())
    assert len(looked) == len(whole) * RANKS
    looked.clear()
    assert torch.equal(stored.read("square", ((30, 0), (6, 4))), whole["square"][30:36])
    assert torch.equal(stored.read("square", ((31, 1), (3, 2))), whole["square"][31:34, 1:3])
    assert torch.equal(stored.read("grid", ((4, 3), (2, 3))), whole["grid"][4:6, 3:])
    assert len(looked) == 2 + 2 + 1
    walked: list[int] = []
    near = stored._near
    monkeypatch.setattr(stored, "_near", lambda *a: (walked.append(1) or piece for piece in near(*a)))
    looked.clear()
    write_whole(tmp_path / "whole.safetensors", stored)
    assert len(looked) == len(whole) * RANKS
    assert len(walked) == RANKS, "only the pieces of a tensor that is not in rows are looked for"
    save_weights(tmp_path / "plain.safetensors", whole)
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "plain.safetensors").read_bytes()


def headers_in_shares(world: World, files: list[Path]) -> None:
    """Each rank opens a share of the files for their headers, and then the files of the rows that it reads."""
    read: list[Path] = []
    plain = pieces_module.opened
    pieces_module.opened = lambda path: read.append(path) or plain(path)  # type: ignore[func-returns-value]
    stored = StoredTensors(files, world=world)
    assert len(read) <= -(-len(files) // world.size)
    assert sorted(path for rank in world.gather(read) for path in rank) == files, "each file once"
    alone = StoredTensors(files)
    assert stored.shapes == alone.shapes
    assert stored.own == alone.own
    assert all(torch.equal(stored[name], alone[name]) for name in alone)
    again = StoredTensors(files, world=world)
    assert torch.equal(again.read("table", ((0, 0), (4, 5))), WHOLE["table"][:4])
    assert len(again._files) == 1
    with pytest.raises(WorkbenchError, match=r"no weights at .*rank-00009"):  # which one rank alone opens
        StoredTensors([*files, files[0].with_name("rank-00009.safetensors")], world=world)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_reading_of_headers(files: list[Path], tmp_path: Path, ranks: int) -> None:
    on_ranks([Phase(ranks, headers_in_shares, (files,))], tmp_path / "ranks")


def spread_out(world: World, folder: Path) -> None:
    """Every placement that a model may have; each element is saved by one rank, and read back by all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    flat, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("one", "two"))
    whole = torch.arange(66.0).view(11, 6)
    placed = {
        "rows": distribute_tensor(whole, flat, [Shard(0)]),
        "few rows": distribute_tensor(whole[:3], flat, [Shard(0)]),
        "replicated": distribute_tensor(whole, square, [Replicate(), Shard(0)]),
        "everywhere": distribute_tensor(whole, square, [Replicate(), Replicate()]),
        "columns": distribute_tensor(whole, square, [Replicate(), Shard(1)]),
        "rows and columns": distribute_tensor(whole, square, [Shard(0), Shard(1)]),
        "plain": whole,
    }
    pieces = {n: own_piece(t, number, is_main=world.is_main) for number, (n, t) in enumerate(placed.items())}
    own = {name: piece for name, piece in pieces.items() if piece is not None}
    write_pieces(folder / f"rank-{world.rank:05d}.safetensors", own)
    sizes = world.gather({name: piece.values.numel() for name, piece in own.items()})
    for name, tensor in placed.items():
        assert sum(size.get(name, 0) for size in sizes) == tensor.numel(), name
    stored = StoredTensors(sorted(folder.glob("*.safetensors")))
    for name, tensor in placed.items():
        full = whole[:3] if name == "few rows" else whole
        assert torch.equal(stored[name], full), name
        mine = tensor.to_local() if name != "plain" else tensor  # type: ignore[attr-defined]
        assert torch.equal(stored.read(name, box_of(tensor)), mine), name


@pytest.mark.scale
def test_every_placement_on_four_ranks(tmp_path: Path) -> None:
    (tmp_path / "pieces").mkdir()
    on_ranks([Phase(4, spread_out, (tmp_path / "pieces",))], tmp_path / "ranks")
