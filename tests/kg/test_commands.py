"""`prepare vectors` and `prepare graph`."""

from __future__ import annotations

import re

import pytest
import torch
import typer
from typer.testing import CliRunner

from kg.graph.store import GraphStore
from kg.vectors.vectors import load_vectors
from pipelines.commands.knowledge.graphs import graph
from pipelines.commands.knowledge.vectors import read_triples, vectors
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command


@pytest.fixture
def corpus(tmp_path):
    triples = [(f"Q{i}", "P1", f"Q{(i + 1) % 9}") for i in range(9)]
    GraphStore.build(
        triples,
        tmp_path / "corpus" / "graph",
        entity_texts=[{"id": "Q0", "label": "Zero", "description": "the first", "aliases": ["Nil"]}],
        relation_labels={"P1": "next"},
    )
    return tmp_path / "corpus"


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(command(vectors))
    app.command()(command(graph))

    def run(*arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False, env={"COLUMNS": "160"})

    return run


def test_vectors(corpus, invoke, tmp_path):
    pytest.importorskip("pykeen")
    held_out = tmp_path / "valid.txt"
    held_out.write_text("Q0\tP1\tQ2\nQ1\tP1\tQ3\n")
    output = tmp_path / "v.safetensors"
    found = invoke("vectors", corpus, "-o", output, "--dim", 4, "--epochs", 2, "--held-out", held_out)
    assert found.exit_code == 0
    assert "MRR" in found.output
    assert load_vectors(output).vectors.shape == (9, 4)
    assert load_vectors(output).provenance["link_prediction"]["both"]["examples"] == 4


def test_known_triples_filter_the_ranks(corpus, invoke, tmp_path):
    """With every other triple of a question known, the right entity has no rival."""
    pytest.importorskip("pykeen")
    held_out, known = tmp_path / "valid.txt", tmp_path / "test.txt"
    held_out.write_text("Q0\tP1\tQ2\n")
    known.write_text("".join(f"Q0\tP1\tQ{i}\nQ{i}\tP1\tQ2\n" for i in range(9)))
    options = ("--dim", 4, "--epochs", 1, "--held-out", held_out)
    for name, more in (("plain", ()), ("filtered", ("--known", known))):
        invoke("vectors", corpus, "-o", tmp_path / f"{name}.safetensors", *options, *more)
    found = [load_vectors(tmp_path / f"{n}.safetensors").provenance["link_prediction"] for n in ("plain", "filtered")]
    assert [f["both"]["mrr"] == 1.0 for f in found] == [False, True]


def test_several_seeds_in_one_table(corpus, invoke, tmp_path):
    pytest.importorskip("pykeen")
    tested, output = tmp_path / "test.txt", tmp_path / "v.safetensors"
    tested.write_text("Q0\tP1\tQ2\nQ1\tP1\tQ3\n")
    options = ("--dim", 4, "--epochs", 2, "--held-out", tested)
    shown = invoke("vectors", corpus, "-o", output, *options, "--seed", 3, "--seeds", 3).output
    assert "deviation of 3 seeds" in shown
    made = load_vectors(output)
    assert list(made.provenance["seeds"]) == ["3", "4", "5"]
    assert made.provenance["link_prediction"] == made.provenance["seeds"]["3"]
    mrr = torch.tensor([found["both"]["mrr"] for found in made.provenance["seeds"].values()])
    assert f"{mrr.mean():.3f} ± {mrr.std():.3f}" in shown
    invoke("vectors", corpus, "-o", tmp_path / "alone.safetensors", *options, "--seed", 5)
    alone = load_vectors(tmp_path / "alone.safetensors").provenance["link_prediction"]
    assert alone == made.provenance["seeds"]["5"], "a seed ranks as it does alone"
    with pytest.raises(WorkbenchError, match="give triples to rank"):
        invoke("vectors", corpus, "-o", output, "--seeds", 2)


def test_training_ends_by_the_valid_part(corpus, invoke, tmp_path):
    pytest.importorskip("pykeen")
    valid, output = tmp_path / "valid.txt", tmp_path / "v.safetensors"
    valid.write_text("Q0\tP1\tQ2\n")
    invoke("vectors", corpus, "-o", output, "--dim", 4, "--epochs", 40, "--valid", valid, "--check-every", 2)
    assert load_vectors(output).provenance["best"]["epoch"] % 2 == 0


def test_vectors_are_there_when_ranking_is_interrupted(corpus, invoke, tmp_path, monkeypatch):
    pytest.importorskip("pykeen")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("kg.vectors.training.rank", interrupted)
    (tmp_path / "valid.txt").write_text("Q0\tP1\tQ2\n")
    output = tmp_path / "v.safetensors"
    invoke("vectors", corpus, "-o", output, "--dim", 4, "--epochs", 1, "--held-out", tmp_path / "valid.txt")
    assert load_vectors(output).vectors.shape == (9, 4)


