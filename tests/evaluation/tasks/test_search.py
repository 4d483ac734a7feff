"""Search: metrics against scikit-learn and counts, BM25 by hand, and vectors of several kinds of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

import workbench
from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, network, prepare, pretrain_on, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.text_search import best_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.search_options import SearchScoring
from workbench.evaluation.tasks.search import TextSearch, read_judgments
from workbench.metrics.bm25 import Bm25
from workbench.metrics.search_scores import random_order, search_scores
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain

DOCUMENTS = [
    {"_id": f"d{i}", "title": "" if i % 2 else "a title", "text": text}
    for i, text in enumerate(
        ["the red house is old .", "the blue boat is new .", "green boat", "old house", "a boat is lost"]
    )
]
QUERIES = [{"_id": "q1", "text": "old house"}, {"_id": "q2", "text": "the boat"}, {"_id": "q3", "text": "lost"}]
JUDGMENTS = "query-id\tcorpus-id\tscore\nq1\td0\t2\nq1\td3\t1\nq1\td2\t0\nq2\td1\t1\nq2\tgone\t1\nq4\td0\t1\n"


def texts(folder: Path) -> dict[str, Any]:
    """Documents, queries and judgments."""
    (folder / "judgments.tsv").write_text(JUDGMENTS, "utf-8")
    documents, queries = (
        prepare(folder, name, rows) for name, rows in (("documents", DOCUMENTS), ("queries", QUERIES))
    )
    return {"corpus": queries, "documents": documents, "judgments": folder / "judgments.tsv"}


def contrastive(folder: Path, objective: dict[str, Any], builder: dict[str, Any], model: dict[str, Any]) -> Path:
    made = make_texts(folder)
    tree = recipe_tree(made, model, [{"objective": "contrast", "learned": False, **objective}])
    tree["tasks"]["text"]["sequence"] = {"builder": "text_pair", "passages": "twice", "max_length": 16, **builder}
    return pretrain(recipe_from_dict(tree), folder / "runs" / "contrast")


def contract_world(folder: Path) -> World:
    made = make_texts(folder)
    tree = recipe_tree(made, {"one": network(8), "two": network(8)}, [{"objective": "mlm", "network": "one"}])
    tree["tasks"]["text"]["objectives"].append({"objective": "mlm", "name": "b", "network": "two", "view": "other"})
    without = pretrain(recipe_from_dict(tree), folder / "runs" / "several")
    given = texts(folder)
    return World(pretrain_on(made), given.pop("corpus"), without, given)


CASE = EvaluationCase(world=contract_world)


def scored(run: Path, folder: Path, **options: Any) -> Result:
    return evaluate(TextSearch(), SearchScoring(run=run, **texts(folder), **options), show=False)


def test_scores_are_those_of_scikit_learn_and_of_counting() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        names = [f"d{i}" for i in range(300)]
        grades = {names[i]: int(rng.integers(0, 4)) for i in rng.choice(300, 40, replace=False)}
        order = [names[i] for i in rng.permutation(300)]
        found = search_scores(order[:100], grades)
        ranks = [[-order.index(name) for name in names]]
        assert found["ndcg@10"] == pytest.approx(ndcg_score([[grades.get(n, 0) for n in names]], ranks, k=10))
        relevant = {name for name, grade in grades.items() if grade > 0}
        assert found["recall@100"] == pytest.approx(len(relevant & {*order[:100]}) / len(relevant))
        first = [place for place, name in enumerate(order[:10], 1) if name in relevant]
        assert found["mrr@10"] == pytest.approx(1 / first[0] if first else 0)


def test_chance_is_the_mean_of_random_orders() -> None:
    rng, grades, names = np.random.default_rng(0), {"d1": 2, "d5": 1, "d7": 1, "d8": 0}, [f"d{i}" for i in range(30)]
    drawn = [search_scores([names[i] for i in rng.permutation(30)], grades) for _ in range(4000)]
    for name, value in random_order(grades, grades.keys(), 30).items():
        assert value == pytest.approx(float(np.mean([row[name] for row in drawn])), abs=0.015)
    grades |= {"gone": 2}
    drawn = [search_scores([names[i] for i in rng.permutation(30)], grades) for _ in range(4000)]
    for name, value in random_order(grades, grades.keys() & {*names}, 30).items():
        assert value == pytest.approx(float(np.mean([row[name] for row in drawn])), abs=0.015)


def test_bm25_by_hand() -> None:
    documents = ["A boat, a red boat", "the house", "boat house by the old river"]
    found = Bm25(documents).scores("old boat boat none")
    lengths, mean = [5, 2, 6], 13 / 3
    idf = {"old": math.log(1 + 2.5 / 1.5), "boat": math.log(1 + 1.5 / 2.5)}
    for number, counts in enumerate([{"boat": 2}, {}, {"boat": 1, "old": 1}]):
        norm = 0.9 * (1 - 0.4 + 0.4 * lengths[number] / mean)
        times = {"old": 1, "boat": 2}
        wanted = sum(times[w] * idf[w] * f * 1.9 / (f + norm) for w, f in counts.items())
        assert found[number] == pytest.approx(wanted)


def test_equal_scores_keep_their_order() -> None:
    best, scores = best_of(np.array([0.5, 1.0, 0.5 + 1e-9, 0.2], np.float32), 3)
    assert best.tolist() == [1, 0, 2]
    assert scores.tolist() == [1.0, 0.5, 0.5]
    rng = np.random.default_rng(0)
    for _ in range(50):
        tied = rng.integers(0, 3, 40).astype(np.float32)
        assert best_of(tied, 7)[0].tolist() == np.argsort(-tied, kind="stable")[:7].tolist()


def test_the_order_is_that_of_the_vectors_of_encode(tmp_path: Path) -> None:
    run = pretrain_on(make_texts(tmp_path))
    found = scored(run, tmp_path, batch_size=2)
    model = workbench.load(run)
    shown = [" ".join(filter(None, (d["title"], d["text"]))) for d in DOCUMENTS]
    documents, queries = model.encode(shown), model.encode([q["text"] for q in QUERIES])
    cosines = queries @ documents.T / np.linalg.norm(documents, axis=1)
    order = [[f"d{i}" for i in np.argsort(-row)] for row in cosines[:2]]
    assert [line["prediction"] for line in found.predictions] == order
    assert found.counts == {
        "queries": 2,
        "documents": 5,
        "queries without a relevant document": 1,
        "judged documents that are not there": 1,
    }
    assert found["recall@100"] == pytest.approx((1 + 0.5) / 2)
    assert found.baselines["BM25"]["mrr@10"] == 1.0
    assert found.predictions[0]["gold"] == [["d0", 2], ["d3", 1]]


def test_prefixes_and_a_second_encoder(tmp_path: Path) -> None:
    """DPR's passages are read by the other stream; E5's prefixes are those of training."""
    one = network(16)
    layer = one["layers"][0]
    two = {**one, "streams": {"text": one["streams"]["text"], "passage": one["streams"]["text"]}}
    two["layers"] = [layer, {**layer, "stream": "passage"}]
    builder = {"stream": "passage", "query_prefix": "red ", "passage_prefix": "blue "}
    run = contrastive(tmp_path, {"passage": "passage", "cosine": False}, builder, two)
    found = scored(run, tmp_path)
    model = workbench.load(run)
    shown = [" ".join(filter(None, ("blue " + d["title"], d["text"]))).replace("  ", " ") for d in DOCUMENTS]
    documents = model.encode(shown, "contrast", stream="passage")
    queries = model.encode(["red " + query["text"] for query in QUERIES], "contrast")
    assert not np.allclose(model.encode(shown[0], "contrast", stream="text"), documents[0])
    order = [[f"d{i}" for i in np.argsort(-row)] for row in (queries @ documents.T)[:2]]
    assert [line["prediction"] for line in found.predictions] == order
    other = scored(run, tmp_path, query_prefix="", document_prefix="")
    assert other.predictions[0]["scores"] != found.predictions[0]["scores"]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trec.txt").write_text("q1 0 d1 1\nq1 0 d2 -1\n")
    assert read_judgments(tmp_path / "trec.txt") == {"q1": {"d1": 1, "d2": -1}}
    (tmp_path / "bad.tsv").write_text("q1\td1\tyes\n")
    with pytest.raises(WorkbenchError, match=r"bad.tsv, line 1: .* allowed: QUERY DOCUMENT GRADE"):
        read_judgments(tmp_path / "bad.tsv")
    for line in ("q1 1", "q1 0 d1 extra 1"):
        (tmp_path / "bad.tsv").write_text(line)
        with pytest.raises(WorkbenchError, match=r"line 1: .* allowed: QUERY DOCUMENT GRADE"):
            read_judgments(tmp_path / "bad.tsv")
    (tmp_path / "marked.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", "utf-8-sig")
    assert read_judgments(tmp_path / "marked.tsv") == {"q1": {"d1": 1}}
    with pytest.raises(WorkbenchError, match="cannot be read"):
        read_judgments(tmp_path / "none.tsv")
