"""Continuous order: successive windows at a slot, every window once an epoch, as a function of (number, lane)."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.order import EpochOrder
from workbench.corpora.reading.reader import FinitePass, Reader

Windows = list[tuple[str, str, int]]
OPTIONS: dict[str, Any] = {"unit": "text", "window": 40, "order": "continuous"}


def windows(corpus: Corpus) -> dict[tuple[str, int], str]:
    """The text of every window of a corpus by its record and number there, in order."""
    found: dict[tuple[str, int], str] = {}
    numbers: Counter[str] = Counter()
    for sample in Reader.finite([corpus], lanes=1, micro_batch_size=10**6, unit="text", window=40).micro_batch(0, 0):
        found[sample["key"], numbers[sample["key"]]] = sample["text"]
        numbers[sample["key"]] += 1
    return found


def slot_samples(reader: Reader | FinitePass, lane: int, slot: int, steps: int) -> list[dict[str, Any]]:
    """What is read at a slot of a lane, step after step."""
    read = [reader.micro_batch(number, lane) for number in range(steps)]
    return [sample for samples in read for sample in samples if sample["slot"].number == slot]


def check_reads_on(corpus: Corpus, samples: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """A sample continues where it is the next window of the text of the one before it, and else begins a text, or
    stands where a range of windows begins; returns the windows."""
    known = windows(corpus)
    lengths = Counter(key for key, _ in known)
    seen: Counter[tuple[str, int]] = Counter()
    before: tuple[str, int] | None = None
    epoch = -1
    for sample in samples:
        if sample["slot"].continues:
            assert before is not None
            here = (before[0], before[1] + 1)
        else:
            assert before is None or before[1] + 1 == lengths[before[0]] or sample["draw"][1] != epoch
            numbers = [n for n in range(lengths[sample["key"]]) if known[sample["key"], n] == sample["text"]]
            here = (sample["key"], numbers[0])  # of equal windows, which are distinguished by what follows
        assert (sample["key"], sample["text"]) == (here[0], known[here])
        seen[here] += 1
        before, epoch = here, sample["draw"][1]
    return seen


@pytest.mark.parametrize(("lanes", "size"), [(1, 1), (1, 5), (3, 2), (2, 7)])
def test_slots_read_texts_on_and_every_window_once_an_epoch(write: Any, lanes: int, size: int) -> None:
    corpus = write([{"text": " ".join(f"{n}.{i} words continue." for i in range(n % 13))} for n in range(40)])
    reader = Reader([(corpus, 1.0)], seed=3, lanes=lanes, micro_batch_size=size, **OPTIONS)
    total = reader.items(0)
    found: Counter[tuple[str, int]] = Counter()
    draws = []
    for lane in range(lanes):
        for slot in range(size):
            number = lane * size + slot
            width = (number + 1) * total // (lanes * size) - number * total // (lanes * size)
            samples = slot_samples(reader, lane, slot, 2 * width)
            found += check_reads_on(corpus, samples)
            draws += [sample["draw"] for sample in samples]
            assert [s["slot"].continues for s in samples].count(False) < len(samples)
    assert found == Counter(dict.fromkeys(windows(corpus), 2))
    assert sorted(draws) == [(0, epoch, index) for epoch in (0, 1) for index in range(total)]


def test_the_order_of_records_is_shuffled_anew_in_every_epoch(write: Any, texts: Any) -> None:
    corpus = write(texts(50))
    reader = Reader([(corpus, 1.0)], seed=3, lanes=1, micro_batch_size=1, **OPTIONS)
    total = reader.items(0)
    samples = slot_samples(reader, 0, 0, 2 * total)
    orders = [list(dict.fromkeys(s["key"] for s in samples[e * total : (e + 1) * total])) for e in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted({s["key"] for s in samples})
    assert orders[0] != orders[1] != sorted(orders[1])
    assert [reader.epochs(total), reader.epochs(total // 2)] == [[1.0], [total // 2 / total]]


def test_groups_of_shards_keep_the_windows_of_a_record_together() -> None:
    lengths = [np.array([3, 0, 1]), np.array([2]), np.array([0]), np.array([1, 4]), np.array([5])]
    counts = np.array([part.sum() for part in lengths])
    for group_shards in (1, 2, 8):
        order = EpochOrder(counts, seed=9, group_shards=group_shards, runs=lengths.__getitem__)
        for epoch in (0, 3):
            shard, item = order.locate(epoch, np.arange(order.total))
            firsts = {(s, int(first)) for s, part in enumerate(lengths) for first in np.cumsum(part) - part}
            places = list(zip(shard.tolist(), item.tolist(), strict=True))
            assert len(set(places)) == order.total
            for n, (s, i) in enumerate(places):
                assert (s, i) in firsts or places[n - 1] == (s, i - 1)
            one, alone = order.locate(epoch, np.array([7]))
            assert (one[0], alone[0]) == places[7]


def test_reading_on_depends_on_nothing_but_number_and_lane(write: Any, texts: Any) -> None:
    pairs = [(write(texts(60)), 1.0), (write(texts(20, 1), name="b"), 2.0)]
    options = {"seed": 5, "lanes": 4, "micro_batch_size": 3, **OPTIONS}
    whole = Reader(pairs, **options)
    places = [(number, lane) for number in range(30) for lane in range(4)]
    expected = {place: whole.micro_batch(*place) for place in places}
    fresh = pickle.loads(pickle.dumps(Reader(pairs, **options)))
    assert all(fresh.micro_batch(*place) == expected[place] for place in reversed(places))
    late = Reader([(Corpus.open(c.place), w) for c, w in pairs], **options)
    assert late.micro_batch(29, 3) == expected[29, 3]
    other = Reader(pairs, **{**options, "seed": 6})
    assert any(other.micro_batch(*place) != expected[place] for place in places[:5])


def test_a_mixture_gives_every_slot_one_corpus_in_proportion(write: Any, texts: Any) -> None:
    corpora = [write(texts(60)), write(texts(60, 1), name="b"), write(texts(60, 2), name="c")]
    reader = Reader(list(zip(corpora, [4.0, 1.0, 1.0], strict=True)), seed=0, lanes=3, micro_batch_size=4, **OPTIONS)
    read: dict[tuple[int, int], set[int]] = {}
    for lane in range(3):
        for number in range(2 * max(reader.items(c) for c in range(3))):
            for place in reader.places(number, lane):
                assert place.slot is not None
                read.setdefault((lane, place.slot.number), set()).add(place.corpus)
    assert all(len(found) == 1 for found in read.values())
    assert Counter(corpus for found in read.values() for corpus in found) == {0: 8, 1: 2, 2: 2}
    for corpus in range(3):
        assert len({lane for (lane, _), found in read.items() if corpus in found}) > 1
    assert reader.epochs(3) == [3 * n / reader.items(c) for c, n in enumerate((8, 2, 2))]


@pytest.mark.parametrize(("lanes", "size"), [(1, 1), (2, 3), (4, 40)])
def test_a_finite_pass_reads_every_window_once_and_on(write: Any, texts: Any, lanes: int, size: int) -> None:
    corpus = write(texts(30))
    passed = Reader.finite([corpus], lanes=lanes, micro_batch_size=size, **OPTIONS)
    draws = []
    for lane in range(lanes):
        for slot in range(size):
            samples = slot_samples(passed, lane, slot, passed.steps)
            check_reads_on(corpus, samples)
            draws += [sample["draw"][2] for sample in samples]
        assert passed.micro_batch(passed.steps, lane) == []
    assert sorted(draws) == list(range(passed.total))
    assert passed.read == passed.total


def test_a_shortened_finite_pass_reads_the_beginning_of_every_range(write: Any, texts: Any) -> None:
    corpus = write(texts(30))
    options: dict[str, Any] = {"lanes": 2, "micro_batch_size": 3, **OPTIONS}
    whole = Reader.finite([corpus], **options)
    short = Reader.finite([corpus], **options, max_steps=2)
    assert (short.steps, short.read, short.total) == (2, 12, whole.total)
    assert [short.micro_batch(n, lane) for n in (0, 1) for lane in (0, 1)] == [
        whole.micro_batch(n, lane) for n in (0, 1) for lane in (0, 1)
    ]
    assert short.micro_batch(2, 0) == []


def test_what_cannot_be_read_on_is_refused(write: Any, texts: Any, images: Any) -> None:
    corpus = write(texts(30))
    options: dict[str, Any] = {"seed": 0, "lanes": 1, "order": "continuous"}
    with pytest.raises(
        WorkbenchError, match=r"window after window, but the task's builder reads whole records of corpus 'a corpus'"
    ):
        Reader([(corpus, 1.0)], micro_batch_size=2, unit="text", **options)
    photographs = write(images(9), kind="image-text", name="photographs")
    with pytest.raises(WorkbenchError, match=r"elements of captions of corpus 'photographs'"):
        Reader.finite([photographs], lanes=1, micro_batch_size=2, unit="captions", order="continuous")
    with pytest.raises(WorkbenchError, match=r"items for 4000 texts that are read in parallel"):
        Reader([(corpus, 1.0)], micro_batch_size=4000, unit="text", window=40, **options)
    with pytest.raises(
        WorkbenchError, match=r"among the corpora by their weights \[1.0, 99.0\], and one corpus gets none"
    ):
        Reader([(corpus, 1.0), (corpus, 99.0)], micro_batch_size=4, unit="text", window=40, **options)