def test_vectors_of_the_shuffled_graph(corpus, invoke, tmp_path):
    pytest.importorskip("pykeen")
    for number, flags in enumerate(([], ["--shuffled"], ["--permuted"])):
        invoke("vectors", corpus, "-o", tmp_path / f"{number}.safetensors", "--dim", 4, "--epochs", 1, *flags)
    plain, *false = (load_vectors(tmp_path / f"{number}.safetensors") for number in range(3))
    assert [found.control for found in (plain, *false)] == [None, "shuffled-kg", "permuted-kg"]
    assert false[0].provenance["graph"]["true_share"] == 0
    for found in false:
        assert {"guessed", "majority"} == found.provenance["graph"]["true_tails"].keys()
        assert list(plain.ids) == list(found.ids)
        assert not torch.equal(plain.vectors, found.vectors)
    with pytest.raises(WorkbenchError, match="give one of the two"):
        invoke("vectors", corpus, "-o", tmp_path / "3.safetensors", "--shuffled", "--permuted")


def test_vectors_from_elsewhere(corpus, invoke, tmp_path, caplog):
    caplog.set_level("INFO")
    source, output = tmp_path / "given.txt", tmp_path / "v.safetensors"
    source.write_text("2 3\nQ0 1 2 3\nQ5 4 5 6\n")
    invoke("vectors", corpus, "--from", source, "-o", output)
    assert load_vectors(output).vectors.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert "size 3 of 2 entities (7 of the graph have none) and 0 relations (1 have none)" in caplog.text
    with pytest.raises(WorkbenchError, match="remove the options of training"):
        invoke("vectors", corpus, "--from", source, "-o", output, "--dim", 4)
    with pytest.raises(WorkbenchError, match="need --from"):
        invoke("vectors", corpus, "-o", output, "--keys", source)


def test_graph(corpus, invoke):
    assert re.search(r"triples +│ 9", invoke("graph", corpus).output)
    shown = invoke("graph", corpus / "graph", "Q0").output
    for part in ("Zero (Q0)", "the first; Nil", "next", "Q8"):
        assert part in shown
    with pytest.raises(WorkbenchError, match="no entity 'Q77'"):
        invoke("graph", corpus, "Q77")


def test_hubs_are_cut(invoke, tmp_path):
    GraphStore.build([("hub", "r", f"t{i}") for i in range(50)], tmp_path / "graph")
    shown = invoke("graph", tmp_path, "hub", "--limit", 3).output
    assert "47 more" in shown
    assert "t2" in shown
    assert "t3" not in shown


def test_wrong_triples(tmp_path):
    (tmp_path / "bad.txt").write_text("a\tb\tc\na b c\n")
    with pytest.raises(WorkbenchError, match=r"bad\.txt, line 2: found 1 columns"):
        list(read_triples(tmp_path / "bad.txt"))
    with pytest.raises(WorkbenchError, match="no file"):
        list(read_triples(tmp_path / "nothing.txt"))
    (tmp_path / "bad.txt").write_bytes(b"a\tb\tc\na\tb\t\xe9\n")
    with pytest.raises(WorkbenchError, match=r"bad\.txt, line 2: not valid UTF-8"):
        list(read_triples(tmp_path / "bad.txt"))


@pytest.mark.parametrize("command", ["vectors", "graph"])
def test_help_has_examples(invoke, command):
    assert f"workbench prepare {command}" in invoke(command, "--help").output


def test_degrees(corpus, invoke, tmp_path):
    GraphStore.build([("a", "r", "b"), ("a", "r", "c"), ("b", "q", "a")], tmp_path / "g")
    shown = invoke("graph", tmp_path / "g", "--degrees", 2).output
    rows = [re.findall(r"[\w]+", line)[-5:] for line in shown.splitlines() if line.startswith("│")]
    assert rows == [["a", "a", "3", "2", "1"], ["b", "b", "2", "1", "1"]]
    assert "2 triples as head, 1 as tail" in " ".join(invoke("graph", tmp_path / "g", "a").output.split())
    with pytest.raises(WorkbenchError, match="--degrees counts the whole graph"):
        invoke("graph", tmp_path / "g", "a", "--degrees", 2)


def test_a_figure_by_command(corpus, invoke, tmp_path):
    assert invoke("graph", corpus, "Q0", "--hops", 2, "--draw", tmp_path / "q.svg").exit_code == 0
    assert "<svg" in (tmp_path / "q.svg").read_text()
    with pytest.raises(WorkbenchError, match="start from entities"):
        invoke("graph", corpus, "--draw", tmp_path / "all.svg")
