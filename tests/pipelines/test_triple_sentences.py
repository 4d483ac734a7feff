"""`prepare sentences`: the triples of a graph as texts in which their entities are linked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.commands.corpora.triples import triples
from pipelines.commands.knowledge.sentences import sentences
from tests.evaluation.conftest import command, prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

TRIPLES = "oslo\tin\tnorway\noslo\tnear\tlima\noslo\tin\tnowhere\nlima\tin\tperu\nnowhere\tin\tperu\n"
LABELS = {"nowhere": "", "oslo": "Oslo", "norway": "Norway", "lima": "Lima", "peru": "Peru"}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    (tmp_path / "graph.tsv").write_text(TRIPLES)
    lines = [json.dumps({"id": each, "label": label}) for each, label in LABELS.items() if label]
    (tmp_path / "entities.jsonl").write_text("\n".join(lines))
    place = tmp_path / "graph"
    inputs = {"inputs": [str(tmp_path / "graph.tsv")], "entities": [str(tmp_path / "entities.jsonl")]}
    command(triples)(**inputs, output=place, workers=1)
    return place


def written(graph: Path, output: Path, **options: object) -> tuple[dict[str, str], Corpus]:
    command(sentences)(graph=graph, output=output, workers=1, **options)
    corpus = Corpus.open(output)
    for record in corpus:
        names = [(record["text"][start:end], LABELS[entity]) for start, end, entity, _ in record["spans"]]
        assert all(text == label != "" for text, label in names), names
    return {record["key"]: record["text"] for record in corpus}, corpus


def test_triples_are_listed_by_entity(graph: Path, tmp_path: Path) -> None:
    texts, corpus = written(graph, tmp_path / "all")
    assert sorted(texts.values()) == ["Lima in Peru.", "Oslo in Norway, near Lima."]
    assert corpus.manifest.dropped == {
        "TripleSentenceReader: entity without a label": 1,
        "TripleSentenceReader: triple whose tail has no label": 1,
    }
    assert corpus.manifest.about["graphs"], "whose entities the links are"
    assert next(iter(corpus))["meta"]["triples"][0][1] == "in"


def test_most_bounds_the_triples_of_a_text(graph: Path, tmp_path: Path) -> None:
    texts, _ = written(graph, tmp_path / "single", most=1)
    assert sorted(texts.values()) == ["Lima in Peru.", "Oslo in Norway.", "Oslo near Lima."]


def test_templates_make_sentences(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "templates.tsv").write_text("in\tIn [Y] lies [X] .\n")
    texts, corpus = written(graph, tmp_path / "said", templates=tmp_path / "templates.tsv")
    assert sorted(texts.values()) == ["In Norway lies Oslo .", "In Peru lies Lima ."]
    assert corpus.manifest.dropped["TripleSentenceReader: triple of a relation without a template"] == 1


def test_wrong_inputs_are_refused(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "templates.tsv").write_text("in\t[X] lies there .\n")
    with pytest.raises(WorkbenchError, match=r"has 0 times \[Y\]"):
        written(graph, tmp_path / "said", templates=tmp_path / "templates.tsv")
    texts = prepare(tmp_path, "texts", [{"text": "no graph"}])
    with pytest.raises(WorkbenchError, match=r"\(kind text\) has no triples; needed: a corpus of `prepare triples`"):
        written(Path(texts), tmp_path / "said")
