"""Row operations against lists of rows that carry their annotations with them, on random sequences and operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from workbench.sequences.batch import collate
from workbench.sequences.rows import NEW, drop, insert, insert_behind, recount, rows_of, take
from workbench.sequences.sequence import Mark, Rows, Sequence, Span, text_fields


@dataclass(eq=False)
class Row:
    """A row as an object: what it says, and the rows that it names."""

    number: int
    new: bool = False
    head: Row | None = None
    token: Row | None = None


@dataclass
class Lists:
    """The oracle: streams as lists of rows; stretches and labels as lists of the rows they cover."""

    text: list[Row]
    entity: list[Row]
    stretches: list[list[Row]] = field(default_factory=list)
    labelled: list[Row] = field(default_factory=list)

    def arrange(self, rows: list[Row]) -> None:
        """The text has these rows now; a stretch takes in what was inserted into it."""
        old, self.text = self.text, rows
        for row in rows:
            row.head = row.head if row.head in rows else None
        self.entity = [row for row in self.entity if row.token is None or row.token in rows]
        wider = [self._between(stretch) for stretch in self.stretches]
        self.stretches = [
            now
            for stretch, now in zip(self.stretches, wider, strict=True)
            if [row for row in now if row in old] == stretch
        ]

    def _between(self, stretch: list[Row]) -> list[Row]:
        places = [self.text.index(row) for row in (stretch[0], stretch[-1]) if row in self.text]
        return self.text[places[0] : places[-1] + 1] if places else []


def made(rng: np.random.Generator) -> tuple[Sequence, Lists]:
    """A random sequence and the same as lists."""
    n, m = int(rng.integers(1, 14)), int(rng.integers(0, 6))
    text, entity = [Row(100 + i) for i in range(n)], [Row(500 + i) for i in range(m)]
    heads, tokens = rng.integers(-1, n, n), rng.integers(-1, n, m)
    for rows, links, name in ((text, heads, "head"), (entity, tokens, "token")):
        for row, link in zip(rows, links.tolist(), strict=True):
            setattr(row, name, text[link] if link >= 0 else None)
    bounds = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for _ in range(3)]
    labelled = rng.permutation(n)[: int(rng.integers(0, n))] if rng.random() < 0.3 else np.zeros(0, np.int64)
    fields = text_fields(np.array([row.number for row in text]), token_type_ids=rng.integers(0, 2, n))
    fields["head"] = Rows("text", heads)
    fields["weight"] = rng.random((n, 2)).astype(np.float32)
    hung = {"entity_ids": np.array([row.number for row in entity], np.int64), "token": Rows("text", tokens, bound=True)}
    (a, b), (c, d), (e, f) = bounds
    sequence = Sequence(
        {"text": fields, "entity": hung}, (0,), "k", spans=[Span(a, b, "Q1", 0.5), Span(0, 1, "Q2", 1.0, "entity")]
    )
    sequence.mask_spans, sequence.marks = [Span(c, d, "")], [Mark("head", e, f)]
    if len(labelled):
        sequence.targets["mlm"] = {"rows": Rows("text", labelled), "labels": labelled + 7}
    return sequence, Lists(text, entity, [text[a:b], text[c:d], text[e:f]], [text[i] for i in labelled])


def check(sequence: Sequence, lists: Lists) -> None:
    text, entity = sequence.streams["text"], sequence.streams["entity"]
    assert {len(value) for value in text.values()} == {len(lists.text)}
    assert text["input_ids"].tolist() == [row.number for row in lists.text]
    assert text["word_ids"].tolist() == [-1 if row.new else row.number - 100 for row in lists.text]
    assert text["taken"].tolist() == [row.new for row in lists.text]
    assert text["head"].index.tolist() == [lists.text.index(row.head) if row.head else -1 for row in lists.text]
    assert entity["entity_ids"].tolist() == [row.number for row in lists.entity]
    assert entity["token"].index.tolist() == [lists.text.index(row.token) if row.token else -1 for row in lists.entity]
    stretches = [*sequence.spans, *sequence.mask_spans, *sequence.marks]
    own = [(s.start, s.end) for s in stretches if s.stream == "text"]
    assert own == [(lists.text.index(rows[0]), lists.text.index(rows[-1]) + 1) for rows in lists.stretches]
    assert sum(s.stream == "entity" for s in stretches) <= 1
    if lists.labelled:
        targets = sequence.targets["mlm"]
        assert targets["rows"].index.tolist() == [lists.text.index(row) for row in lists.labelled]


def permuted(rng: np.random.Generator, sequence: Sequence, lists: Lists) -> None:
    """Segments in another order, some of them left out, new rows among them."""
    n = len(lists.text)
    cuts = np.unique(rng.integers(0, n + 1, 3))
    segments = [part for part in np.split(np.arange(n), cuts) if len(part)]
    order = [segments[i] for i in rng.permutation(len(segments))]
    if len(order) > 1 and not lists.labelled:
        order.pop()
    rows: list[int] = []
    for segment in order:
        rows += [*([NEW] * int(rng.integers(0, 2))), *segment.tolist()]
    numbers = [900 + i for i, row in enumerate(r for r in rows if r == NEW)]
    fresh = iter(numbers)
    take(sequence, rows, input_ids=np.array(numbers, np.int64))
    lists.arrange([Row(next(fresh), new=True) if row == NEW else lists.text[row] for row in rows])


def inserted(rng: np.random.Generator, sequence: Sequence, lists: Lists) -> None:
    before = rng.integers(0, len(lists.text) + 1, int(rng.integers(0, 5)))
    fresh = [Row(700 + i, new=True) for i in range(len(before))]
    where = insert(sequence, before, input_ids=np.array([row.number for row in fresh], np.int64))
    rows: list[Row] = []
    for i in range(len(lists.text) + 1):
        rows += [row for row, b in zip(fresh, before.tolist(), strict=True) if b == i]
        rows += lists.text[i : i + 1]
    lists.arrange(rows)
    assert [lists.text[i] for i in where.tolist()] == fresh


def dropped(rng: np.random.Generator, sequence: Sequence, lists: Lists) -> None:
    gone = np.array([rng.random() < 0.2 and row not in lists.labelled for row in lists.text], np.bool_)
    if gone.all():
        gone[0] = False
    drop(sequence, gone if rng.random() < 0.5 else np.flatnonzero(gone))
    lists.arrange([row for row, lost in zip(lists.text, gone.tolist(), strict=True) if not lost])


@pytest.mark.parametrize("seed", range(150))
def test_random_operations_equal_lists_of_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequence, lists = made(rng)
    check(sequence, lists)
    for _ in range(4):
        [permuted, inserted, dropped][int(rng.integers(3))](rng, sequence, lists)
        check(sequence, lists)
    collate([sequence, sequence.copy()])


def plain(n: int = 6, **fields: Any) -> Sequence:
    return Sequence({"text": {**text_fields(np.arange(n)), **fields}}, (0,))


def test_new_rows_resemble_the_next_row_or_the_one_that_is_named() -> None:
    segments = np.array([0, 0, 0, 1, 1, 1])
    sequence = plain(token_type_ids=segments)
    insert(sequence, np.array([3, 6]), input_ids=9)
    assert sequence.streams["text"]["token_type_ids"].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert sequence.streams["text"]["input_ids"].tolist() == [0, 1, 2, 9, 3, 4, 5, 9]
    sequence = plain(token_type_ids=segments)
    insert(sequence, np.array([3]), like=np.array([2]), input_ids=9, taken=False)
    assert sequence.streams["text"]["token_type_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert not sequence.streams["text"]["taken"].any()


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_several_sequences_at_once_are_as_one_after_the_other(seed: int, plain: bool) -> None:
    """Whether all have the same fields, which are joined then, or some have links among theirs."""
    rng = np.random.default_rng(seed)
    sequences = [made(rng)[0] for _ in range(int(rng.integers(1, 5)))]
    for sequence in sequences:
        if plain or rng.random() < 0.3:
            del sequence.streams["text"]["head"]
    lengths = [sequence.length("text") for sequence in sequences]
    own = [np.sort(rng.integers(0, n, int(rng.integers(0, 6)))) for n in lengths]
    ids = [rng.integers(900, 990, len(rows)) for rows in own]
    alone = [sequence.copy() for sequence in sequences]
    for sequence, rows, new in zip(alone, own, ids, strict=True):
        insert(sequence, rows + 1, like=rows, input_ids=new)
    last = np.concatenate([rows + sum(lengths[:i]) for i, rows in enumerate(own)])
    reported = insert_behind(sequences, last, input_ids=np.concatenate(ids))
    for sequence, other, new in zip(sequences, alone, reported, strict=True):
        assert new.tolist() == sequence.streams["text"]["taken"].tolist()
        assert (sequence.spans, sequence.mask_spans, sequence.marks) == (other.spans, other.mask_spans, other.marks)
        for stream, fields in other.streams.items():
            assert list(sequence.streams[stream]) == list(fields)
            for name, value in fields.items():
                found = sequence.streams[stream][name]
                np.testing.assert_array_equal(np.asarray(found), np.asarray(value))
                assert np.asarray(found).dtype == np.asarray(value).dtype
        if "mlm" in other.targets:
            assert sequence.targets["mlm"]["rows"].index.tolist() == other.targets["mlm"]["rows"].index.tolist()
    assert insert_behind([], np.zeros(0, np.int64)) == []


def test_sentinels_and_a_decoders_stream() -> None:
    """T5's spans: each is a sentinel in the text, and stands behind its sentinel in another stream."""
    sequence = plain(8)
    text = sequence.streams["text"]
    sequence.streams["target"] = rows_of(text, [NEW, 2, 3, NEW, 6, NEW], input_ids=np.array([90, 91, 92]))
    take(sequence, [0, 1, NEW, 4, 5, NEW, 7], input_ids=np.array([90, 91]))
    recount(sequence)
    recount(sequence, "target")
    assert sequence.streams["text"]["input_ids"].tolist() == [0, 1, 90, 4, 5, 91, 7]
    assert sequence.streams["text"]["position_ids"].tolist() == list(range(7))
    assert sequence.streams["target"]["input_ids"].tolist() == [90, 2, 3, 91, 6, 92]
    assert sequence.streams["target"]["position_ids"].tolist() == list(range(6))
    batch = collate([sequence, sequence.copy()])
    assert batch.streams["text"].lengths == [7, 7]
    assert batch.streams["target"].lengths == [6, 6]


