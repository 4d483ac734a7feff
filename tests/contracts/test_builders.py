"""Contracts of the builders, on samples that have every field that one of them reads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.contracts.case_finder import case_of, cases_of, components_of, make, over
from tests.contracts.material import TRIPLE, draws, make_samples, plain, small_samples, tokenizer, travelled
from workbench.components.building import build as built
from workbench.core.errors import BadValueError
from workbench.sequences.batch import collate
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.sequence import Sample

EVERY = {
    "transcript": "by the river",
    "words": [[0, 2, 0.0, 0.02], [7, 12, 0.02, 0.05]],
    "frames": {"features": np.ones((6, 3), np.float16), "step": np.float32(0.01)},
    "translations": {"en": "the old river", "de": "Hamburg"},
    "second": "where",
    "choices": ["a", "b"],
    "answers": ["old"],
    "answer_spans": [[0, 3]],
    "turns": ["where does Oslo lie", "in Norway"],
}
UNITS = (None, "text", "captions", "questions", "triples")


def build(name: str) -> Any:
    return make("builder", name, {"max_length": 64})


def samples() -> list[Sample]:
    """Texts with captions, questions, triples, marks, a mention with its type."""
    question = {"question_id": 1, "question": "the old river", "answers": ["the old river"]}
    made = []
    for sample in make_samples(9):
        first, second = (len(word) for word in sample["text"].split()[:2])
        marks = [[0, first, "head"], [first + 1, first + 1 + second, "tail"]]
        extra = {"captions": ["small boats", ""], "questions": [question], "triples": [TRIPLE, TRIPLE], "marks": marks}
        translated = {"translations": {"en": sample["text"], "de": "Hamburg near water"}}
        typed = {"id": sample["key"], "label": "river", "mention": [0, 3], "types": ["x"]}
        made.append({**sample, **extra, **typed, **translated, "labels": {}})
    return made


@over("builder")
def test_sequences_are_whole_and_within_their_length(name: str) -> None:
    builder, given = build(name), samples()
    before = plain(given)
    sequences = builder(given, draws())
    assert plain(given) == before
    assert builder.unit in UNITS
    assert builder.window is None or builder.window > 0
    assert plain(sequences) == plain(travelled(build(name))(given, draws()))
    assert len({s.draw for s in sequences}) == len(sequences) > 0
    assert {s.key for s in sequences} <= {s["key"] for s in given}
    for sequence in sequences:
        text = sequence.streams["text"]
        assert len({len(values) for values in text.values()}) == 1
        assert 0 < len(text["input_ids"]) <= 64
        assert text["taken"].any() == ("taken" in case_of("builder", name).excused)
        ordinary = ~text["special"]
        ordinary[-1] &= text.get("rank", np.zeros(1))[-1] == 0  # what ends a text behind a prefix may be hidden
        assert not np.isin(text["input_ids"][ordinary], tokenizer().special_ids).any()
        for span in [*sequence.spans, *sequence.mask_spans]:
            assert 0 <= span.start < span.end <= len(text["input_ids"])
            assert not text["special"][span.start : span.end].any()
    assert collate(sequences).size == len(sequences)
    assert isinstance(builder.take_dropped(), dict)
    assert builder.take_dropped() == {}


@over("builder", "special")
def test_special_rows_are_special_tokens_and_in_no_span(name: str) -> None:
    for sequence in build(name)(samples(), draws()):
        text = sequence.streams["text"]
        assert np.isin(text["input_ids"][text["special"]], tokenizer().special_ids).all()
        for span in [*sequence.spans, *sequence.mask_spans]:
            assert not text["special"][span.start : span.end].any()


@over("builder", "company")
def test_builders_give_a_sample_the_same_sequences_in_any_company(name: str) -> None:
    builder, given = build(name), samples()
    together = builder(given, draws())
    alone = [sequence for sample in given for sequence in builder([sample], draws(number=(8,)))]
    assert plain(together) == plain(alone)


@over("builder")
def test_company_that_is_excused_is_kept(name: str) -> None:
    given = samples()
    apart = [sequence for sample in given for sequence in build(name)([sample], draws(number=(8,)))]
    assert (len(build(name)(given, draws())) < len(apart)) == ("company" in case_of("builder", name).excused)


@over("builder", "small")
def test_builders_on_empty_and_one_token(name: str) -> None:
    given = [{**sample, "labels": {}, "translations": {"en": sample["text"], "de": ""}} for sample in small_samples()]
    sequences = build(name)(given, draws())
    ids = [i for s in sequences for i in s.streams["text"]["input_ids"].tolist()]
    assert [i for i in ids if i not in tokenizer().special_ids] == tokenizer().encode("river").ids.tolist()


@pytest.mark.parametrize("name", sorted(components_of("builder")))
def test_a_field_that_is_not_there_is_named_and_how_to_prepare_it(name: str) -> None:
    options = cases_of("builder")[name].case.options if name in cases_of("builder") else {}
    builder = built("builder", {"builder": name, **options}, "", tokenizer=tokenizer(), max_length=64)
    whole = {**samples()[0], **EVERY}
    assert builder([whole], draws())
    needed = {builder.unit, *builder.reads} - {None}
    for field in needed or {"text"}:
        lacking = {key: value for key, value in whole.items() if key != field}
        with pytest.raises(BadValueError, match=f"it has no '{field}'.*{re.escape(how_to_prepare(field))}"):
            builder([lacking], draws())
