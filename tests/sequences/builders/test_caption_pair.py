"""The builder `caption_pair`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import BuilderCase
from tests.contracts.material import draws, make_samples, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.sequences.builders.caption_pair import CaptionPairBuilder
from workbench.sequences.sequence import Sample

IMAGE = {"image_processor": "vision.patches", "size": 8, "patch": 4, "flip": 0.5, "crop_scale": 0.5}
CASE = BuilderCase({"image_processor": IMAGE}, excused={"small": "captions make its sequences"})
CAPTIONS = ["two old boats", "the harbour of a city", "people at night near water"]


@pytest.fixture
def sample() -> Sample:
    spans = [[[8, 13, "Q1", 1.0]], [[17, 21, "Q2", 1.0]], []]
    return {**make_samples(1)[0], "captions": CAPTIONS, "caption_spans": spans}


def builder(max_length: int = 40) -> CaptionPairBuilder:
    return CaptionPairBuilder(tokenizer(), max_length, None)


def test_two_different_captions_are_its_segments(sample: Sample) -> None:
    seen, made = set(), builder()
    for seed in range(12):
        [pair] = made.arrange([sample], draws(seed))
        [sequence] = made([pair], draws(seed))
        text = sequence.streams["text"]
        first, second = (tokenizer().encode(caption).ids for caption in pair["captions"])
        assert pair["captions"][0] != pair["captions"][1]
        assert text["token_type_ids"].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        np.testing.assert_array_equal(text["input_ids"][~text["special"]], [*first, *second])
        linked = {span.entity for span in sequence.spans}
        assert linked == {f"Q{1 + CAPTIONS.index(c)}" for c in pair["captions"] if c != CAPTIONS[2]}
        seen.add(tuple(pair["captions"]))
    assert len(seen) > 3, "both the captions and their order are drawn"


def test_the_longer_one_is_cut(sample: Sample) -> None:
    made = builder(26)
    short, long = CAPTIONS[0], CAPTIONS[2] * 3
    pair = {**sample, "captions": [short, long], "caption_spans": [[], []]}
    [sequence] = made([pair], draws())
    ids = sequence.streams["text"]["input_ids"]
    assert len(ids) == 26
    kept = tokenizer().encode(short).ids
    np.testing.assert_array_equal(ids[1 : 1 + len(kept)], kept)
    lost = len(kept) + len(tokenizer().encode(long).ids) - 23
    assert made.take_dropped() == {"truncated tokens": lost}


def test_a_record_of_one_caption_is_named(sample: Sample) -> None:
    with pytest.raises(WorkbenchError, match=r"'k0' .* no 'captions' of which there are two: this record has 1"):
        builder().arrange([{**sample, "captions": CAPTIONS[:1]}], draws())


def test_evaluation_reads_each_by_itself(sample: Sample) -> None:
    made = builder().evaluating()
    assert made.unit == "captions"
    sequences = made(made.arrange([sample], draws()), draws())
    assert [s.meta["caption"] for s in sequences] == [0, 1, 2]
    assert all(not s.streams["text"]["token_type_ids"].any() for s in sequences)
