"""Two sides are compared where they were evaluated on the same items, and refused by name where they were not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.cli.comparison import compare_sides
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.comparison import compare
from workbench.evaluation.scoring.evaluation_items import EvaluationItems, read_items
from workbench.evaluation.scoring.result import Result
from workbench.metrics.classes import class_scores, class_tallies

GOLD = np.random.default_rng(0).integers(0, 3, 60)


def predicted(seed: int, right: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(len(GOLD)) < right, GOLD, rng.integers(0, 3, len(GOLD)))


def written(folder: Path, classes: np.ndarray, gold: np.ndarray = GOLD, **other: Any) -> Path:
    """A result of `classify` with its items, as an evaluation writes it."""
    lines = [
        {"key": f"r{n}", "gold": int(g), "prediction": int(p)}
        for n, (g, p) in enumerate(zip(gold, classes, strict=True))
    ]
    corpus = {"path": "corpora/test", "records": len(gold), "sha256": "0" * 64}
    reported: dict[str, Any] = {"inputs": {"corpus": corpus}, "variant": "label hour", **other}
    result = Result(task="classify", numbers=class_scores(classes, gold), counts={"texts": len(gold)}, **reported)
    result.predictions = EvaluationItems(lines, class_tallies(classes, gold))
    result.take_intervals()
    return result.write(folder)


def test_the_table_has_both_numbers_and_their_difference(tmp_path: Path) -> None:
    weak, strong = predicted(1, 0.3), predicted(2, 0.9)
    sides = [str(written(tmp_path / name, classes)) for name, classes in (("a", weak), ("b", strong))]
    (found,) = compare(sides, samples=2_000)
    assert (found.task, found.corpus, found.items, found.units, found.seeds) == ("classify", "test", 60, 60, (1, 1))
    for name, value in class_scores(weak, GOLD).items():
        d = found.differences[name]
        assert d.first == pytest.approx(value)
        assert d.second == pytest.approx(class_scores(strong, GOLD)[name])
        assert d.low < d.difference < d.high
        assert d.p < 0.01
    (again,) = compare(sides, samples=2_000)
    assert again == found  # the draws have a seed
    (back,) = compare(sides[::-1], samples=2_000)
    assert back.differences["accuracy"].difference == pytest.approx(-found.differences["accuracy"].difference)


def test_the_columns_are_the_runs_in_the_order_given(tmp_path: Path) -> None:
    sides = [str(written(tmp_path / name / "results", predicted(n, 0.6))) for n, name in enumerate(("mine", "theirs"))]
    (found,) = compare(sides, samples=100)
    names = [f"{name}/results/{Path(side).name}" for name, side in zip(("mine", "theirs"), sides, strict=True)]
    assert [column.header for column in found.table().columns][1:4] == [*names, "difference"]
    caption = str(found.table().caption)
    assert caption.startswith(f"the difference is {names[1]} less {names[0]}; 60 shared items")
    assert "one seed each: p and the interval do not cover other seeds of training" in caption


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_predicts_one_label_for_all_items_is_named_and_has_no_p(first: bool, tmp_path: Path) -> None:
    """Accuracies of two constant classifiers differ by how frequent their classes are, and for no other reason."""
    always = written(tmp_path / "always", np.full(60, 2))
    other = written(tmp_path / "other", predicted(1, 0.5) if first else np.full(60, 1))
    (found,) = compare([str(always), str(other)], samples=100)
    assert {d.p for d in found.differences.values()} == {None}
    caption = str(found.table().caption)
    assert f"no p: {always} predicts '2' for all items" in caption
    assert (f"{other} predicts '1' for all items" in caption) is not first
    assert json.loads(json.dumps(found.record()))["degenerate"]


def test_a_run_that_equals_a_baseline_is_named_and_has_no_p(tmp_path: Path) -> None:
    one, other = predicted(1, 0.5), predicted(2, 0.6)
    baselines = {"always sport": class_scores(one, GOLD), "chance": {"accuracy": 0.33, "macro_f1": 0.33}}
    sides = [str(written(tmp_path / "a", one, baselines=baselines)), str(written(tmp_path / "b", other))]
    (found,) = compare(sides, samples=100)
    assert {d.p for d in found.differences.values()} == {None}
    assert found.degenerate == [f"{sides[0]} has the numbers of the baseline always sport"]
    (found,) = compare([str(written(tmp_path / "c", one, baselines=baselines, bounds=["always sport"])), sides[1]])
    assert found.degenerate == []


def test_folders_files_and_results_are_sides_in_any_order_of_items(tmp_path: Path) -> None:
    one = written(tmp_path / "a", predicted(1, 0.5))
    other = written(tmp_path / "b", predicted(2, 0.5))
    wanted = compare([str(one), str(other)], samples=200)[0].differences
    items = read_items(other.with_suffix(".jsonl"))
    lines = other.with_suffix(".jsonl").read_text().splitlines()
    (tmp_path / "turned.jsonl").write_text("\n".join(lines[::-1]) + "\n")
    for side in (other.parent, other.with_suffix(".jsonl"), tmp_path / "turned.jsonl"):
        found = compare([str(one.parent), str(side)], samples=200)[0].differences
        assert found == wanted
    assert items.lines[0] == {"key": "r0", "gold": int(GOLD[0]), "prediction": int(predicted(2, 0.5)[0])}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("accuracy", "[NaN, 1]"),
        ("accuracy", "[-1, 1]"),
        ("accuracy", "[Infinity, 1]"),
        ("accuracy", "[true, null]"),
        ("accuracy", "[1e308, -1]"),
        ("macro_f1", "[1.5, -2]"),
        ("macro_f1", "[1e9, 1e12]"),
        ("macro_f1", None),
    ],
)
def test_figures_that_no_item_can_have_are_refused(name: str, row: str | None, tmp_path: Path) -> None:
    file = written(tmp_path / "a", predicted(1, 0.5)).with_suffix(".jsonl")
    first, *others = file.read_text().splitlines()
    line = json.loads(first)
    ((kind, _),) = line["adds"][name].items()
    if row is None:
        del line["adds"][name]
    else:
        line["adds"][name] = {kind: json.loads(row)}
    (tmp_path / "b.jsonl").write_text("\n".join([json.dumps(line), *others]) + "\n")
    with pytest.raises(WorkbenchError, match=r"b\.jsonl: `adds`: item 1 of .* which no row of the kind"):
        compare([str(file), str(tmp_path / "b.jsonl")], samples=200)


def test_the_same_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    side = str(written(tmp_path / "a", predicted(1, 0.5)))
    (found,) = compare([side, side], samples=200)
    assert {(d.difference, d.low, d.high, d.p) for d in found.differences.values()} == {(0.0, 0.0, 0.0, 1.0)}


def test_several_seeds_are_means_drawn_in_pairs(tmp_path: Path) -> None:
    files = {
        f"{side}{n}": written(tmp_path / f"{side}{n}", predicted(n, r))
        for side, r in (("a", 0.3), ("b", 0.9))
        for n in (1, 2, 3)
    }
    sides = [",".join(str(files[f"{side}{n}"]) for n in (1, 2, 3)) for side in "ab"]
    (found,) = compare(sides, samples=500)
    assert found.seeds == (3, 3)
    every = [class_scores(predicted(n, 0.3), GOLD)["accuracy"] for n in (1, 2, 3)]
    assert found.differences["accuracy"].first == pytest.approx(np.mean(every))
    caption = str(found.table().caption)
    assert "means over 3 and 3 seeds, in pairs" in caption
    assert "fewer than 5 seeds" in caption
    table = {
        "task": "classify",
        "corpus": "corpora/test",
        "options": {},
        "runs": {str(files[f"a{n}"].parent): {} for n in (1, 2, 3)},
    }
    (tmp_path / "a-seeds.json").write_text(json.dumps(table))
    assert compare([str(tmp_path / "a-seeds.json"), sides[1]], samples=500)[0].differences == found.differences


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"inputs": {"corpus": {"path": "corpora/other", "records": 60, "sha256": "1" * 64}}},
            r"not of one corpus: corpora/test and corpora/other",
        ),
        ({"variant": "label day"}, r"not of one variant: 'label hour' and 'label day'.*--across-variants"),
    ],
)
def test_what_was_not_measured_alike_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    one, other = written(tmp_path / "a", predicted(1, 0.5)), written(tmp_path / "b", predicted(2, 0.5), **change)
    with pytest.raises(WorkbenchError, match=message):
        compare([str(one), str(other)])
    if "variant" in change:
        assert compare([str(one), str(other)], across_variants=True, samples=100)


def test_shares_of_older_files_are_compared_and_files_alone_say_no_task(tmp_path: Path) -> None:
    one, other = (written(tmp_path / name, predicted(seed, 0.5)) for seed, name in enumerate("ab"))
    wanted = compare([str(one), str(other)], samples=200)[0].differences
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text(one.with_suffix(".jsonl").read_text().replace('"share"', '"mean"'))
    new.write_text(other.with_suffix(".jsonl").read_text())
    assert '"share"' in new.read_text()
    (found,) = compare([str(old), str(new)], samples=200)
    assert found.differences == wanted
    assert found.table().title == "old.jsonl and new.jsonl"


def test_other_items_answers_and_numbers_are_refused_by_name(tmp_path: Path) -> None:
    one = written(tmp_path / "a", predicted(1, 0.5))
    few = written(tmp_path / "b", predicted(2, 0.5)[:50], GOLD[:50])
    with pytest.raises(WorkbenchError, match=r"has 10 items that .* lacks, such as 'r50', 'r51', 'r52'"):
        compare([str(one), str(few)])
    turned = written(tmp_path / "c", predicted(2, 0.5), (GOLD + 1) % 3)
    with pytest.raises(WorkbenchError, match=r"other right answers to 'r0'"):
        compare([str(one), str(turned)])
    lines = [json.loads(line) for line in one.with_suffix(".jsonl").read_text().splitlines()]
    (tmp_path / "other.jsonl").write_text(
        "".join(json.dumps({**x, "adds": {"bleu": {"mean": [1, 1]}}}) + "\n" for x in lines)
    )
    with pytest.raises(WorkbenchError, match="no number in common: accuracy, macro_f1, micro_f1, mcc; bleu"):
        compare([str(one), str(tmp_path / "other.jsonl")])


def test_what_is_no_side_is_refused(tmp_path: Path) -> None:
    one = written(tmp_path / "a", predicted(1, 0.5))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.jsonl").write_text('{"text": "no items"}\n')
    (tmp_path / "odd.jsonl").write_text('{"key": "a", "adds": {"x": {"guess": [1]}}}\n')
    for side, message in (
        ("nothing", "there is no nothing"),
        (str(tmp_path / "empty"), "has no results with items"),
        (str(tmp_path / "text.jsonl"), "holds no items"),
        (str(tmp_path / "odd.jsonl"), "found the kinds guess"),
    ):
        with pytest.raises(WorkbenchError, match=message):
            compare([str(one), side])
    one.with_suffix(".jsonl").unlink()
    with pytest.raises(WorkbenchError, match="has no items next to it"):
        compare([str(one), str(one)])
    with pytest.raises(WorkbenchError, match="two sides or more"):
        compare_sides([str(one)])


def test_the_command_writes_json(tmp_path: Path) -> None:
    sides = [str(written(tmp_path / name, predicted(n, 0.6))) for n, name in enumerate("abc")]
    compare_sides(sides, samples=100, output=tmp_path / "d.json")
    first, second = json.loads((tmp_path / "d.json").read_text())
    assert (first["first"], first["second"], second["second"]) == tuple(sides)
    assert first["differences"]["accuracy"].keys() == {"first", "second", "difference", "low", "high", "p"}
