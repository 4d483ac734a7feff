"""Contracts of the transforms, on sequences with mentions, what is to be masked, an image and an entity stream."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tests.contracts.case_finder import case_of, make, over
from tests.contracts.material import FEATURES, draws, plain, travelled
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Mark, Rows, Sequence, Span, text_fields


def linked(length: int, spans: list[tuple[int, int, str]], mask: tuple[int, int] | None = None, **doc: Any) -> Sequence:
    """A sequence for transforms: text with mentions, a stretch to be masked, a mention to be typed, an entity
    stream."""
    text = {**text_fields(np.arange(1, length + 1)), **doc}
    tokens = np.unique(np.array([0, *(start for start, _, _ in spans)], np.int64))[:length]
    entity = {"entity_ids": np.arange(len(tokens)), "token": Rows("text", tokens, bound=True)}
    image = {"features": np.ones((2, FEATURES), np.float32), "boxes": np.zeros((2, 4), np.float32)}
    masks = [Span(*mask, "")] if mask else []
    marks = [Mark("mention", length - 2, length)] if length > 2 else []
    return Sequence(
        {"text": text, "entity": entity, "image": image},
        (length,),
        f"k{length}",
        [Span(*span) for span in spans],
        mask_spans=masks,
        marks=marks,
        languages=("en",),
    )


def step_sequences() -> list[Sequence]:
    """No token, one token, plain mentions, mentions in mentions, several documents, and what is to be masked."""
    packed = np.array([1, 1, 1, 2, 2, 2, 2])
    return [
        linked(0, []),
        linked(1, []),
        linked(1, [(0, 1, "Q1")]),
        linked(9, [(1, 3, "Q1"), (4, 5, "Q2"), (6, 7, "Q9")], (7, 8)),
        linked(10, [(1, 5, "Q9"), (2, 3, "Q2"), (5, 8, "Q1"), (6, 7, "Q2")]),
        linked(7, [(1, 2, "Q1"), (5, 7, "Q2")], (1, 3), doc=packed),
        linked(6, []),
    ]


def step_input(name: str) -> list[Sequence]:
    """The sequences for a transform; without the stream that it adds."""
    sequences = step_sequences()
    for sequence in sequences:
        for added in case_of("transform", name).adds:
            sequence.streams.pop(added, None)
    return sequences


def tokens(sequence: Sequence, rows: Any) -> list[int]:
    """The words of the sentence at these rows; what a transform inserted has none."""
    return [word for word in sequence.streams["text"]["word_ids"][rows].tolist() if word >= 0]


def same_or_cut(name: str, before: list[Any], after: list[Any]) -> bool:
    """Whether both are the same, or, where a transform may cut, the second is the first with gaps."""
    rest = iter(before)
    return all(each in rest for each in after) if "keeps" in case_of("transform", name).excused else before == after


@over("transform")
def test_steps_depend_on_their_input_alone(name: str) -> None:
    transform = make("transform", name)
    given = step_input(name)
    before = plain(given)
    made = plain(transform(given, draws()))
    drawn = "seed" in case_of("transform", name).excused
    for again in (transform, travelled(transform)):
        assert plain(again(step_input(name), draws(seed=0 if drawn else 1))) == made
    assert drawn == any(plain(transform(step_input(name), draws(seed=seed))) != made for seed in range(1, 9))
    assert [plain(transform([sequence], draws())[0]) for sequence in step_input(name)] == made
    assert transform([], draws()) == []
    for sequence in given:
        for added in case_of("transform", name).adds:
            stream, _, field = added.partition(".")
            (sequence.streams[stream] if field else sequence.streams).pop(field or stream, None)
    assert plain(given) == before


@over("transform")
def test_streams_stay_whole(name: str) -> None:
    given = step_input(name)
    made = make("transform", name)(copy.deepcopy(given), draws())
    assert [(s.draw, s.key, s.labels) for s in made] == [(s.draw, s.key, s.labels) for s in given]
    for before, after in zip(given, made, strict=True):
        for fields in after.streams.values():
            assert len({len(values) for values in fields.values()}) == 1
        kept = {n: v for n, v in after.streams["image"].items() if f"image.{n}" not in case_of("transform", name).adds}
        assert plain(kept) == plain(before.streams["image"])
        old, new = before.streams["text"], after.streams["text"]
        sentence = new["word_ids"] >= 0
        assert same_or_cut(name, old["word_ids"].tolist(), new["word_ids"][sentence].tolist())
        moved = {"position_ids"} if "positions" in case_of("transform", name).excused else set()
        for field in set(old) - {"word_ids"} - moved:
            assert new[field].dtype == old[field].dtype
            assert same_or_cut(name, old[field].tolist(), new[field][sentence].tolist()), field
        assert new["taken"][~sentence].all(), "no objective labels what a transform inserted"
        assert not new["special"][~sentence].any()
    assert collate(made).size == len(given)


@over("transform")
def test_what_points_into_the_text_points_at_the_same_tokens(name: str) -> None:
    given = step_input(name)
    for before, after in zip(given, make("transform", name)(copy.deepcopy(given), draws()), strict=True):
        for spans in ("spans", "mask_spans"):
            old, new = (
                [(tokens(s, slice(span.start, span.end)), span.entity, span.score) for span in getattr(s, spans)]
                for s in (before, after)
            )
            assert same_or_cut(name, sorted(old), sorted(new))
        for span in after.mask_spans:
            assert (after.streams["text"]["word_ids"][span.start : span.end] >= 0).all()
        documents = before.streams["text"].get("doc", np.zeros(before.length("text")))
        starts = {tokens(before, [span.start])[0] for span in before.spans}
        starts |= set(np.flatnonzero(np.diff(documents, prepend=-1)).tolist())
        hung = tokens(after, after.streams["entity"]["token"].index)
        assert len(hung) == after.length("entity")
        assert set(hung) <= starts
        if "entity" in before.streams:
            assert same_or_cut(name, tokens(before, before.streams["entity"]["token"].index), hung)
        if after.marks or "keeps" not in case_of("transform", name).excused:
            found = [[(m.name, tokens(s, slice(m.start, m.end))) for m in s.marks] for s in (before, after)]
            assert found[0] == found[1]


@over("transform", "keeps")
def test_no_mention_and_no_token_is_lost(name: str) -> None:
    given = step_input(name)
    for before, after in zip(given, make("transform", name)(copy.deepcopy(given), draws()), strict=True):
        assert len(tokens(after, slice(None))) == before.length("text")
        assert [s.entity for s in after.spans] == [s.entity for s in before.spans]


@over("transform", "dropped")
def test_what_a_step_drops_is_reported_once(name: str) -> None:
    transform = make("transform", name)
    transform(step_input(name), draws())
    dropped = transform.take_dropped()
    assert dropped
    assert all(isinstance(reason, str) and number > 0 for reason, number in dropped.items())
    assert transform.take_dropped() == {}
