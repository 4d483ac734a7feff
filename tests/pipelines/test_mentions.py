"""`prepare mentions`, and runs that rank the candidates of mentions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench
from kg.graph.store import GraphStore
from kg.linking.marked_mentions import marked
from pipelines.commands.knowledge.link import link
from pipelines.commands.knowledge.mentions import mentions
from pipelines.preparing.chunks import Chunk
from pipelines.preparing.mentions import MentionReader
from tests.evaluation.conftest import command, make_texts, network, prepare, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ChooseScoring
from workbench.evaluation.tasks.choose import MultipleChoiceTask
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain

RECORDS: list[dict[str, Any]] = [
    {"id": "boat", "label": "Red", "description": "a boat", "triples": [{"relation": "near", "tail": "house"}]},
    {"id": "house", "label": "Red", "description": "the old house", "triples": []},
    {"id": "lake", "label": "Blue", "triples": []},
]
TEXT = "the boat Red is new and Blue is old ."


@pytest.fixture
def blink(tmp_path: Path) -> Path:
    """A bi-encoder of few steps."""
    folder = make_texts(tmp_path / "blink")
    rows = [{"text": "the red house", "choices": ["a boat", "the house is old ."], "answer": 1}] * 4
    tree = recipe_tree(folder, network(16), [{"objective": "contrast", "hard": 1, "pool": "mean"}])
    tree["tasks"]["text"] |= {
        "corpora": [prepare(tmp_path, "choices-of-blink", rows)],
        "sequence": {"builder": "text_pair", "passages": "choices", "hard": 1, "max_length": 12},
    }
    return pretrain(recipe_from_dict(tree), tmp_path / "blink" / "run")


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Path]:
    """Texts whose first mention has two candidates, and whose second has one."""
    graph = tmp_path / "graph"
    GraphStore.from_records(RECORDS, graph)
    spans = [[9, 12, "house", 1.0], [24, 28, "lake", 1.0]]
    texts = prepare(
        tmp_path, "texts", [{"text": TEXT, "spans": spans}, {"text": TEXT, "spans": [[9, 12, "nobody", 1.0]]}]
    )
    command(link)(
        corpus=texts, graph=graph, candidates=5, supervise=True, output=tmp_path / "links", workers=1, context=False
    )
    return tmp_path / "links", graph


def test_a_mention_is_a_question_and_its_candidates_are_choices(linked: tuple[Path, Path], tmp_path: Path) -> None:
    links, graph = linked
    command(mentions)(corpus=links, graph=graph, output=tmp_path / "out", context=12, workers=1)
    out = Corpus.open(tmp_path / "out")
    (record,) = out
    assert record["text"] == "the boat # Red # is new and"
    assert record["choices"] == ["Red: a boat", "Red: the old house"], "the linker's order"
    assert record["answer"] == 1
    assert record["meta"]["entities"] == ["boat", "house"]
    assert any("single candidate" in reason for reason in out.manifest.dropped)


def test_texts_without_candidates_are_refused(tmp_path: Path) -> None:
    GraphStore.from_records(RECORDS, tmp_path / "graph")
    texts = prepare(tmp_path, "texts", [{"text": TEXT}])
    with pytest.raises(WorkbenchError, match="has no links"):
        command(mentions)(corpus=texts, graph=tmp_path / "graph", output=tmp_path / "out", workers=1)
    linked = prepare(tmp_path, "linked", [{"text": TEXT, "spans": [[9, 12, "boat", 1.0]]}])
    with pytest.raises(WorkbenchError, match="links without candidates"):
        command(mentions)(corpus=linked, graph=tmp_path / "graph", output=tmp_path / "out", workers=1)


def test_a_bi_encoder_chooses_by_its_vectors(tmp_path: Path) -> None:
    """The scores are the products of the vectors that `encode` writes."""
    folder = make_texts(tmp_path)
    rows = [
        {"text": "the red house", "choices": ["a boat", "the house is old .", "it is lost ."], "answer": 1},
        {"text": "the blue boat", "choices": ["the boat is new .", "green"], "answer": 0},
    ]
    corpus = prepare(tmp_path, "choices", rows)
    tree = recipe_tree(folder, network(16), [{"objective": "contrast", "hard": 1, "pool": "mean"}])
    tree["tasks"]["text"] |= {
        "corpora": [corpus],
        "sequence": {"builder": "text_pair", "passages": "choices", "hard": 1, "max_length": 12},
    }
    run = pretrain(recipe_from_dict(tree), tmp_path / "run")
    found = evaluate(MultipleChoiceTask(), ChooseScoring(run=run, corpus=corpus))
    model = workbench.load(run)
    right = []
    for row in rows:
        asked, read = model.encode([row["text"]], pool="contrast"), model.encode(row["choices"], pool="contrast")
        right.append(int((asked @ read.T)[0].argmax()) == row["answer"])
    assert found.numbers["accuracy"] == sum(right) / 2
    assert found.counts == {"questions": 2, "choices": 5}
    assert found.baselines["always the first"]["accuracy"] == 0.5


def test_a_worker_receives_every_mention_of_a_text(linked: tuple[Path, Path], tmp_path: Path) -> None:
    """A chunk is sent as places, and no place begins with the second mention."""
    links, graph = linked
    reader = MentionReader(str(graph), 10, 64, "#")
    records = list(reader.records([links]))
    assert len(records) > 2
    received = Chunk(0, records).to_send().received(reader).records
    assert [record.data for record in received] == [record.data for record in records]


def test_links_are_ordered_by_a_bi_encoder(blink: Path, tmp_path: Path) -> None:
    """The best one is the entity whose description has the greatest product with the marked mention."""
    GraphStore.from_records(RECORDS, tmp_path / "graph")
    texts = prepare(tmp_path, "texts", [{"text": TEXT}, {"text": "nothing is named here"}])
    how = {"corpus": texts, "graph": tmp_path / "graph", "workers": 1, "context": False}
    command(link)(**how, candidates=5, output=tmp_path / "links")
    command(link)(**how, candidates=5, ranked_by=blink, output=tmp_path / "ranked")
    command(link)(**how, ranked_by=blink, output=tmp_path / "best")
    before, ranked, best = (Corpus.open(tmp_path / name) for name in ("links", "ranked", "best"))
    model = workbench.load(blink)
    asked = model.encode([marked(TEXT, 9, 12)], pool="contrast")
    entities = {"boat": "Red: a boat", "house": "Red: the old house"}
    products = dict(zip(entities, (asked @ model.encode([*entities.values()], pool="contrast").T)[0], strict=True))
    order = sorted(entities, key=lambda entity: -products[entity])
    (first, *_), (was, *_), (one, *_) = ranked, before, best
    assert [link[2] for link in first["spans"] if link[0] == 9] == order
    assert [link[3] for link in first["spans"]] == [link[3] for link in was["spans"]], "the linker's scores"
    assert [link[2] for link in one["spans"]] == [order[0], "lake"]
    assert one["meta"]["linker"] == best.manifest.about["linker"]
    assert one["meta"]["linker"]["candidates"] == 1
    assert "run" in one["meta"]["linker"]["ranked_by"]


def test_a_run_that_compares_nothing_ranks_nothing(tmp_path: Path) -> None:
    GraphStore.from_records(RECORDS, tmp_path / "graph")
    texts = prepare(tmp_path, "texts", [{"text": TEXT}])
    plain = pretrain(
        recipe_from_dict(recipe_tree(make_texts(tmp_path / "plain"), network(8), [{"objective": "mlm"}])),
        tmp_path / "plain" / "run",
    )
    how = {"corpus": texts, "output": tmp_path / "out", "workers": 1}
    with pytest.raises(WorkbenchError, match=r"has no objective that compares texts with passages; .*pretrain blink"):
        command(link)(**how, graph=tmp_path / "graph", ranked_by=plain)
    with pytest.raises(WorkbenchError, match=r"--ranked-by .* give --graph"):
        command(link)(**how, graph=tmp_path / "graph", ranked_by=plain, keep=True)
