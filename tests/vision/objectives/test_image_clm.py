"""Captions that are written next to objectives that read them in both directions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import token_originals
from vision.objectives.image_clm import ImageClm
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer, train_tokenizer

CASE = ObjectiveCase(
    {},
    {
        "seed": "nothing is drawn",
        "special rows": "the end is predicted too",
        "earlier hooks": "a second one is refused",
    },
    adds=("text.rank",),
    small=1,
    recover=partial(token_originals, ahead=1),
    place=lambda rows: rows + 1,
)
DRAWS = Draws(0, "t", number=(0,))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(["caption number of a dog in the snow"] * 3, "wordpiece", 40))


def test_a_caption_is_written_from_the_image_and_the_words_before(
    tiny: Callable, sequences: list[Sequence], tokenizer: Tokenizer
) -> None:
    network, objective = tiny(), ImageClm(tokenizer, "bos")
    before = sequences[2].streams["text"]["input_ids"].copy()
    view = [sequence.copy() for sequence in sequences]
    objective.corrupt(view, DRAWS)
    text, targets = view[2].streams["text"], view[2].targets[objective.name]
    assert text["input_ids"].tolist() == [tokenizer.id("bos"), *before[1:].tolist()]
    assert targets["labels"].tolist() == before[1:].tolist()
    assert targets["rows"].index.tolist() == list(range(len(before) - 1))
    batch = collate(view[2:3])
    changed = view[2].copy()
    changed.streams["text"]["input_ids"][-1] = 4
    states, others = network(batch), network(collate([changed]))
    assert torch.equal(states["image"], others["image"])
    assert torch.equal(states["text"][:-1], others["text"][:-1])
    assert not torch.allclose(states["text"][-1], others["text"][-1])
    del view[2].streams["image"]
    assert not torch.allclose(states["text"][0], network(collate(view[2:3]))["text"][0])


def test_texts_in_one_direction_are_refused(sequences: list[Sequence], tokenizer: Tokenizer) -> None:
    objective = ImageClm(tokenizer)
    objective.corrupt(sequences[:1], DRAWS)
    with pytest.raises(WorkbenchError, match="is read in one direction already; use clm"):
        objective.corrupt(sequences[:1], DRAWS)
