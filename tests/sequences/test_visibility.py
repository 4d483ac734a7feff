"""Which rows of the text each one sees is said of the builder, and written by it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.attention.visibility import visible
from workbench.sequences.builders.document import DocumentBuilder

DRAWS = Draws(0, "task", "builder", number=(0,))
TRIPLE = {"relation": "P1", "relation_text": "flows past", "tail": "Q2", "tail_text": "Hamburg"}
MIXTURE = {"bidirectional": 2, "prefix": 2, "causal": 1, "anticausal": 1}
MORE = {"mention": [0, 3], "captions": ["small boats"], "questions": [{"question": "the old river"}]}


def built(name, visibility, tokenizer, texts):
    options = {"image_processor": None} if name in ("image_caption", "question_image") else {}
    options |= {"marker": "."} if name == "mention" else {}
    spec = {"builder": name, "visibility": visibility, **options}
    about = {"corpus": "c", "label": "river", "triples": [TRIPLE], **MORE}
    given = [{"key": f"k{i}", "draw": (0, i), "text": text, **about} for i, text in enumerate(texts)]
    return build("builder", spec, "", tokenizer=tokenizer, max_length=64)(given, DRAWS)


@pytest.mark.parametrize("name", ["document", "sentence_pair", "triple", "mention", "image_caption", "question_image"])
def test_causal_counts_the_rows(name, tokenizer, sentences):
    for sequence in built(name, "causal", tokenizer, sentences):
        assert sequence.streams["text"]["rank"].tolist() == list(range(sequence.length("text")))
    for sequence in built(name, "bidirectional", tokenizer, sentences):
        assert "rank" not in sequence.streams["text"]
    for sequence in built(name, "anticausal", tokenizer, sentences):
        assert sequence.streams["text"]["rank"].tolist() == list(range(sequence.length("text")))[::-1]


def test_packed_documents_count_by_themselves(tokenizer, sentences):
    sequences = built("packed", "causal", tokenizer, sentences)
    assert any(sequence.streams["text"]["doc"].max() > 1 for sequence in sequences)
    for sequence in sequences:
        doc = sequence.streams["text"]["doc"].tolist()
        assert sequence.streams["text"]["rank"].tolist() == [doc[:i].count(d) for i, d in enumerate(doc)]


@pytest.mark.parametrize(("name", "segments"), [("sentence_pair", 2), ("triple", 3)])
def test_prefix_counts_in_the_last_segment(name, segments, tokenizer, sentences):
    for sequence in built(name, "prefix", tokenizer, [f"{sentence} It is old." for sentence in sentences]):
        text = sequence.streams["text"]
        ends = [i for i, token in enumerate(text["input_ids"].tolist()) if token == tokenizer.id("sep")]
        assert len(ends) == segments
        rest = sequence.length("text") - ends[-2] - 1
        assert text["rank"].tolist() == [0] * (ends[-2] + 1) + list(range(1, rest + 1))


def test_a_text_of_one_segment_is_all_prefix(tokenizer):
    [sequence] = built("sentence_pair", "prefix", tokenizer, ["river"])
    assert sequence.streams["text"]["rank"].tolist() == [0, 0, 0]


def test_a_builder_without_segments_has_no_prefix(tokenizer):
    with pytest.raises(WorkbenchError, match=r"visibility.*bidirectional.*causal"):
        build("builder", {"builder": "document", "visibility": "prefix"}, "", tokenizer=tokenizer, max_length=64)


@pytest.mark.parametrize(
    ("visibility", "alone"),
    [
        ("bidirectional", "bidirectional"),
        ("causal", "causal"),
        ("anticausal", "anticausal"),
        ("prefix", "bidirectional"),
        (MIXTURE, "bidirectional"),
    ],
)
def test_texts_by_themselves_are_framed_and_seen_as_the_task_had_them(visibility, alone, tokenizer):
    pair = build(
        "builder", {"builder": "sentence_pair", "visibility": visibility}, "", tokenizer=tokenizer, max_length=64
    )
    assert DocumentBuilder.like(pair).frame.visibility == alone
    plain = DocumentBuilder(tokenizer, 32, begin=None, end="sep", visibility="causal")
    assert vars(DocumentBuilder.like(plain).frame) == vars(plain.frame)


def pairs(tokenizer, visibility=MIXTURE):
    return build(
        "builder", {"builder": "sentence_pair", "visibility": visibility}, "", tokenizer=tokenizer, max_length=64
    )


def mixed(tokenizer, sentences, count=24):
    """Sequences of a mixture, each with its visibility."""
    samples = [{"key": str(i), "draw": (0, i), "text": " ".join(sentences)} for i in range(count)]
    builder = pairs(tokenizer)
    arranged = builder.arrange(samples, DRAWS)
    return [
        (sample["visibility"], sequence) for sample, sequence in zip(arranged, builder(arranged, DRAWS), strict=True)
    ]


def may_see(visibility, first, i, j):
    """UniLM's self-attention mask (arXiv:1905.03197, figure 1 and section 2.3), `first` tokens in the first segment."""
    if visibility == "bidirectional":
        return True
    if visibility == "causal":
        return j <= i
    if visibility == "anticausal":
        return j >= i
    return j < first if i < first else j < first or j <= i


