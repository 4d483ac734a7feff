"""The builder `translation_pair`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import BuilderCase
from tests.contracts.material import draws, tokenizer
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.sequences.builders.translation_pair import TranslationPairBuilder

CASE = BuilderCase()
SAMPLE = {
    "key": "a",
    "draw": (0, 0, 3),
    "translations": {"en": "the old river", "de": "boats near Hamburg water", "fr": "songs"},
    "translation_spans": {"en": [[8, 13, "Q1", 1.0]], "de": [[11, 18, "Q2", 1.0]], "fr": []},
}


def build(max_length: int = 40, **options: Any) -> TranslationPairBuilder:
    return TranslationPairBuilder(tokenizer(), max_length, **options)


def test_each_sentence_has_its_frame_and_positions_begin_anew() -> None:
    """As `concat_batches` of XLM's code lays two batches with `reset_positions`."""
    (sequence,) = build(languages=["en", "de"]).evaluating()([SAMPLE], draws())
    text, sep = sequence.streams["text"], tokenizer().id("sep")
    first, second = (tokenizer().encode(SAMPLE["translations"][name]).ids.tolist() for name in ("en", "de"))
    assert text["input_ids"].tolist() == [sep, *first, sep, sep, *second, sep]
    lengths = [len(first) + 2, len(second) + 2]
    assert text["position_ids"].tolist() == [*range(lengths[0]), *range(lengths[1])]
    assert text["token_type_ids"].tolist() == [0] * lengths[0] + [1] * lengths[1]
    assert sequence.languages == ("en", "de")
    for span, (name, mention) in zip(sequence.spans, [("en", "river"), ("de", "Hamburg")], strict=True):
        stretch = slice(text["char_start"][span.start], text["char_end"][span.end - 1])
        assert SAMPLE["translations"][name][stretch] == mention


def test_languages_and_their_order_are_drawn() -> None:
    builder = build()
    samples = [{**SAMPLE, "draw": (0, 0, i)} for i in range(600)]
    found = [sequence.languages for sequence in builder(samples, draws())]
    shares = {pair: found.count(pair) / 600 for pair in set(found)}
    assert len(shares) == 6
    assert all(abs(share - 1 / 6) < 0.08 for share in shares.values())  # five deviations
    assert found == [sequence.languages for sequence in build()(samples, draws())]


def test_the_longer_sentence_gives_way_and_what_is_lost_is_counted() -> None:
    long, short = "river " * 20, "river"
    builder = build(max_length=14, languages=["en", "de"]).evaluating()
    for texts, lengths in (((long, short), (9, 1)), ((short, long), (1, 9)), ((long, long), (5, 5))):
        (sequence,) = builder([{**SAMPLE, "translations": dict(zip(("en", "de"), texts, strict=True))}], draws())
        text = sequence.streams["text"]
        kept = tuple(int(((text["token_type_ids"] == i) & ~text["special"]).sum()) for i in range(2))
        assert kept == lengths
        lost = sum(len(tokenizer().encode(each)) for each in texts) - 10
        assert builder.take_dropped()["truncated tokens"] == lost


@pytest.mark.parametrize(
    ("languages", "reported"), [(None, "no 'translations' in two languages"), (["en", "cs"], "in two of en, cs")]
)
def test_a_record_without_two_of_the_languages_is_refused(languages: list[str] | None, reported: str) -> None:
    with pytest.raises(BadValueError, match=reported):
        build(languages=languages)([{**SAMPLE, "translations": {"en": "a"}}], draws())


def test_wrong_options_are_reported() -> None:
    with pytest.raises(WorkbenchError, match="allowed: two or more, each once"):
        build(languages=["en", "en"])
    with pytest.raises(WorkbenchError, match="next to 4 special tokens; use at least 6"):
        build(max_length=5)
