"""Corpora of different sizes are drawn in proportion to a power of these."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.pretraining.assembly import tasks_of
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("unit", ["text", None])
def test_corpora_are_drawn_by_their_sizes(
    make_recipe: Any, world_folder: Path, exponent: float, unit: str | None
) -> None:
    places = [str(world_folder / name) for name in ("train", "held-out")]
    task_of = "tasks.text.corpora={" + f"{places[0]}: 1, {places[1]}: 2" + "}"
    split = [] if unit else ["tasks.text.sequence={builder: sentence_pair, split: false, max_length: 32}"]
    recipe = load_recipe(str(make_recipe()), [task_of, f"tasks.text.size_exponent={exponent}", *split])
    task = tasks_of(recipe, Tokenizer.load(str(recipe.tokenizer)))["text"]
    reader = reader_of(recipe, task)
    drawn = Counter(
        place.corpus for number in range(400) for lane in range(reader.lanes) for place in reader.places(number, lane)
    )
    manifests = [Corpus.open(place).manifest for place in places]
    sizes = [each.lengths[unit] if unit else each.records for each in manifests]
    assert sizes[0] > 1.5 * sizes[1]
    wanted = [weight * size**exponent for weight, size in zip((1, 2), sizes, strict=True)]
    assert drawn[0] / drawn.total() == pytest.approx(wanted[0] / sum(wanted), abs=0.02)


def test_an_exponent_beyond_one_is_refused(make_recipe: Any) -> None:
    with pytest.raises(WorkbenchError, match=r"tasks\.text\.size_exponent = 1\.5"):
        load_recipe(str(make_recipe()), ["tasks.text.size_exponent=1.5"])
