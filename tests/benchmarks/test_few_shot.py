"""The result of the README: which sentences are read where, and how its pairs are compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import few_shot_ner
from benchmarks.few_shot_tables import CONTROLS, GRAPH, gain, place, publish
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


def test_pairs_are_compared_by_seed_and_what_is_there_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    for control in CONTROLS:
        for seed in range(3):
            right = rng.binomial(2, 0.8 if control == GRAPH else 0.5, 60)
            written(place(200, control, seed, tmp_path), right)
            found.setdefault(control, []).append(right.mean() / 2)
    reported = gain(200, "no-kg", GRAPH, 3, tmp_path)
    assert reported is not None
    assert (reported.first, reported.second, reported.items) == (GRAPH, "no-kg", 60)
    paired = stats.ttest_rel(found["no-kg"], found[GRAPH])
    interval = paired.confidence_interval()
    assert reported.p == pytest.approx(paired.pvalue)
    assert (reported.spread.low, reported.spread.high) == pytest.approx((interval.low, interval.high))
    assert reported.bootstrap[0] < reported.spread.mean < reported.bootstrap[1] < 0
    assert gain(50, "no-kg", GRAPH, 3, tmp_path) is None
    publish([50, 200], 3, tmp_path)
    assert f"{np.mean(found[GRAPH]):.3f} ± {np.std(found[GRAPH], ddof=1):.3f}" in (tmp_path / "results.md").read_text()
    assert len(json.loads((tmp_path / "results.json").read_text())["differences"]) == 4
    assert {"figure.svg", "figure.png"} <= {path.name for path in tmp_path.iterdir()}


def test_its_controls_are_controls() -> None:
    assert {*CONTROLS} - {GRAPH} <= {*KNOWN}
