"""Benchmarks with few training texts: which texts are read where, and how pairs of designs are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks import annotated_names, few_shot_ner, linked_relations
from benchmarks.few_shot_ner import GRAPH, STUDY, UNANNOTATED
from benchmarks.few_shot_tables import Study, gain, place, publish
from workbench.components.controls import CONTROLS as KNOWN
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.metrics.tallies import Tally


def test_no_sentence_is_in_two_parts_and_few_sentences_have_all_tags(tmp_path: Path) -> None:
    folder = tmp_path / "medical_ner"
    folder.mkdir()
    for name, numbers in (("train", [*range(700), 3, 5]), ("dev", [*range(650, 760), 755])):
        rows = [f"词 {number}\tO O" for number in numbers]
        (folder / f"{name}.tsv").write_text("\n".join(["text_a\tlabel", *rows]) + "\n", encoding="utf-8")
    parts = {name: [row["text_a"] for row in rows] for name, rows in few_shot_ner.parts(tmp_path).items()}
    assert {name: len(rows) for name, rows in parts.items()} == {"test": 60, "dev": 500, "train": 200}
    assert len({text for rows in parts.values() for text in rows}) == 760
    train = few_shot_ner.parts(tmp_path)["train"]
    train = [{**row, "label": "B-rare I-rare" if number % 20 == 0 else "O B-usual"} for number, row in enumerate(train)]
    for seed in range(6):
        drawn = few_shot_ner.few(train, 5, seed)
        assert {row["label"] for row in drawn} == {"B-rare I-rare", "O B-usual"}
        assert drawn == few_shot_ner.few(train, 5, seed) != few_shot_ner.few(train, 5, seed + 1)
    with pytest.raises(ValueError, match="no draw of 1 sentences has all of the tags rare, usual"):
        few_shot_ner.few(train, 1, 0)


def written(run: Path, right: np.ndarray) -> None:
    """A tested run that found so many of two entities of each sentence."""
    (run / "evaluations").mkdir(parents=True)
    tally = Tally.of("f1", right, np.full(len(right), 2), np.full(len(right), 2))
    items = EvaluationItems([{"key": f"k{i}", "gold": 2, "prediction": 2} for i in range(len(right))], {"f1": tally})
    items.write(run / "evaluations" / "tag-test.jsonl")
    result = {"task": "tag", "numbers": {"f1": tally.whole}, "control": None}
    (run / "evaluations" / "tag-test.json").write_text(json.dumps(result))


def test_pairs_are_compared_by_seed_and_what_is_there_is_reported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    for control in STUDY.designs:
        for seed in range(3):
            right = rng.binomial(2, 0.8 if control == GRAPH else 0.5, 60)
            written(place(200, control, seed, tmp_path), right)
            found.setdefault(control, []).append(right.mean() / 2)
    reported = gain(STUDY, 200, (GRAPH, "no-kg"), 3, tmp_path, "test")
    assert reported is not None
    assert (reported.first, reported.second, reported.items) == (GRAPH, "no-kg", 60)
    paired = stats.ttest_rel(found[GRAPH], found["no-kg"])
    interval = paired.confidence_interval()
    assert (reported.spread.low, reported.spread.high) == pytest.approx((interval.low, interval.high))
    assert reported.together.difference == pytest.approx(reported.spread.mean)
    assert reported.together.low < reported.spread.mean < reported.together.high
    assert gain(STUDY, 50, (GRAPH, "no-kg"), 3, tmp_path, "test") is None
    publish(STUDY, [50, 200], 3, tmp_path)
    assert f"{np.mean(found[GRAPH]):.3f} ± {np.std(found[GRAPH], ddof=1):.3f}" in (tmp_path / "results.md").read_text()
    assert len(json.loads((tmp_path / "results.json").read_text())["test"]["differences"]) == len(STUDY.steps)
    assert {"figure.svg", "figure.png"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("study", "own"), [(STUDY, {GRAPH, UNANNOTATED}), (linked_relations.STUDY, {GRAPH, "exchanged", "tuned"})]
)
def test_its_controls_are_controls(study: Study, own: set[str]) -> None:
    assert {*study.designs} - own <= {*KNOWN}
    assert {design for pair in study.steps for design in pair} <= {*study.designs}


def linked_rows(count: int, relation: str, start: int) -> list[dict[str, Any]]:
    """Texts whose head the graph knows; every third head is another entity, which it does not know."""
    return [
        {"relation": relation, "tokens": [f"w{n}"], "head": {"id": f"Q{n}" if n % 3 else "X"}, "tail": {"id": "X"}}
        for n in range(start, start + count)
    ]


def test_linked_texts_are_in_one_part_and_known_to_the_graph(tmp_path: Path) -> None:
    (tmp_path / "fewrel").mkdir()
    (tmp_path / "codex/codex-m").mkdir(parents=True)
    train = [*linked_rows(90, "P1", 0), *linked_rows(60, "P2", 200), *linked_rows(9, "rare", 400)]
    dev = [*linked_rows(6, "P1", 87), *linked_rows(3, "rare", 500)]
    for name, rows in (("train", [*train, train[1]]), ("dev", dev)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"fewrel/wiki_{name}.jsonl").write_text(lines, encoding="utf-8")
    triples = "".join(f"Q{n}\tP9\tQ0\n" for n in range(1, 600))
    (tmp_path / "codex/codex-m/train.txt").write_text(triples, encoding="utf-8")
    parts = linked_relations.parts(tmp_path)
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 50, "test": 50, "dev": 2}
    texts = [row["tokens"][0] for rows in parts.values() for row in rows]
    assert len(set(texts)) == len(texts)
    assert {row["relation"] for rows in parts.values() for row in rows} == {"P1", "P2"}
    for seed in range(4):
        rows = linked_relations.drawn(parts["train"], 4, seed)
        assert {row["relation"] for row in rows} == {"P1", "P2"}
        assert rows == linked_relations.drawn(parts["train"], 4, seed)


def test_annotated_names_of_the_graph_are_counted() -> None:
    row = {"text_a": "左 肺 癌 伴 咳 嗽", "label": "B-part I-part B-ill O B-sign I-sign"}
    heads = {"左肺": "部位", "咳嗽": "症状", "癌伴": "疾病", "头痛": "症状"}
    assert [spelt for spelt, _ in annotated_names.entities(row)] == ["左肺", "癌", "咳嗽"]
    assert list(annotated_names.longest(row, heads, {"部位": "part"})) == [(0, 2, "part"), (2, 4, ""), (4, 6, "")]
    table = annotated_names.alone([row], [row], heads)
    assert table[1][1:] == ["0.667", "0.667", "0.667"]
    assert annotated_names.by_class({"左肺", "癌"}, heads)[1:] == [
        *(["部位", "1", "1"], ["症状", "2", "0"], ["疾病", "1", "0"])
    ]
