"""Scores of coarse, fine and ultra-fine types by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kg.evaluation.typing.type_groups import FINE, GroupScores, read_groups, refuse_other
from kg.evaluation.typing.type_inventory import OPEN_ENTITY
from kg.evaluation.typing.type_predictions import Predictions
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError

FINE_NAMES = [f"fine {i}" for i in range(FINE)]
LISTED = [*reversed(OPEN_ENTITY), *FINE_NAMES, "poet", "river"]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "types.txt"
    path.write_text("\n".join(LISTED) + "\n")
    return path


def test_the_list_has_the_general_types_first_then_the_fine_ones(listed: Path) -> None:
    with noted() as opened:
        groups = read_groups(listed)
    assert groups["coarse"] == {*OPEN_ENTITY}
    assert groups["fine"] == {*FINE_NAMES}
    assert groups["ultra-fine"] == {"poet", "river"}
    assert list(opened["type groups"]) == [str(listed)]


def test_the_groups_of_the_data_set(shared: Path) -> None:
    groups = read_groups(shared / "data/ufet/types.txt")
    assert {name: len(types) for name, types in groups.items()} == {"coarse": 9, "fine": 121, "ultra-fine": 10201}
    assert {"actor", "writing"} <= groups["fine"]
    assert "abbey" in groups["ultra-fine"]


@pytest.mark.parametrize("names", [LISTED[1:], LISTED[:100], [*LISTED, "poet"], sorted(LISTED), []])
def test_another_list_is_refused(tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "types.txt"
    path.write_text("\n".join(names))
    with pytest.raises(WorkbenchError, match=r"is not the list of ultra-fine entity typing.*types\.txt"):
        read_groups(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"--groups .*there is no such file.*types\.txt"):
        read_groups(tmp_path / "types.txt")


def by_loops(predicted: list[set[str]], gold: list[set[str]], group: frozenset[str]) -> tuple[float, float]:
    """Choi et al.'s macro precision and recall of what of each set is in the group."""
    found, wanted = ([types & group for types in sets] for sets in (predicted, gold))
    pairs = list(zip(found, wanted, strict=True))
    precisions = [len(f & w) / len(f) for f, w in pairs if f]
    recalls = [len(f & w) / len(w) for f, w in pairs if w]
    return sum(precisions) / len(precisions), sum(recalls) / len(recalls)


@pytest.mark.parametrize("gold_types", ["all", "inventory"])
def test_a_group_is_scored_as_if_its_types_were_all_there_are(listed: Path, gold_types: Any) -> None:
    """Of an inventory in an order of its own, which lacks types that the mentions have."""
    groups = read_groups(listed)
    rng = np.random.default_rng(0)
    inventory = [*rng.permutation(LISTED[:-1]).tolist(), "a type of nobody"]
    everything = np.array(LISTED)
    gold = [{*everything[rng.random(len(LISTED)) < 0.2].tolist()} for _ in range(40)]
    chosen = rng.random((40, len(inventory))) < 0.2
    table = np.array([[name in types for name in inventory] for types in gold])
    samples = [{"types": sorted(types)} for types in gold]
    test = Predictions(samples, chosen.astype(float), table, np.zeros(40, int))
    numbers = GroupScores(groups, inventory, test, "open_type", gold_types).numbers(chosen)
    predicted = [{inventory[i] for i in np.flatnonzero(row)} for row in chosen]
    counted = gold if gold_types == "all" else [types & {*inventory} for types in gold]
    for group, types in groups.items():
        precision, recall = by_loops(predicted, counted, types)
        assert numbers[f"{group}/loose_macro/precision"] == pytest.approx(precision)
        assert numbers[f"{group}/loose_macro/recall"] == pytest.approx(recall)
        assert numbers[f"{group}/loose_macro/f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert len(numbers) == 9


@pytest.mark.parametrize("gold_types", ["all", "inventory"])
def test_a_group_without_types_of_the_inventory_or_the_test_set_has_no_numbers(listed: Path, gold_types: Any) -> None:
    groups, inventory = read_groups(listed), ["person", "fine 0"]
    samples = [{"types": ["person", "poet"]}, {"types": ["person"]}]
    gold = np.array([[True, False], [True, False]])
    test = Predictions(samples, gold.astype(float), gold, np.array([1, 0]))
    found = GroupScores(groups, inventory, test, "open_type", gold_types)
    assert {name.split("/")[0] for name in found.numbers(gold)} == {"coarse"}
    assert found.numbers(~gold)["coarse/loose_macro/f1"] == 0  # a wrong prediction is measured


def test_a_group_whose_types_the_test_set_has_next_to_the_inventory_is_measured(listed: Path) -> None:
    groups, inventory = read_groups(listed), ["person", "fine 0"]
    test = Predictions([{"types": ["fine 1"]}], np.zeros((1, 2)), np.zeros((1, 2), bool), np.array([1]))
    numbers = GroupScores(groups, inventory, test, "open_type", "all").numbers(np.array([[False, True]]))
    assert numbers == {f"fine/loose_macro/{name}": 0.0 for name in ("precision", "recall", "f1")}


@pytest.mark.parametrize(
    ("names", "learned", "reported"),
    [
        (["person", "fine 0", "poet"], [1, 1, 1], None),
        (["person", "poet"], [1, 1], None),
        (["person", "poet"], None, None),
        (["person", "elsewhere"], None, None),
        (["person", "fine 0", "poet"], [1, 2], "3 types were in groups of 1, 2, .* they are 1, 1, 1. Give"),
        (["person", "poet", "fine 0"], [1, 1, 1], "they are 1, 1, 1, from 'poet' on in another order"),
        (["person", "fine 0", "elsewhere"], [1, 1, 1], "they are 1, 1, from 'elsewhere' on"),
    ],
)
def test_a_run_is_scored_in_the_groups_that_it_has_learned(
    listed: Path, names: list[str], learned: list[int] | None, reported: str | None
) -> None:
    groups = read_groups(listed)
    if reported is None:
        refuse_other(groups, names, learned, listed, Path("runs/typing"))
        return
    with pytest.raises(WorkbenchError, match=f"runs/typing was fine-tuned with another list .*{reported}"):
        refuse_other(groups, names, learned, listed, Path("runs/typing"))
