"""Checkpoints of PyTorch-BigGraph, as its page "I/O format" says them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.vectors.options import ImportOptions
from kg.vectors.pretrained_vectors import import_vectors
from kg.vectors.vectors import GraphVectors, load_vectors
from workbench.core.errors import WorkbenchError

h5py = pytest.importorskip("h5py")

PARTS = {("people", 0): ["Q3", "Q1"], ("people", 1): ["Q9"], ("big_towns", 0): ["Q2"]}
GLOBAL = {"people": np.array([0.5, 0, 0], np.float32), "big_towns": np.array([0, 0.25, 0], np.float32)}


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    return GraphStore.build([("Q1", "P1", "Q2"), ("Q3", "P1", "Q4")], tmp_path / "graph")


def table_of(kind: str, part: int) -> np.ndarray:
    names = PARTS[kind, part]
    return np.arange(3 * len(names), dtype=np.float32).reshape(-1, 3) + 10 * part + len(kind)


def checkpoint(folder: Path, version: int = 7, shared: bool = True) -> tuple[Path, Path]:
    """The folders of the checkpoint and of the entities; an older version, left half deleted, lies next to it."""
    vectors, entities = folder / "model", folder / "entities"
    vectors.mkdir()
    entities.mkdir()
    config = json.dumps({"entity_path": "entities", "global_emb": shared})
    for (kind, part), names in PARTS.items():
        (entities / f"entity_names_{kind}_{part}.json").write_text(json.dumps(names, indent=4))
        with h5py.File(vectors / f"embeddings_{kind}_{part}.v{version}.h5", "w") as file:
            file.attrs["format_version"], file.attrs["config/json"] = 1, config
            file.create_dataset("embeddings", data=table_of(kind, part))
            file.create_dataset("optimizer/state_dict", data=np.frombuffer(b"state", "V1"))
    with h5py.File(vectors / f"model.v{version}.h5", "w") as file:
        file.attrs["config/json"] = config
        for kind in GLOBAL if shared else ():
            file.create_dataset(f"model/entities/{kind}/global_embedding", data=GLOBAL[kind])
        file.create_dataset("model/relations/0/operator/rhs/translation", data=np.ones((1, 3), np.float32))
    with h5py.File(vectors / f"embeddings_people_0.v{version - 1}.h5", "w") as file:
        file.create_dataset("embeddings", data=np.full((2, 3), -1, np.float32))
    (vectors / "checkpoint_version.txt").write_text(f"{version}\n")
    return vectors, entities


def taken(store: GraphStore, place: Path, **options: object) -> GraphVectors:
    import_vectors(store, place, store.path.parent / "v.safetensors", ImportOptions(**options))  # type: ignore[arg-type]
    return load_vectors(store.path.parent / "v.safetensors")


@pytest.mark.parametrize("shared", [True, False])
def test_a_folder_is_all_parts_of_its_version(shared, store, tmp_path):
    vectors, entities = checkpoint(tmp_path, shared=shared)
    found = taken(store, vectors, ids=entities)
    assert list(found.ids) == ["Q1", "Q2", "Q3"]
    people = table_of("people", 0) + shared * GLOBAL["people"]
    towns = table_of("big_towns", 0) + shared * GLOBAL["big_towns"]
    np.testing.assert_array_equal(found.vectors, [people[1], towns[0], people[0]])
    assert found.provenance["entities"] == {"found": 3, "missing": 1, "size": 3}
    read = {Path(path).name for path in found.provenance["imported"]}
    assert read == {path.name for path in [*vectors.glob("*.v7.h5"), *entities.iterdir()]}
    assert not list(found.relation_ids)


def test_a_file_is_one_part(store, tmp_path):
    vectors, entities = checkpoint(tmp_path)
    (tmp_path / "names.json").write_text('["Q4"]')
    found = taken(store, vectors / "embeddings_big_towns_0.v7.h5", ids=tmp_path / "names.json")
    assert list(found.ids) == ["Q4"]
    for names in entities.iterdir():
        names.rename(vectors / names.name)
    assert list(taken(store, vectors / "embeddings_people_0.v7.h5").ids) == ["Q1", "Q3"]


def test_rows_are_read_in_blocks(store, tmp_path, monkeypatch):
    monkeypatch.setattr("kg.vectors.formats.pbg_checkpoint.BLOCK", 1)
    vectors, entities = checkpoint(tmp_path)
    found = taken(store, vectors / "embeddings_people_0.v7.h5", ids=entities)
    np.testing.assert_array_equal(found.vectors, (table_of("people", 0) + GLOBAL["people"])[::-1])


def rewritten(path: Path, key: str, data: np.ndarray | None) -> None:
    with h5py.File(path, "a") as file:
        del file[key]
        if data is not None:
            file.create_dataset(key, data=data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda v, e: (v / "model.v7.h5").unlink(), r"global_emb.*is not there: .*model\.v7\.h5"),
        (lambda v, e: (e / "entity_names_people_1.json").unlink(), r"entity_names_people_1\.json, .*--ids"),
        (lambda v, e: (e / "entity_names_people_1.json").write_text('["Q9"'), "it is no JSON"),
        (lambda v, e: (e / "entity_names_people_1.json").write_text("[9]"), "it is no list of names"),
        (lambda v, e: (e / "entity_names_people_1.json").write_text("[]"), r"are \[1, 3\], \[0, size\] expected"),
        (lambda v, e: (v / "checkpoint_version.txt").write_text("8"), r"no vectors of version \.v8.*found: \.v6, \.v7"),
        (lambda v, e: (v / "checkpoint_version.txt").unlink(), r"several versions \(\.v6, \.v7\)"),
        (lambda v, e: (v / "embeddings_people_0.v7.h5").write_bytes(b"no HDF5"), "cannot be read as HDF5"),
        (lambda v, e: (v / "model.v7.h5").write_bytes(b"no HDF5"), r"model\.v7\.h5 is damaged.*cannot be read as HDF5"),
        (lambda v, e: rewritten(v / "embeddings_people_0.v7.h5", "embeddings", None), "no table of numbers"),
        (
            lambda v, e: rewritten(v / "embeddings_people_0.v7.h5", "embeddings", np.ones((2, 3), np.int64)),
            "no table of numbers",
        ),
        (
            lambda v, e: rewritten(v / "model.v7.h5", "model/entities/people/global_embedding", np.ones(2, np.float32)),
            r"global_embedding is \[2\], \[3\] expected",
        ),
        (lambda v, e: rewritten(v / "model.v7.h5", "model/entities/people/global_embedding", None), "no table"),
    ],
)
def test_damage_is_reported_in_one_message(damage, message, store, tmp_path):
    vectors, entities = checkpoint(tmp_path)
    damage(vectors, entities)
    with pytest.raises(WorkbenchError, match=message):
        taken(store, vectors, ids=entities)
    assert not (tmp_path / "v.safetensors").exists()


def test_cut_off_anywhere(store, tmp_path):
    vectors, entities = checkpoint(tmp_path)
    path = vectors / "embeddings_people_0.v7.h5"
    whole = path.read_bytes()
    for size in range(0, len(whole), len(whole) // 25):
        path.write_bytes(whole[:size])
        with pytest.raises(WorkbenchError, match="is damaged"):
            taken(store, path, ids=entities)


def test_what_cannot_be_taken_over(store, tmp_path, monkeypatch):
    vectors, entities = checkpoint(tmp_path)
    with pytest.raises(WorkbenchError, match=r"no file of PyTorch-BigGraph's vectors, which are embeddings_TYPE_PART"):
        taken(store, vectors / "model.v7.h5", ids=entities)
    with pytest.raises(WorkbenchError, match=r"names the entities of one partition, .* has 3"):
        taken(store, vectors, ids=entities / "entity_names_people_0.json")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(WorkbenchError, match="needs the package 'h5py': pip install"):
        taken(store, vectors, ids=entities)
