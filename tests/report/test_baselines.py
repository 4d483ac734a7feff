"""A baseline is next to the results that it is of: other candidates, other graphs have baselines of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from workbench.metrics.baselines import against
from workbench.report.page import render
from workbench.report.run import load_run

ALL, DRAWN = "filtered; realistic ranks", "filtered; realistic ranks; among 4 drawn entities"


def rows(page: str) -> dict[str, str]:
    """By what a row is called, its first number."""
    table = page[page.index("<h3>link-prediction</h3>") :].split("</table>")[0]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr class.*?</tr>", table)]
    return {" ".join(re.sub("<[^>]+>", " ", label).split()): number for label, number, *_ in cells}


def test_every_variant_has_its_own_baselines(tmp_path: Path, make_run: Callable, add_evaluation: Callable) -> None:
    run = make_run(tmp_path / "kg-bert")
    known = {"most frequent": {"mrr": 0.0625}}
    reported = [
        ("all", ALL, {}, 0.25, 0.125),
        ("four", DRAWN, {"candidates": 4}, 0.5, 0.75),
        ("nine", DRAWN.replace("4", "9"), {"candidates": 9}, 0.5, 0.125),
    ]
    for name, variant, options, mrr, chance in reported:
        made = {"variant": variant, "options": options, "numbers": {"mrr": mrr}}
        add_evaluation(run, name, task="link-prediction", baselines={**known, "chance": {"mrr": chance}}, **made)
    assert rows(render([load_run(run)])) == {
        "kg-bert": "0.2500",
        "kg-bert candidates 4 mrr below chance": "0.5000",
        "kg-bert candidates 9": "0.5000",
        "most frequent baseline": "0.0625",
        "chance (kg-bert, kg-bert [candidates 9]) baseline": "0.1250",
        "chance (kg-bert [candidates 4]) baseline": "0.7500",
    }


def test_results_with_equal_labels_name_their_data(
    tmp_path: Path, make_run: Callable, add_evaluation: Callable
) -> None:
    run = make_run(tmp_path / "kg-bert")
    for name, variant, chance in (("large", ALL, 0.125), ("small", ALL, 0.5), ("drawn", DRAWN, 0.75)):
        read = {"tokenizer": {"bert.json": "1"}, "graph": {f"corpora/{name}": "2"}}
        made = {"variant": variant, "numbers": {"mrr": 0.25}, "inputs": {"read": read}}
        add_evaluation(run, name, task="link-prediction", baselines={"chance": {"mrr": chance}}, **made)
    assert rows(render([load_run(run)])) == {
        "kg-bert graph corpora/large 2": "0.2500",
        "kg-bert graph corpora/small 2 mrr below chance": "0.2500",
        "kg-bert among 4 drawn entities mrr below chance": "0.2500",
        "chance (kg-bert [graph corpora/large 2]) baseline": "0.1250",
        "chance (kg-bert [graph corpora/small 2]) baseline": "0.5000",
        "chance (kg-bert [among 4 drawn entities]) baseline": "0.7500",
    }


def test_a_smaller_loss_is_not_below_a_baseline() -> None:
    assert against({"loss": 2.0, "accuracy": 0.5}, {"unigrams": {"loss": 3.0, "accuracy": 0.4}}) == ""
