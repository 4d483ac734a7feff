"""The builder `cloze`: the pattern around texts, and the place of its mask."""

from __future__ import annotations

import pytest

from tests.contracts.cases import BuilderCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.builders.cloze import ClozeBuilder
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

SMALL = {"small": "the words of the pattern are in every sequence"}
CASES = {
    "": BuilderCase({"pattern": "{text} is {mask} ."}, SMALL),
    "pair": BuilderCase({"pattern": "{text} is || it is {mask} ."}, SMALL),
}
DRAWS = Draws(0, "t", "builder", number=(0,))


def read(tokenizer: Tokenizer, made: Sequence) -> tuple[str, list[str]]:
    """The tokens of a sequence, and those at its masks."""
    ids = made.fields("text")["input_ids"]
    return " ".join(tokenizer.tokens(ids)), [t for s in made.mask_spans for t in tokenizer.tokens(ids[s.start : s.end])]


def build(tokenizer: Tokenizer, pattern: str, length: int = 40, **sample: object) -> tuple[ClozeBuilder, Sequence]:
    builder = ClozeBuilder(tokenizer, length, pattern)
    (made,) = builder([{"key": "a", "draw": (3,), "text": "people in Hamburg", **sample}], DRAWS)
    return builder, made


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("{text} is {mask} .", ("people in Hamburg is {} .",)),
        ("{mask} . {text}", ("{} . people in Hamburg",)),
        ("{text} ? || {mask} , {second}", ("people in Hamburg ?", "{} , old Paris")),
        ("{second} ? || {mask} , {text}", ("old Paris ?", "{} , people in Hamburg")),
        ("{text} || it is {mask} .", ("people in Hamburg", "it is {} .")),
    ],
)
def test_the_pattern_stands_around_the_texts(tokenizer: Tokenizer, pattern: str, wanted: tuple[str, ...]) -> None:
    builder, made = build(tokenizer, pattern, second="old Paris")
    framed = [tokenizer.id("cls")]
    for part in wanted:
        framed += [*tokenizer.encode(part.format(builder.placeholder)).ids, tokenizer.id("sep")]
    assert made.fields("text")["input_ids"].tolist() == framed
    assert read(tokenizer, made)[1] == [builder.placeholder]


def test_a_long_text_is_cut_and_the_pattern_stays(tokenizer: Tokenizer) -> None:
    builder, made = build(tokenizer, "{text} is {mask} .", 16, text="people in Hamburg " * 20)
    words, masked = read(tokenizer, made)
    assert len(made.fields("text")["input_ids"]) <= 16
    assert words.endswith(f"is {masked[0]} . [SEP]")
    assert builder.take_dropped()["truncated tokens"] > 20


def test_entities_move_with_their_text(tokenizer: Tokenizer) -> None:
    for pattern in ("{text} is {mask} .", "it is {mask} : {text}", "{second} || {mask} {text}"):
        _, made = build(tokenizer, pattern, spans=[[10, 17, "Q-Hamburg", 1.0]], second="old")
        (span,) = made.spans
        found = made.fields("text")["input_ids"][span.start : span.end].tolist()
        assert found == tokenizer.encode("Hamburg").ids.tolist()


def test_what_is_left_out_is_counted(tokenizer: Tokenizer) -> None:
    spans = [[10, 17, "Q-Hamburg", 1.0], [370, 377, "Q-Hamburg", 1.0]]
    builder, made = build(tokenizer, "{text} is {mask} .", 16, text="people in Hamburg " * 30, spans=spans)
    assert len(made.spans) == 1
    assert builder.take_dropped()["span cut off"] == 1
    builder, _ = build(tokenizer, "{text} is {mask} .", second="old Paris")
    assert builder.take_dropped() == {"second text without a place in the pattern": 1}


@pytest.mark.parametrize(
    "pattern",
    ["{text}", "{mask}", "{text} {mask} {mask}", "{text} {mask} {second}", "it || {text} {mask}",
     "{text} {word} {mask}", "{text} {mask} || ", "{text} || {second} || {mask}"],
)  # fmt: skip
def test_another_form_is_refused(tokenizer: Tokenizer, pattern: str) -> None:
    with pytest.raises(WorkbenchError, match=r"pattern: .*allowed: one \{text\} and one \{mask\}"):
        ClozeBuilder(tokenizer, 40, pattern)


def test_what_does_not_fit_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match=r"max_length = 6 leaves no room.*allowed: at least"):
        ClozeBuilder(tokenizer, 6, "{text} is {mask} .")
    with pytest.raises(WorkbenchError, match="has no second text; use a corpus of pairs"):
        build(tokenizer, "{text} ? || {mask} , {second}")
