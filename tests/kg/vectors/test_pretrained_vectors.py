"""Pretrained vectors of other tools, taken over for a graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.vectors.options import ImportOptions
from kg.vectors.pretrained_vectors import import_vectors
from kg.vectors.vectors import GraphVectors, load_vectors
from workbench.core.errors import WorkbenchError

ENTITIES = ["Q3", "Q1", "Q9", "Q2"]  # Q9 is not the graph's, and Q4 of the graph has no vector
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
NAMES = {1: "New York", 2: "Paris", 3: "Paris", 4: "Rome"}
RELATION = np.full((1, 2), 0.5, np.float32)


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    labels = [
        {"id": f"Q{i}", "label": label} for i, label in ((1, "New York"), (2, "Paris"), (3, "Paris"), (4, "Rome"))
    ]
    return GraphStore.build([("Q1", "P1", "Q2"), ("Q3", "P1", "Q4")], tmp_path / "graph", entity_texts=labels)


def lines(rows: np.ndarray, separator: str = "\t") -> list[str]:
    return [separator.join(map(str, row)) for row in rows.tolist()]


def numbered(names: list[str]) -> str:
    return "".join(f"{line}\n" for line in [len(names), *(f"{name}\t{i}" for i, name in enumerate(names))])


def thunlp(folder: Path) -> Path:
    (folder / "entity2id.txt").write_text(numbered(ENTITIES))
    (folder / "relation2id.txt").write_text(numbered(["P1"]))
    (folder / "entity2vec.vec").write_text("\t\n".join(lines(TABLE)) + "\t\n")
    (folder / "relation2vec.vec").write_text("\t\n".join(lines(RELATION)) + "\t\n")
    return folder


def openke(folder: Path) -> Path:
    thunlp(folder)
    tables = {"ent_embeddings.weight": TABLE.tolist(), "rel_embeddings.weight": RELATION.tolist()}
    (folder / "transe.json").write_text(json.dumps(tables))
    return folder / "transe.json"


def openke_complex(folder: Path) -> Path:
    thunlp(folder)
    tables = {"ent_re_embeddings": TABLE[:, :2].tolist(), "ent_im_embeddings": TABLE[:, 2:].tolist()}
    tables |= {"rel_re_embeddings": RELATION[:, :1].tolist(), "rel_im_embeddings": RELATION[:, 1:].tolist()}
    (folder / "complex.json").write_text(json.dumps(tables))
    return folder / "complex.json"


def dgl_ke(folder: Path) -> Path:
    for kind, names, table in (("entity", ENTITIES, TABLE), ("relation", ["P1"], RELATION)):
        plural = {"entity": "entities", "relation": "relations"}[kind]
        (folder / f"{plural}.tsv").write_text("".join(f"{i}\t{name}\n" for i, name in enumerate(names)))
        np.save(folder / f"wiki_TransE_l2_{kind}.npy", table)
    return folder / "wiki_TransE_l2_entity.npy"


def pbg(folder: Path) -> Path:
    rows = zip(ENTITIES, lines(TABLE), strict=True)
    (folder / "entities.tsv").write_text("".join(f"{name}\t{row}\n" for name, row in rows))
    return folder / "entities.tsv"


def word2vec(folder: Path) -> Path:
    rows = zip(ENTITIES, lines(TABLE, " "), strict=True)
    (folder / "vectors.txt").write_text("4 3\n" + "".join(f"{name} {row}\n" for name, row in rows))
    return folder / "vectors.txt"


def word2vec_binary(folder: Path) -> Path:
    rows = (name.encode() + b" " + row.tobytes() + b"\n" for name, row in zip(ENTITIES, TABLE, strict=True))
    (folder / "vectors.bin").write_bytes(b"4 3\n" + b"".join(rows))
    return folder / "vectors.bin"


def taken(store: GraphStore, place: Path, **options: object) -> GraphVectors:
    import_vectors(store, place, store.path.parent / "v.safetensors", ImportOptions(**options))  # type: ignore[arg-type]
    return load_vectors(store.path.parent / "v.safetensors")


@pytest.mark.parametrize("write", [thunlp, openke, openke_complex, dgl_ke, pbg, word2vec, word2vec_binary])
def test_each_format_is_known_by_its_content(write, store, tmp_path):
    found = taken(store, write(tmp_path))
    assert list(found.ids) == ["Q1", "Q2", "Q3"]
    np.testing.assert_array_equal(found.vectors, TABLE[[1, 3, 0]])
    assert found.provenance["entities"] == {"found": 3, "missing": 1, "size": 3}
    with_relations = write in (thunlp, openke, openke_complex, dgl_ke)
    assert list(found.relation_ids) == ["P1"] * with_relations
    assert found.provenance["relations"] == {"found": int(with_relations), "missing": int(not with_relations)}
    if with_relations:
        np.testing.assert_array_equal(found.relations, RELATION)
    assert found.control is None


def test_gensim_writes_what_is_read(store, tmp_path):
    models = pytest.importorskip("gensim.models")
    vectors = models.KeyedVectors(3)
    vectors.add_vectors(ENTITIES, TABLE)
    for name, binary in (("w.txt", False), ("w.bin", True)):
        vectors.save_word2vec_format(str(tmp_path / name), binary=binary)
        np.testing.assert_allclose(taken(store, tmp_path / name).vectors, TABLE[[1, 3, 0]], atol=1e-6)


def test_keys_of_wikipedia2vec(store, tmp_path):
    """A title is the entity with that label, if only one has it; a file of keys says the others."""
    text = "4 2\nthe 0 0\nENTITY/New_York 1 2\nENTITY/Paris 3 4\nENTITY/Roma 5 6\n"
    (tmp_path / "wiki.txt").write_text(text)
    assert list(taken(store, tmp_path / "wiki.txt").ids) == ["Q1"]
    (tmp_path / "keys.tsv").write_text("ENTITY/Paris\tQ2\nENTITY/Roma\tQ4\n")
    found = taken(store, tmp_path / "wiki.txt", keys=tmp_path / "keys.tsv")
    assert (list(found.ids), found.vectors.tolist()) == (["Q1", "Q2", "Q4"], [[1, 2], [3, 4], [5, 6]])


def test_words_that_are_spelt_as_an_id(store, tmp_path):
    """Next to titles they are words; other keys that a file names mean what it says."""
    (tmp_path / "wiki.txt").write_text("4 2\nQ1 9 9\nENTITY/Q1 1 2\nQ2 8 8\nmother 5 6\n")
    found = taken(store, tmp_path / "wiki.txt")
    assert (list(found.ids), found.vectors.tolist()) == (["Q1"], [[1, 2]])
    (tmp_path / "keys.tsv").write_text("mother\tQ4\n")
    found = taken(store, tmp_path / "wiki.txt", keys=tmp_path / "keys.tsv")
    assert (list(found.ids), found.vectors.tolist()) == (["Q1", "Q4"], [[1, 2], [5, 6]])
    (tmp_path / "plain.txt").write_text("2 2\nQ1 9 9\nQ2 8 8\n")
    assert list(taken(store, tmp_path / "plain.txt").ids) == ["Q1", "Q2"]


@pytest.mark.parametrize(
    ("write", "name", "edit", "message"),
    [
        (thunlp, "entity2vec.vec", lambda b: b[:-20], r"entity2vec\.vec is damaged"),
        (thunlp, "entity2vec.vec", lambda b: b.split(b"\n", 1)[1], "has 3 lines for the 4 ids"),
        (thunlp, "entity2vec.vec", lambda b: b.replace(b"0.5", b"x"), "line 2: could not convert"),
        (thunlp, "entity2vec.vec", lambda b: b.replace(b"0.5", b"nan"), "of 'Q1' .* not finite"),
        (thunlp, "entity2id.txt", lambda b: b.replace(b"4", b"5", 1), "says 5 ids, 4 follow"),
        (thunlp, "entity2id.txt", lambda b: b.replace(b"\t3", b"\t1"), "does not number its 4 ids"),
        (thunlp, "entity2id.txt", lambda b: b.replace(b"Q3", b"Q1"), "several vectors of 'Q1'"),
        (openke, "transe.json", lambda b: b[:-9], "it is no JSON"),
        (openke, "transe.json", lambda b: b.replace(b"ent_", b"other_"), "has no table ent_embeddings"),
        (openke, "transe.json", lambda b: b.replace(b"[[", b"[[7,", 1), "are no table of numbers"),
        (dgl_ke, "wiki_TransE_l2_entity.npy", lambda b: b[:-4], "it is no array"),
        (dgl_ke, "entities.tsv", lambda b: b.split(b"\n", 1)[1], "does not number its 3 ids"),
        (pbg, "entities.tsv", lambda b: b.replace(b"0.125\t", b""), "line 1 has 2 numbers|line 2 has 3 numbers"),
        (word2vec, "vectors.txt", lambda b: b.replace(b"4", b"5", 1), "says 5 rows, 4 follow"),
        (word2vec, "vectors.txt", lambda b: b.replace(b"Q2 ", b"Q2 1 "), "line 5 has 4 numbers, 3 expected"),
        (word2vec_binary, "vectors.bin", lambda b: b[:-3], "it ends in row 4 of 4"),
        (word2vec_binary, "vectors.bin", lambda b: b.replace(b"4", b"3", 1), "more follows than the 3 rows"),
    ],
)
def test_damage_is_reported_in_one_message(write, name, edit, message, store, tmp_path):
    place = write(tmp_path)
    (tmp_path / name).write_bytes(edit((tmp_path / name).read_bytes()))
    with pytest.raises(WorkbenchError, match=message):
        taken(store, place)
    assert not (tmp_path / "v.safetensors").exists()


def test_what_cannot_be_taken_over(store, tmp_path):
    with pytest.raises(WorkbenchError, match="there is no file or folder"):
        taken(store, tmp_path / "nothing.txt")
    (tmp_path / "vectors.pkl").touch()
    with pytest.raises(WorkbenchError, match="a pickle, whose reading runs code"):
        taken(store, tmp_path / "vectors.pkl")
    (tmp_path / "notes.txt").write_text("some words\n")
    with pytest.raises(WorkbenchError, match=r"looks like no format .* word2vec-binary"):
        taken(store, tmp_path / "notes.txt")
    np.save(tmp_path / "table.npy", TABLE)
    with pytest.raises(WorkbenchError, match=r"says which entity a vector belongs to .*: --ids"):
        taken(store, tmp_path / "table.npy")
    (tmp_path / "names.txt").write_text(numbered(["a", "b", "c", "d"]))
    with pytest.raises(WorkbenchError, match=r"none of the vectors .* ids look like 'Q1'"):
        taken(store, tmp_path / "table.npy", ids=tmp_path / "names.txt")
