"""Two graphs whose ids are written alike: links, vectors and recipes don't take the entities of one for the other's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kg.graph.space import namespace_of
from kg.graph.store import GraphStore
from kg.linking.linker import Linker
from kg.sequences.transforms.sentence_tree import SentenceTreeTransform
from kg.vectors.options import ImportOptions
from kg.vectors.pretrained_vectors import import_vectors
from kg.vectors.vectors import load_vectors
from pipelines.commands.corpora.text import text
from pipelines.commands.corpora.triples import triples
from pipelines.commands.knowledge.link import link
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command
from workbench.corpora.corpus import Corpus
from workbench.pretraining.checks import _check_known
from workbench.sequences.entities import spaces_in


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Graphs `ga` (places) and `gb` (waters) with the ids 1, 2, 3, and texts."""
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("Paris lies on the Seine in France.\n\nThe Rhine is a river.\n")
    command(text)(inputs=["notes.txt"], output=Path("texts"), workers=1)
    for name, labels in {"ga": ["Paris", "France", "Rhine"], "gb": ["Seine", "Rhine river", "water"]}.items():
        Path(f"{name}.tsv").write_text("1\tr\t2\n2\tr\t3\n")
        rows = [{"id": str(i), "label": label} for i, label in enumerate(labels, 1)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        command(triples)(inputs=[f"{name}.tsv"], entities=[f"{name}.jsonl"], output=Path(name), workers=1)
    return tmp_path


def tree(graph):
    class Branches:
        pass

    step = SentenceTreeTransform.__new__(SentenceTreeTransform)
    step.branches = Branches()
    step.branches.graph = GraphStore.open(graph)
    return step


def test_the_links_note_their_graph_and_another_is_refused(files):
    command(link)(corpus=Path("texts"), graph=Path("ga"), output=Path("linked").absolute(), workers=1)
    linked = Corpus.open("linked")
    assert spaces_in(linked.manifest.about) == [GraphStore.open("ga").space]
    assert GraphStore.open("ga").space.name == "ga"
    _check_known([tree("ga")], [linked])
    with pytest.raises(WorkbenchError, match=r"linked is linked to the graph ga, and gb/graph is of the graph gb; "):
        _check_known([tree("gb")], [linked])


def test_links_of_another_graph_next_to(files):
    command(link)(corpus=Path("texts"), graph=Path("ga"), output=Path("linked").absolute(), workers=1)
    with pytest.raises(WorkbenchError, match="linked to the graph ga, the linker's graph is gb; the id '1' is in both"):
        command(link)(
            corpus=Path("linked").absolute(), graph=Path("gb"), alongside=True, output=Path("both"), workers=1
        )
    Path("gc.tsv").write_text("Seine\tr\triver\n")
    command(triples)(inputs=["gc.tsv"], output=Path("gc"), workers=1)
    command(link)(corpus=Path("linked").absolute(), graph=Path("gc"), alongside=True, output=Path("three"), workers=1)
    found = Corpus.open("three")
    assert [space.name for space in spaces_in(found.manifest.about)] == ["ga", "gc"]
    _check_known([tree("ga")], [found])
    _check_known([tree("gc")], [found])
    command(link)(corpus=Path("linked").absolute(), graph=Path("gb"), output=Path("again"), workers=1)
    assert [space.name for space in spaces_in(Corpus.open("again").manifest.about)] == ["gb"]


def test_one_namespace_for_both(files):
    """Whoever says that the ids mean the same is believed."""
    for name in ("ga", "gb"):
        places = {"inputs": [f"{name}.tsv"], "entities": [f"{name}.jsonl"], "output": Path(f"own-{name}")}
        command(triples)(**places, namespace="own", workers=1)
    command(link)(corpus=Path("texts"), graph=Path("own-ga"), output=Path("linked").absolute(), workers=1)
    _check_known([tree("own-gb")], [Corpus.open("linked")])
    command(link)(
        corpus=Path("linked").absolute(), graph=Path("own-gb"), alongside=True, output=Path("both"), workers=1
    )
    assert len(spaces_in(Corpus.open("both").manifest.about)) == 2
    assert str(GraphStore.open("own-gb").space) == "own-gb (namespace own)"


def test_a_corpus_of_before_is_taken(files, caplog):
    command(link)(corpus=Path("texts"), graph=Path("ga"), output=Path("linked").absolute(), workers=1)
    linked = Corpus.open("linked")
    linked.manifest.about.pop("graphs")
    with caplog.at_level("INFO"):
        _check_known([tree("gb")], [linked])
    assert "linked does not report the graph of its entity ids" in caplog.text


def test_vectors_and_linkers_keep_whose_entities_they_are_of(files):
    Path("v.txt").write_text("3 2\n1 0.1 0.2\n2 0.1 0.3\n3 0.5 0.2\n")
    store = GraphStore.open("ga")
    import_vectors(store, Path("v.txt"), Path("v.safetensors"), ImportOptions())
    assert load_vectors("v.safetensors").space.same(store.space)
    assert not load_vectors("v.safetensors").space.same(GraphStore.open("gb").space)
    Linker.from_store(store).save("linker")
    assert Linker.load("linker").space == store.space


@pytest.mark.parametrize(
    ("ids", "words", "namespace"),
    [
        (["Q1", "Q42", "P31"], False, "wikidata"),
        (["m.0abc", "g.11b"], False, "freebase"),
        (["http://dbpedia.org/resource/Oslo"], False, "web"),
        (["/c/en/cat", "/c/de/katze"], False, "conceptnet"),
        (["cat", "Hund", "人"], True, "words"),
        (["cat", "dog"], False, ""),
        (["1", "2"], True, ""),
        ([], True, ""),
    ],
)
def test_namespaces(ids, words, namespace):
    assert namespace_of(ids, words) == namespace