def test_positions_and_ranks_are_counted_by_document() -> None:
    sequence = plain(9, doc=np.array([1, 1, 1, 1, 2, 2, 2, 2, 2]), rank=np.array([0, 1, 2, 3, 0, 0, 1, 2, 3]))
    drop(sequence, np.array([1, 6]))
    insert(sequence, np.array([2, 3]), input_ids=7)
    recount(sequence)
    text = sequence.streams["text"]
    assert text["doc"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert text["position_ids"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert text["rank"].tolist() == [0, 1, 2, 3, 0, 0, 0, 1, 2]


def test_ranks_of_what_is_read_from_right_to_left_count_down() -> None:
    sequence = plain(7, doc=np.array([1, 1, 1, 2, 2, 2, 2]), rank=np.array([2, 1, 0, 3, 2, 1, 0]))
    drop(sequence, np.array([4]))
    insert(sequence, np.array([1]), input_ids=7)
    recount(sequence)
    assert sequence.streams["text"]["rank"].tolist() == [3, 2, 1, 0, 2, 1, 0]


def test_rows_bound_to_rows_that_go_take_others_with_them() -> None:
    sequence = plain(3)
    sequence.streams["entity"] = {"entity_ids": np.array([7, 8]), "token": Rows("text", np.array([0, 2]), bound=True)}
    sequence.streams["fact"] = {
        "entity_ids": np.array([5, 6, 4]),
        "of": Rows("entity", np.array([1, 0, -1]), bound=True),
    }
    sequence.streams["text"]["entity"] = Rows("entity", np.array([0, -1, 1]))
    drop(sequence, np.array([0]))
    assert sequence.streams["entity"]["entity_ids"].tolist() == [8]
    assert sequence.streams["fact"]["entity_ids"].tolist() == [5, 4]
    assert sequence.streams["fact"]["of"].index.tolist() == [0, -1]
    assert sequence.streams["text"]["entity"].index.tolist() == [-1, 0]


def test_a_stream_may_lose_all_rows_and_get_new_ones() -> None:
    sequence = plain(2)
    drop(sequence, np.arange(2))
    assert sequence.length("text") == 0
    insert(sequence, np.array([0, 0]), input_ids=np.array([3, 4]))
    assert sequence.streams["text"]["input_ids"].tolist() == [3, 4]
    assert sequence.streams["text"]["token_type_ids"].tolist() == [0, 0]


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    sequence = plain()
    for rows, reported in (([0, 7], "row 7 of a stream with 6"), ([0, 1, 1], "row 1 is taken twice")):
        with pytest.raises(ValueError, match=reported):
            take(sequence, rows)
    with pytest.raises(ValueError, match="no field 'rank'; it has char_end"):
        insert(sequence, np.array([0]), rank=1)
    sequence.targets["mlm"] = {"rows": Rows("text", np.array([4])), "labels": np.array([9])}
    with pytest.raises(ValueError, match=r"row 4 of the stream 'text' is labelled by the objective 'mlm'"):
        drop(sequence, np.array([4]))
    sequence.streams["image"] = {"pixels": np.zeros((1, 3, 4, 4)), "boxes": np.zeros((5, 4))}
    with pytest.raises(ValueError, match=r"an entry a row; found pixels: 1, boxes: 5"):
        drop(sequence, np.array([0]), "image")
    assert sequence.streams["text"]["input_ids"].tolist() == list(range(6))
