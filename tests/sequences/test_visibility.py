"""Which rows of the text each one sees is said of the builder, and written by it."""

from __future__ import annotations

import pytest

from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.parts.building import build
from workbench.sequences.builders.document import Document

DRAWS = Draws(0, "task", "builder", number=(0,))
TRIPLE = {"relation": "P1", "relation_text": "flows past", "tail": "Q2", "tail_text": "Hamburg"}
MORE = {"mention": [0, 3], "captions": ["small boats"], "questions": [{"question": "the old river"}]}


def built(name, visibility, tokenizer, texts):
    options = {"image": None} if name in ("image_caption", "question_image") else {}
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


def test_packed_documents_count_by_themselves(tokenizer, sentences):
    sequences = built("packed", "causal", tokenizer, sentences)
    assert any(sequence.streams["text"]["doc"].max() > 1 for sequence in sequences)
    for sequence in sequences:
        doc = sequence.streams["text"]["doc"].tolist()
        assert sequence.streams["text"]["rank"].tolist() == [doc[:i].count(d) for i, d in enumerate(doc)]


@pytest.mark.parametrize(("name", "segments"), [("sentence_pair", 2), ("triple", 3)])
def test_prefix_counts_in_the_last_segment(name, segments, tokenizer, sentences):
    for sequence in built(name, "prefix", tokenizer, sentences):
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
    ("visibility", "alone"), [("bidirectional", "bidirectional"), ("causal", "causal"), ("prefix", "bidirectional")]
)
def test_texts_by_themselves_are_framed_and_seen_as_the_task_had_them(visibility, alone, tokenizer):
    pair = build(
        "builder", {"builder": "sentence_pair", "visibility": visibility}, "", tokenizer=tokenizer, max_length=64
    )
    assert Document.like(pair).frame.visibility == alone
    plain = Document(tokenizer, 32, begin=None, end="sep", visibility="causal")
    assert vars(Document.like(plain).frame) == vars(plain.frame)
