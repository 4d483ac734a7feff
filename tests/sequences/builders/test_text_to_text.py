"""The builder `text_to_text`: what is read and what is written, in two streams or in one; what is cut is counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import BuilderCase
from tests.contracts.material import draws, tokenizer
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.sequences.builders.text_to_text import TextToTextBuilder

CASES = {
    "": BuilderCase({"source": "en", "target": "de"}),
    "one stream": BuilderCase(
        {"source": "en", "target": "de", "stream": "text", "visibility": "prefix"},
        {"taken": "what is read there is not to be predicted"},
    ),
}
SAMPLE = {"key": "a", "draw": (0, 3), "text": "the old river", "second": "boats near water"}
PAIR = {"key": "a", "draw": (0, 3), "translations": {"en": "the old river", "de": "boats near water"}}


def build(max_length: int = 40, **options: Any) -> TextToTextBuilder:
    return TextToTextBuilder(tokenizer(), max_length, **options)


def ids(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text).ids.tolist()
    return found


@pytest.mark.parametrize("options", [{}, {"source": "en", "target": "de"}], ids=["second", "translations"])
def test_what_is_read_and_what_is_written(options: dict[str, str]) -> None:
    cls, sep = tokenizer().id("cls"), tokenizer().id("sep")
    sample = PAIR if options else SAMPLE
    (two,) = build(**options)([sample], draws())
    assert two.streams["text"]["input_ids"].tolist() == [cls, *ids("the old river"), sep]
    assert two.streams["target"]["input_ids"].tolist() == [cls, *ids("boats near water"), sep]
    for visibility in ("prefix", "causal"):
        (one,) = build(**options, stream="text", visibility=visibility)([sample], draws())
        text, first = one.streams["text"], 2 + len(ids("the old river"))
        assert text["input_ids"].tolist() == [cls, *ids("the old river"), sep, *ids("boats near water"), sep]
        assert text["taken"].nonzero()[0].tolist() == list(range(first))
        assert (text["rank"][:first] == 0).all() == (visibility == "prefix")


def test_what_is_too_long_loses_its_end_and_is_counted() -> None:
    long = {**SAMPLE, "text": "river " * 60, "second": "water " * 60}
    for options, lengths in (
        ({"max_target_length": 10}, {"text": 40, "target": 10}),
        ({"max_target_length": 10, "stream": "text", "visibility": "prefix"}, {"text": 40}),
    ):
        builder = build(**options)
        (sequence,) = builder([long], draws())
        assert {name: sequence.length(name) for name in sequence.streams} == lengths
        kept = sum(int((fields["word_ids"] >= 0).sum()) for fields in sequence.streams.values())
        assert builder.take_dropped() == {"truncated tokens": 60 * len(ids("river")) + 60 * len(ids("water")) - kept}


def test_in_evaluation_nothing_need_be_said_of_what_is_written() -> None:
    for options, sample in (({}, {"text": "river"}), ({"source": "en", "target": "de"}, {"text": "river"})):
        asked = {"key": "a", "draw": (0,), **sample}
        (sequence,) = build(**options).evaluating()([asked], draws())
        assert sequence.streams.keys() == {"text"}
        with pytest.raises(BadValueError, match="second" if not options else "translations"):
            build(**options)([asked], draws())
    with pytest.raises(BadValueError, match="in 'fr'"):
        build(source="en", target="fr")([PAIR], draws())


def test_options_that_do_not_go_together_are_refused() -> None:
    for options, message in (
        ({"source": "en"}, "both languages"),
        ({"stream": "text"}, "prefix or causal"),
        ({"visibility": "causal"}, "bidirectional"),
        ({"max_target_length": 2}, "no room"),
        ({"stream": "text", "visibility": "causal", "max_target_length": 40}, "no room"),
    ):
        with pytest.raises(WorkbenchError, match=message):
            build(**options)  # type: ignore[arg-type]
