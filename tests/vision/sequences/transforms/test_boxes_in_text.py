"""The transform `vision.boxes_in_text`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.material import tokenizer
from vision.sequences.image_processors.regions import RegionsProcessor
from vision.sequences.transforms.boxes_in_text import BoxesInTextTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, Span, text_fields

EXCUSED = "it needs an image with a row for its whole, which the sequences of the contracts don't have"


def made(spans: list[Span], rows: int = 4, **fields: Any) -> Sequence:
    """Six tokens, and an image of its whole and `rows` regions."""
    special = np.arange(rows + 1) == 0
    image = {"boxes": np.zeros((rows + 1, 4), np.float32), "special": special, **fields}
    text = text_fields(np.arange(5, 11), special=np.arange(6) % 5 == 0)
    return Sequence({"text": text, "image": image}, (0,), "k0", spans)


def run(sequences: list[Sequence], **options: Any) -> BoxesInTextTransform:
    transform = BoxesInTextTransform(tokenizer(), **options)
    transform(sequences, Draws(0, "task", number=(0,)))
    return transform


def test_the_image_has_a_token_and_mentions_refer_to_regions() -> None:
    sequence = made([Span(2, 4, "region:1"), Span(4, 5, "region:0"), Span(1, 2, "Q42")])
    transform = run([sequence])
    text = sequence.streams["text"]
    assert text["input_ids"].tolist() == [5, tokenizer().id("pad"), 6, 7, 8, 9, 10]
    assert text["position_ids"].tolist() == list(range(7))
    assert text["box"].index.tolist() == [-1, 0, -1, 2, 2, 1, -1]
    assert text["special"].tolist() == [True, True, False, False, False, False, True]
    assert (transform.take_used(), transform.take_dropped()) == ({"mentions": 2}, {})


def test_regions_that_were_left_out_are_not_taken_for_others() -> None:
    """`vision.regions` keeps the most confident ones."""
    rng = np.random.default_rng(0)
    corners = np.sort(rng.random((4, 2, 2)).astype(np.float32), axis=1).reshape(4, 4)
    regions = {"features": rng.random((4, 8)), "boxes": corners, "confidence": np.array([0.1, 0.9, 0.2, 0.8])}
    sample = {"key": "k", "regions": regions, "meta": {"backbone": "b"}}
    image = RegionsProcessor("b", max_regions=2, whole="first")(sample, None)
    assert image["number"][1:].tolist() == [1, 3]
    sequence = made([Span(1, 2, "region:3"), Span(2, 3, "region:2")])
    sequence.streams["image"] = image
    transform = run([sequence])
    assert sequence.streams["text"]["box"].index.tolist() == [-1, 0, 2, -1, -1, -1, -1]
    assert transform.take_dropped() == {"mentions of regions that are not there": 1}
    assert "number" not in collate([sequence]).streams["image"].fields


def test_mentions_over_the_limit_and_within_others_are_counted() -> None:
    spans = [Span(1, 2, "region:0"), Span(2, 4, "region:1"), Span(3, 4, "region:0"), Span(4, 5, "region:2")]
    sequence = made(spans)
    transform = run([sequence], max_boxes=2)
    assert sequence.streams["text"]["box"].index.tolist() == [-1, 0, 1, 2, 2, -1, -1]
    assert transform.take_dropped() == {"mentions over max_boxes": 1, "mentions within others": 1}


def test_texts_without_an_image_stay_and_share_a_batch() -> None:
    alone = Sequence({"text": text_fields(np.arange(5, 8))}, (1,), "k1")
    both = [alone, made([Span(2, 4, "region:1")])]
    run(both)
    assert alone.streams["text"]["input_ids"].tolist() == [5, 6, 7]
    batch = collate(both)
    assert batch.streams["text"].fields["box"].tolist() == [-1] * 4 + [0, -1, 2, 2, -1, -1]
    assert batch.pick({"text": [1, 1], "image": [1, 1]}).streams["text"].fields["box"][8:11].tolist() == [5, -1, 7]


def test_an_image_without_a_row_for_its_whole_is_refused() -> None:
    sequence = made([])
    del sequence.streams["image"]["special"]
    with pytest.raises(WorkbenchError, match="image of 'k0' has no row for its whole; set `whole: first`"):
        run([sequence])
