"""Results: one file for each way to measure; what counted is shown."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.seed_runs import SeedStatistics
from workbench.evaluation.options import Scoring
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.tables import number_table
from workbench.metrics.baselines import against
from workbench.metrics.tallies import Tally


def made(accuracy: float, corpus: str = "sets/test", checksum: str = "a", **more: Any) -> Result:
    inputs = {"checkpoint": f"step-{accuracy}", "corpus": {"path": corpus, "records": 3, "sha256": checksum}}
    return Result(task="facts", numbers={"accuracy": accuracy}, counts={"sentences": 1200}, inputs=inputs, **more)


def test_no_result_takes_the_place_of_another(tmp_path: Path) -> None:
    results = [
        made(0.1),
        made(0.2, control="no-kg"),
        made(0.3, options={"limit": 50}),
        made(0.4, options={"limit": 50, "normalisation": "mean", "known": ["corpora/graph", "b"]}),
        made(0.5, corpus="other/test", checksum="b"),
    ]
    written = [result.write(tmp_path) for result in results]
    assert [path.name for path in written[:4]] == [
        "facts-test.json",
        "facts-test-no-kg.json",
        "facts-test-limit=50.json",
        "facts-test-limit=50-normalisation=mean-known=graph+b.json",
    ]
    kept = [json.loads(path.read_text())["numbers"]["accuracy"] for path in written]
    assert kept == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert len(list(tmp_path.iterdir())) == 5


def test_the_same_measured_again_takes_the_place_of_the_old(tmp_path: Path) -> None:
    for accuracy in (0.1, 0.6):
        path = made(accuracy).write(tmp_path)
        other = made(accuracy, corpus="other/test", checksum="b").write(tmp_path)
    assert json.loads(path.read_text())["numbers"]["accuracy"] == 0.6
    assert json.loads(other.read_text())["inputs"]["corpus"]["path"] == "other/test"
    assert len(list(tmp_path.iterdir())) == 2


@dataclass(frozen=True, kw_only=True)
class OwnScoring(Scoring):
    needed: Path
    rule: str = "any"
    stage: Path | None = None


def test_the_options_that_were_chosen_are_reported() -> None:
    plain = OwnScoring(run=Path("a"), corpus="b", needed=Path("c"), batch_size=7, control="no-kg")
    assert plain.chosen() == {}
    chosen = OwnScoring(run=Path("a"), corpus="b", needed=Path("c"), limit=3, rule="all", stage=Path("runs/x"))
    assert chosen.chosen() == {"limit": 3, "rule": "all", "stage": "runs/x"}


def test_the_table_shows_what_was_counted() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(number_table(made(0.5, variant="sum")))
    assert "1,200 sentences; sum" in console.export_text()


def test_a_result_below_its_baselines_is_reported() -> None:
    baselines = {"most frequent class": {"accuracy": 0.6}, "chance": {"accuracy": 0.2}, "another": {"f1": 1.0}}
    assert against({"accuracy": 0.5}, baselines) == "accuracy below most frequent class"
    assert against({"accuracy": 0.1}, baselines) == "accuracy below most frequent class, chance"
    assert against({"accuracy": 0.6}, baselines) == against({"accuracy": 0.1}, {}) == ""
    assert against({"perplexity": 5.0}, {"unigrams": {"perplexity": 90.0}}) == ""
    every = {"a": 0.1, "b": 0.9, "c": 0.2, "d": 0.1, "e": 0.3, "of/group/one": 0.0, "rank": 1.0}
    assert against(every, {"x": dict.fromkeys(every, 0.5)}) == "a, c, d and 1 more below x"
    assert against({"accuracy": 0.1, "f1": 0.5}, {**baselines, "y": {"f1": 0.7}}) == (
        "accuracy below most frequent class, chance; f1 below another, y"
    )
    assert against({"accuracy": 0.5, "f1": 0.2}, {"always a": {"accuracy": 0.5, "f1": 0.2}}) == "the same as always a"
    console = Console(width=100, record=True, file=io.StringIO())
    made(0.5, baselines=baselines).show(console)
    assert "accuracy below most frequent class" in console.export_text()


def test_each_class_is_shown_by_itself_and_the_missing_are_named() -> None:
    def of(gold: int, predicted: int) -> dict[str, float]:
        return {"precision": 0.5, "recall": 0.25, "f1": 1 / 3, "gold": gold, "predicted": predicted}

    classes = {"city": of(30, 15), "river": of(4, 0)} | {f"type {i}": of(2, 1) for i in range(30)}
    console = Console(width=100, record=True, file=io.StringIO())
    made(0.5, classes=classes).show(console)
    shown = console.export_text()
    assert "0.3333" in shown
    assert "12 more in the result's file; never predicted: river" in shown
    console = Console(width=100, record=True, file=io.StringIO())
    made(0.5).show(console)
    assert "by class" not in console.export_text()


def test_other_controls_of_the_same_weights_are_next_to(tmp_path: Path) -> None:
    """Not those of other weights, options or corpora; a control may have read something else."""
    plain = made(0.5)
    others = [
        made(0.5, control="no-kg"),
        made(0.25, control="shuffled-kg"),
        made(0.5, control="random-entities", options={"limit": 3}),
        made(0.5, control="random-entities", corpus="other", checksum="b"),
    ]
    others[0].inputs["read"], others[0].numbers = {"tokenizer": "t"}, {"accuracy": 0.125}
    plain.inputs["read"] = {"tokenizer": "t", "graph": "g"}
    for each in (plain, *others):
        each.write(tmp_path)
    assert plain.under_other_controls(tmp_path) == {"control no-kg": {"accuracy": 0.125}}
    assert others[0].under_other_controls(tmp_path) == {"no control": {"accuracy": 0.5}}
    console = Console(width=100, record=True, file=io.StringIO())
    plain.show(console, tmp_path)
    shown = console.export_text()
    assert "control no-kg" in shown
    assert "0.125" in shown


def test_groups_of_many_stand_in_a_table_of_their_own_that_80_columns_hold() -> None:
    kinds = [f"what is the number {i} of" for i in range(61)]
    numbers = {"accuracy": 50.0, "accuracy/answer_type/other": 10.0}
    numbers |= {f"accuracy/question_type/{kind}": float(i) for i, kind in enumerate(kinds)}
    worse, better = ({name: value + by for name, value in numbers.items()} for by in (-1, 1))
    result = Result("vqa", numbers, {"questions": 9}, baselines={"worse": worse, "better": better, "other": {}})
    console = Console(width=80, record=True, file=io.StringIO())
    result.show(console)
    lines = console.export_text().splitlines()
    assert len(lines) < 50
    assert "…" not in "".join(lines)
    row = next(line for line in lines if "number 3 of" in line)
    assert " ".join(row.split()) == "what is the number 3 of 3.0 / 4.0 what is the number 34 of 34.0 / 35.0"
    assert any("accuracy/answer_type/other" in line for line in lines)
    assert any("after the slash: better" in line for line in lines)


def test_a_mean_of_several_seeds_below_a_baseline_is_reported() -> None:
    runs = {"one": {"accuracy": 0.9}, "two": {"accuracy": 0.3}}
    assert SeedStatistics("classify", "dev", runs, baselines={"always a": {"accuracy": 0.7}}).table().caption == (
        "mean: accuracy below always a"
    )
    assert SeedStatistics("classify", "dev", runs, baselines={"always a": {"accuracy": 0.5}}).table().caption is None


def test_items_seed_and_intervals_are_next_to_the_numbers() -> None:
    """A result below an upper bound is not reported as losing to it."""
    baselines = {"best possible": {"accuracy": 0.9}, "chance": {"accuracy": 0.8}}
    items = EvaluationItems(
        [{"key": str(n), "gold": 1, "prediction": n % 2} for n in range(40)], {"accuracy": Tally.share([0, 1] * 20)}
    )
    result = made(0.5, baselines=baselines, bounds=["best possible"], predictions=items, seed=7)
    result.take_intervals()
    console = Console(file=io.StringIO(), width=120)
    result.show(console)
    reported = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.352 - 0.648" in reported  # Wilson's of 20 in 40
    assert "40 items, seed 7" in reported
    assert "95 % intervals over records: Wilson" in " ".join(reported.split())
    assert "best possible (upper bound)" in " ".join(reported.replace("┃", " ").split())
    assert "accuracy below chance" in " ".join(reported.split())
    record = result.record()
    assert (record["items"], record["seed"], record["intervals"]["accuracy"]["by"]) == (40, 7, "Wilson")
    assert against({"x": 1.0}, {"top": {"x": 2.0}}, ["top"]) == ""


@pytest.mark.parametrize(
    ("numbers", "lines", "tallies", "said"),
    [
        ({"mrr": 0.123}, 4, {"mrr": Tally.mean([1, 0.5, 1, 0.5])}, "the number 'mrr' is 0.123, but .* yields 0.75"),
        ({"mrr": math.nan}, 4, {"mrr": Tally.mean([1, 0.5, 1, 0.5])}, "'mrr' is nan, but .* yields 0.75"),
        ({"mrr": math.nan}, 2, {"mrr": Tally.mean([math.nan, 1])}, "'mrr' is nan, but .* yields nan"),
        ({"mrr": 1.0}, 2, {"mrr": Tally.mean([1, 1]), "hits": Tally.share([1, 1])}, "a tally 'hits', but no such num"),
        ({"mrr": 1.0}, 3, {"mrr": Tally.mean([1, 1])}, "'mrr' has 2 rows, but there are 3 lines"),
        ({"mrr": 1.0}, 0, {"mrr": Tally.mean([1, 1])}, "'mrr' has 2 rows, but there are 0 lines"),
        ({"mrr": 1.0}, 2, {"mrr": [1, 1]}, r"'mrr' is \[1, 1\]; allowed: a .*Tally"),
    ],
)
def test_items_that_do_not_add_up_to_the_numbers_are_refused(
    numbers: dict[str, float], lines: int, tallies: dict[str, Any], said: str
) -> None:
    result = Result(
        "mine", numbers, {"texts": 4}, predictions=EvaluationItems([{"key": str(n)} for n in range(lines)], tallies)
    )
    with pytest.raises(WorkbenchError, match=f"task mine: Result.predictions: .*{said}"):
        result.take_intervals()


def test_an_item_without_a_key_is_refused_by_its_place() -> None:
    items = EvaluationItems([{"key": "a"}, {"gold": 1}], {"accuracy": Tally.share([1, 1])})
    with pytest.raises(WorkbenchError, match=r"Result.predictions: line 2 of 2 has no `key`: \{'gold': 1\}; allowed"):
        Result("mine", {"accuracy": 1.0}, {"texts": 2}, predictions=items).take_intervals()


def test_ranks_among_other_images_are_no_rivals_and_a_control_that_finds_images_is_reported() -> None:
    numbers = {"image_retrieval/r1": 0.02, "image_retrieval/mean_rank": 300.0}
    few = {"image_retrieval/r1": 0.04, "image_retrieval/mean_rank": 13.0}
    chance = {"chance": {"image_retrieval/r1": 0.001, "image_retrieval/mean_rank": 500.0}, "chance, 25 images": few}
    same = {"image_retrieval/r1": 0.0, "image_retrieval/mean_rank": 13.0}
    assert against(numbers, {**chance, "same features, 25 images": same}) == ""
    leaking = {**same, "image_retrieval/mean_rank": 6.5}
    reported = against(numbers, {**chance, "same features, 25 images": leaking})
    assert "same features, 25 images: image_retrieval/mean_rank 6.5 is better than the 13 of chance" in reported
    assert "below chance" in against({"image_retrieval/r1": 0.0}, chance)


def test_of_a_group_of_hundreds_the_first_are_shown() -> None:
    numbers = {"mrr": 0.5, **{f"mrr/relation/r{i}": 0.1 for i in range(237)}}
    console = Console(width=80, record=True, file=io.StringIO())
    Result("link-prediction", numbers, {"triples": 9}).show(console)
    shown = console.export_text()
    assert "157 more in the" in shown
    assert len(shown.splitlines()) < 60


def test_a_table_of_six_columns_fits_eighty_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are broken at a slash, and no column is lost."""
    numbers = {f"image_retrieval/{name}": 0.0833 for name in ("r1", "r10", "median_rank")}
    interval = {"low": 0.0123, "high": 0.123, "level": 0.95, "method": "bootstrap", "n": 300}
    baselines = dict.fromkeys(("chance", "permuted images", "mean vector", "same features"), numbers)
    shown = SimpleNamespace(
        task="retrieval", numbers=numbers, counts={}, variant="", control=None, baselines=baselines, num_items=300,
        bounds=["same features"], seed=0, intervals=dict.fromkeys(numbers, interval), used=None, dropped=None,
        unlearned=[],
    )  # fmt: skip
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(number_table(shown))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    [row] = [line.split() for line in lines if line.startswith(" image_retrieval/r1 ")]
    assert row[1:] == ["0.0833", "0.0123", "-", "0.123", *["0.0833"] * 4]
    assert any(line.strip() == "median_rank" for line in lines)
