"""The groups that the types of ultra-fine entity typing fall into, which are learned and scored one by one.

Choi et al., "Ultra-Fine Entity Typing", ACL 2018 (arXiv:1807.04905): nine general types, 121 fine ones and the others,
in this order in the data set's list of types (`types.txt`). A group is scored as if its types were all there are.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import numpy as np

from kg.evaluation.typing.type_inventory import OPEN_ENTITY, names_of_file
from kg.evaluation.typing.type_predictions import Predictions
from kg.metrics.typing_scores import Gold, Macro, typing_scores
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of

FINE = 121

Groups = dict[str, frozenset[str]]
"""The types of each group, by its name."""


def read_groups(path: Path) -> Groups:
    """The groups of the data set's list, which is noted among what was read.

    Raises:
        WorkbenchError: there is no such file, or it is not in the data set's order.
    """
    if not path.is_file():
        raise WorkbenchError(f"--groups {path}: there is no such file; give the types.txt of the data set")
    names, general = names_of_file(path), len(OPEN_ENTITY)
    if {*names[:general]} != {*OPEN_ENTITY} or len({*names}) != len(names) or len(names) <= general + FINE:
        raise WorkbenchError(
            f"{path} is not the list of ultra-fine entity typing: that has the types {', '.join(OPEN_ENTITY)} first, "
            f"then {FINE} fine ones, then the others, every type once; this one has {len(names):,}, first "
            f"{', '.join(names[:general]) or 'none'}; give the types.txt of the data set as it is"
        )
    note("type groups", path, sha256_of(path))
    return {
        "coarse": frozenset(names[:general]),
        "fine": frozenset(names[general : general + FINE]),
        "ultra-fine": frozenset(names[general + FINE :]),
    }


def by_group(inventory: list[str], groups: Groups) -> tuple[list[str], list[int]]:
    """The types with those of a group side by side, and how many of them each group has that has any.

    Raises:
        WorkbenchError: a type is of no group.
    """
    strange = sorted({*inventory}.difference(*groups.values()))
    if strange:
        raise WorkbenchError(
            f"{len(strange)} of {len(inventory)} types are not in the list that --groups names: "
            f"{', '.join(strange[:3])}; fine-tune on types of that list (--types), or without --groups"
        )
    found = [[name for name in inventory if name in types] for types in groups.values()]
    return [name for group in found for name in group], [len(group) for group in found if group]


def refuse_other(groups: Groups, names: list[str], learned: list[int] | None, place: Path, run: Path) -> None:
    """Check the groups that are scored against those that a run has learned.

    Args:
        names: the types of the run's inventory, those of a group side by side.
        learned: how many of them each group has; None where groups were not learned.

    Raises:
        WorkbenchError: the list puts the run's types into other groups, or lacks some.
    """
    if learned is None:
        return
    ours = [[name for name in names if name in types] for types in groups.values()]
    ordered, sizes = [name for group in ours for name in group], [len(group) for group in ours if group]
    if (ordered, sizes) == (names, learned):
        return
    first = next((name for name, other in zip_longest(names, ordered) if name != other), None)
    example = f", from {first!r} on in another order" if first is not None else ""
    raise WorkbenchError(
        f"--groups {place}: {run} was fine-tuned with another list of types: its {len(names):,} types were in groups "
        f"of {_in_words(learned)}, and in those of this list they are {_in_words(sizes)}{example}. Give the list that "
        f"it was "
        "fine-tuned with (`finetune entity-typing --groups`), or fine-tune a run with this one"
    )


def _in_words(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes) or "none"


class GroupScores:
    """The loose macro scores of each group, which the data set's paper reports, for any prediction of one test set.

    A group of which the inventory, or the test set, has no type has none.
    """

    def __init__(self, groups: Groups, names: list[str], test: Predictions, macro: Macro, gold: Gold) -> None:
        """`names` are the types of the inventory, in the order of the logits."""
        self.test, self.macro = test, macro
        known = frozenset(names)
        self.columns = {group: np.isin(names, [*types]) for group, types in groups.items()}
        self.outside = {group: _count(test, types - known) for group, types in groups.items()} if gold == "all" else {}
        self.measured = [
            group
            for group, columns in self.columns.items()
            if columns.any() and (test.gold[:, columns].any() or np.any(self.outside.get(group, 0)))
        ]

    def numbers(self, predicted: np.ndarray) -> dict[str, float]:
        """`coarse/loose_macro/f1` and so on, of predicted types [mentions, types]."""
        found: dict[str, float] = {}
        for group in self.measured:
            columns = self.columns[group]
            scores = typing_scores(
                predicted[:, columns], self.test.gold[:, columns], self.macro, self.outside.get(group)
            )
            found |= {f"{group}/{name}": value for name, value in scores.numbers().items() if "loose_macro" in name}
        return found


def _count(test: Predictions, types: frozenset[str]) -> np.ndarray:
    """The number of these types that each mention has [mentions]."""
    return np.array([len(types.intersection(sample.get("types", ()))) for sample in test.samples])
