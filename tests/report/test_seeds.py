"""Runs that differ in their seed alone stand as one: mean and deviation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.report.page import render
from workbench.report.run import load_run
from workbench.report.seeds import by_seed, mean_series, seed_spread


def change(folder: Path, **values: Any) -> Path:
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**yaml.safe_load(recipe.read_text()), **values}))
    return folder


@pytest.fixture
def seeds(tmp_path: Path, make_run: Callable, add_evaluation: Callable) -> list[Path]:
    """Three seeds of a system, and one run of another."""
    found = []
    for seed, accuracy in enumerate((0.5, 0.6, 0.7)):
        run = change(make_run(tmp_path / f"tuned-{seed}"), seed=seed, name="tuned")
        baselines = {"most frequent": {"accuracy": 0.25}, "a probe": {"accuracy": accuracy - 0.1}}
        add_evaluation(run, "facts", task="facts", numbers={"accuracy": accuracy, "rank": 3.0}, baselines=baselines)
        found.append(run)
    other = make_run(tmp_path / "other")
    add_evaluation(other, "facts", task="facts", numbers={"accuracy": 0.125})
    return [*found, other]


def test_seeds_are_one_line_of_a_table(seeds: list[Path]) -> None:
    page = render([load_run(folder) for folder in seeds])
    table = page[page.index("<h3>facts</h3>") :].split("</table>")[0]
    assert re.findall(r'<tr class="(\w+)">', table) == ["result", "result", "baseline", "baseline"]
    shown = re.sub("<[^>]+>", " ", table)
    assert re.search(r"tuned +3 seeds +0\.6000 +± 0\.1000 +3\.000 +± 0\.000 ", shown)
    assert re.search(r"most frequent +baseline +0\.2500 +(?!±)", shown)
    assert re.search(r"a probe +baseline +0\.5000 +± 0\.1000", shown)


def test_a_mean_below_a_baseline_is_reported(tmp_path: Path, make_run: Callable, add_evaluation: Callable) -> None:
    runs = []
    for seed, accuracy in enumerate((0.3, 0.6)):
        run = change(make_run(tmp_path / f"tuned-{seed}"), seed=seed, name="tuned")
        baselines = {"a < b": {"accuracy": 0.5}, "chance": {"accuracy": 0.1}, "bad": {"accuracy": "no number"}}
        add_evaluation(run, "facts", task="facts", numbers={"accuracy": accuracy}, baselines=baselines)
        add_evaluation(run, "k", task="facts", numbers={"accuracy": 0.0}, baselines=baselines, control="no-kg")
        runs.append(run)
    assert render([load_run(run) for run in runs]).count("accuracy below a &lt; b</span>") == 1
    assert "below" not in render([load_run(runs[1])]).split("<body")[1]  # 0.6 alone is above, and a control is below


def test_equal_and_unequal_training_is_reported(seeds: list[Path]) -> None:
    assert "All trained for 600 steps of 64 samples." in render([load_run(folder) for folder in seeds])
    change(seeds[-1], train={"max_steps": 9000, "global_batch_size": 64})
    page = render([load_run(folder) for folder in seeds])
    assert "Not trained alike: 600 steps of 64 samples: tuned; 9,000 steps of 64 samples: other." in page
    assert "trained" not in render([load_run(folder) for folder in seeds[:3]])


def test_the_other_seeds_are_folded_up(seeds: list[Path]) -> None:
    page = render([load_run(folder) for folder in seeds])
    assert page.count("<article") == 2
    assert '<a href="#run-0">tuned</a><a href="#run-1">other</a>' in page
    assert "Other seeds: tuned-1, tuned-2" in page


def test_a_seed_that_is_not_evaluated_leaves_the_others_by_themselves(seeds: list[Path]) -> None:
    next((seeds[0] / "evaluations").iterdir()).unlink()
    page = render([load_run(folder) for folder in seeds])
    assert "± " not in page
    assert "seeds</span>" not in page


def test_what_differs_otherwise_stays_apart(tmp_path: Path, make_run: Callable) -> None:
    start = [
        change(make_run(tmp_path / f"start-{n}"), seed=n, name="start", train={"max_steps": n // 2}) for n in range(3)
    ]
    runs = []
    for n, place in enumerate(start):
        network = {"init_from": [{"weights": str(place)}]}
        reported = {"name": "tuned", "tokenizer": f"{place}/tokenizer.json", "model": network}
        runs.append(load_run(change(make_run(tmp_path / f"tuned-{n}"), seed=n, **reported)))
    assert [[run.name for run in group] for group in by_seed(runs)] == [["tuned-0", "tuned-1"], ["tuned-2"]]
    again = load_run(change(make_run(tmp_path / "again"), seed=0, **reported))
    assert len(by_seed([runs[2], again])) == 2 - 1
    twice = load_run(change(make_run(tmp_path / "twice"), seed=2, **reported))
    assert len(by_seed([runs[2], twice])) == 2


def test_series_are_averaged_where_all_have_a_value(seeds: list[Path]) -> None:
    group = [load_run(folder) for folder in seeds[:2]]
    group[0].metrics = [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}]
    group[1].metrics = [{"step": 2, "a": 4.0}]
    assert mean_series(group, "a") == [(2.0, 3.0)]


def test_a_spread() -> None:
    assert seed_spread((0.5,)) == "0.5000"
    assert re.sub("<[^>]+>", "", seed_spread((0.5, 0.6, 0.7))) == "0.6000 ± 0.1000"
    assert "± 0.0001" in seed_spread((0.4726, 0.4727))
    assert seed_spread(("a", "b")) == ""