def test_masks_and_segments_of_a_mixture_are_unilms(tokenizer, sentences):
    types = {"bidirectional": {0, 1}, "causal": {2}, "anticausal": {3}, "prefix": {4, 5}}
    found = mixed(tokenizer, sentences)
    assert {visibility for visibility, _ in found} == set(MIXTURE)
    for visibility, sequence in found:
        text = sequence.streams["text"]
        length, ends = sequence.length("text"), np.flatnonzero(text["input_ids"] == tokenizer.id("sep"))
        assert len(ends) == len(types[visibility]) == len(set(text["token_type_ids"].tolist()) & types[visibility])
        first = int(ends[0]) + 1
        assert text["token_type_ids"].tolist() == [min(types[visibility])] * first + [max(types[visibility])] * (
            length - first
        )
        integers = {"rank": torch.from_numpy(text["rank"])} if "rank" in text else {}
        seen = visible(integers, integers)
        expected = [[may_see(visibility, first, i, j) for j in range(length)] for i in range(length)]
        assert (torch.ones(length, length, dtype=torch.bool) if seen is None else seen).tolist() == expected


def test_a_mixture_has_its_shares_and_a_text_its_visibility_in_any_company(tokenizer):
    samples = [{"key": str(i), "draw": (0, i), "text": "river"} for i in range(3000)]
    builder = pairs(tokenizer)
    drawn = [sample["visibility"] for sample in builder.arrange(samples, DRAWS)]
    assert [sample["visibility"] for sample in builder.arrange(samples[5:9], DRAWS)] == drawn[5:9]
    for visibility, count in Counter(drawn).items():
        share = MIXTURE[visibility] / 6
        assert abs(count - 3000 * share) < 4 * np.sqrt(3000 * share * (1 - share))
    assert pairs(tokenizer, "causal").arrange(samples, DRAWS) is samples


def test_outside_of_training_a_mixture_is_read_in_both_directions_or_as_is_said(tokenizer):
    builder = pairs(tokenizer).evaluating()
    sample = {"key": "k", "draw": (0, 1), "text": "the old river"}
    [plain], [asked] = builder([sample], DRAWS), builder([{**sample, "visibility": "prefix"}], DRAWS)
    assert "rank" not in plain.streams["text"]
    assert set(plain.streams["text"]["token_type_ids"]) == {0}
    assert set(asked.streams["text"]["token_type_ids"]) == {4}


@pytest.mark.parametrize(
    ("visibility", "message"),
    [
        ({"causal": 1, "prefix": 1}, "a mixture must include bidirectional sequences"),
        ({"bidirectional": 1, "causal": 0}, "visibility.*above 0"),
        ({"bidirectional": 1}, "visibility"),
        ({"bidirectional": 1, "sideways": 1}, "anticausal"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(visibility, message, tokenizer):
    with pytest.raises(WorkbenchError, match=message):
        pairs(tokenizer, visibility)
