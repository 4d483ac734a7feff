"""Whether a model uses the photograph: what is exchanged, and how runs with and without it are compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import image_evidence
from benchmarks.image_evidence import ARMS, FOLDS, OTHERS, WITH, WITHOUT, exchanged, place
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.metrics.tallies import Tally


def test_everyone_gets_the_field_of_another_one() -> None:
    samples = [{"key": str(i), "captions": [f"caption {i}"], "image": b""} for i in range(9)]
    found = exchanged(samples, "captions")
    assert [sample["key"] for sample in found] == [sample["key"] for sample in samples]
    assert sorted(sample["captions"][0] for sample in found) == [sample["captions"][0] for sample in samples]
    assert all(one["captions"] != other["captions"] for one, other in zip(samples, found, strict=True))
    assert found == exchanged(samples, "captions")


def test_masked_words_are_compared_in_pairs_of_a_seed(tmp_path: Path) -> None:
    loss = {WITH: (3.0, 3.2, 3.1), WITHOUT: (3.4, 3.7, 3.5), OTHERS: (3.5, 3.6, 3.7)}
    for arm, values in loss.items():
        for seed, value in enumerate(values):
            run = place("words", arm, seed, tmp_path)
            run.mkdir(parents=True)
            lines = [{"step": 1}, {"step": 2, "held_out/mlm/loss": value, "held_out/mlm/accuracy": 0.5}]
            (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    rows = image_evidence.words_table(image_evidence.words_numbers(3, tmp_path))
    assert rows[1] == [WITH, "3", "3.100 ± 0.100", "0.500 ± 0.000"]
    assert rows[4][:3] == [f"{WITH} less {WITHOUT}", "3", "-0.433 (-0.577 to -0.290)"]
    assert image_evidence.words_table(image_evidence.words_numbers(3, tmp_path / "none")) == []


def test_answers_of_all_folds_are_compared_over_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        {"key": f"p{i // 2}", "questions": [{"question_id": i, "answer_type": ("other", "yes/no", "number")[i % 3]}]}
        for i in range(10 * FOLDS)
    ]
    (tmp_path / "corpora" / "plain" / "vqa").mkdir(parents=True)
    monkeypatch.setattr(image_evidence.Corpus, "open", lambda place: asked)
    rng = np.random.default_rng(0)
    for arm, share in zip(ARMS, (0.9, 0.3, 0.1), strict=True):
        for fold in range(FOLDS):
            run = place("questions", arm, fold, tmp_path)
            (run / "evaluations").mkdir(parents=True)
            lines = [{"key": s["key"], "question_id": s["questions"][0]["question_id"]} for s in asked[fold::FOLDS]]
            right = 100 * (rng.random(len(lines)) < share)
            items = EvaluationItems(lines, {"accuracy": Tally.mean(right)})
            items.write(run / "evaluations" / "vqa-test.jsonl")
    rows, gains = image_evidence.questions_table(tmp_path)
    assert rows[1] == ["questions", "50", "17", "17", "16"]
    assert [row[0] for row in rows[2:5]] == [*ARMS]
    assert float(rows[2][1]) - float(rows[3][1]) == pytest.approx(gains[f"all, less {WITHOUT}"]["difference"], abs=0.11)
    assert gains[f"other, less {OTHERS}"]["low"] > 0
