"""What the start of a run costs, and how ranks divide it: windows, indexes, places in a large shuffle."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.gloo_ranks import Phase, on_ranks
from workbench.core.keyed import shuffled_places
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading import items as items_module
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.reading.order import EpochOrder, OrderNumber
from workbench.corpora.shards.index import ShardIndex


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 10, 63, 64, 65, 101, 1000, 4097, 65_537])
def test_a_shuffle_of_single_places_is_a_bijection_of_any_size(size: int) -> None:
    places = np.arange(size)
    moved = shuffled_places(places, size, 7, "items")
    assert sorted(moved.tolist()) == places.tolist()
    some = places[:: max(1, size // 9)]
    assert shuffled_places(some, size, 7, "items").tolist() == moved[some].tolist(), "each place by itself"
    assert size < 10 or moved.tolist() != shuffled_places(places, size, 8, "items").tolist()


def test_a_shuffle_of_single_places_looks_random() -> None:
    """Where each element goes, where its neighbour goes, and how the shuffles of two keys differ: as chance has it."""
    size, keys = 100_003, 12
    moved = np.array([shuffled_places(np.arange(size), size, key) for key in range(keys)])
    cells = 64 * np.arange(size) // size
    expected = size * keys / 64**2
    for pairs in (
        (np.tile(cells, keys), 64 * moved.ravel() // size),
        (64 * moved[:, :-1].ravel() // size, 64 * moved[:, 1:].ravel() // size),
        (64 * moved.ravel() // size, 64 * np.roll(moved, 1, 0).ravel() // size),
    ):
        seen = np.bincount(64 * pairs[0] + pairs[1], minlength=64**2)
        chi = float(((seen - expected) ** 2 / expected).sum())
        assert abs(chi - 63**2) < 5 * (2 * 63**2) ** 0.5
    ahead = np.diff(moved, axis=1) > 0
    assert abs(ahead.mean() - 0.5) < 5 * (1 / 12 / ahead.size) ** 0.5
    correlation = np.corrcoef(moved[:, :-1].ravel(), moved[:, 1:].ravel())[0, 1]
    assert abs(correlation) < 5 / moved.size**0.5
    fixed = (moved == np.arange(size)).sum()
    assert fixed < keys + 5 * keys**0.5
    small = Counter(tuple(shuffled_places(np.arange(3), 3, key).tolist()) for key in range(6000))
    assert len(small) == 6
    assert max(small.values()) < 1000 + 5 * 1000**0.5


def test_order_2_computes_no_permutation_of_a_large_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 65,536 items it is order 1. A place of 10^9 items takes no longer and no more memory than one of 10^5."""
    counts = np.array([40_000, 30_000, 0, 9, 70_001])
    numbers: tuple[OrderNumber, ...] = (1, 2)
    one, two = (EpochOrder(counts, seed=9, group_shards=2, number=number) for number in numbers)
    assert one.locate(3, np.arange(5))[1].tolist() != two.locate(3, np.arange(5))[1].tolist()
    shard, item = two.locate(3, np.arange(two.total))
    assert set(zip(shard.tolist(), item.tolist(), strict=True)) == {
        (s, i) for s, n in enumerate(counts) for i in range(n)
    }
    for small in (np.array([65_536]), np.full(8, 100)):
        places = np.arange(0, small.sum(), 7)
        found = [EpochOrder(small, seed=9, number=number).locate(1, places) for number in numbers]
        assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
    monkeypatch.setattr(EpochOrder, "_permutation", lambda *_: pytest.fail("a permutation of the group"))
    large = EpochOrder(np.full(1000, 10**6), seed=9)
    places = np.arange(0, large.total, large.total // 64)
    shard, item = large.locate(0, places)
    assert len(set(zip(shard.tolist(), item.tolist(), strict=True))) == len(places)
    again = pickle.loads(pickle.dumps(large)).locate(0, places[5:9])
    assert [each.tolist() for each in again] == [shard[5:9].tolist(), item[5:9].tolist()]


def counted_in_shares(world: World, place: str, cache: str, expected: list[int]) -> None:
    """Each rank opens the indexes of its share; later, and with the counts of another rank, none."""
    opened: list[int] = []
    plain = Corpus.index

    def index(self: Corpus, shard: int) -> ShardIndex:
        opened.append(shard)
        return plain(self, shard)

    Corpus.index = index  # type: ignore[method-assign]
    items_module.REMEMBERED = 1
    own = f"{cache}/{world.rank}"
    assert CorpusItems(Corpus.open(place, cache=own), "text", 40, world).counts.tolist() == expected
    assert len(opened) <= -(-len(expected) // world.size)
    assert sorted(shard for rank in world.gather(opened) for shard in rank) == list(range(len(expected)))
    opened.clear()
    items = CorpusItems(Corpus.open(place, cache=own), "text", 40, world)
    assert items.counts.tolist() == expected
    assert not opened
    shutil.rmtree(own)
    other = own if world.rank else f"{cache}/new"  # rank 0 has lost its counts, too
    assert CorpusItems(Corpus.open(place, cache=other), "text", 40, world).counts.tolist() == expected


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_counting_of_windows(write: Any, texts: Any, tmp_path: Path, ranks: int) -> None:
    place = write(texts(60), shard_size=5).place
    expected = CorpusItems(Corpus.open(place), "text", 40).counts.tolist()
    assert len(expected) == 12
    on_ranks([Phase(ranks, counted_in_shares, (place, str(tmp_path / "cache"), expected))], tmp_path / "ranks")


def test_many_local_indexes_are_read_from_their_bundle(
    write: Any, texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing or damaged bundle is no loss: the indexes of the shards are there."""
    corpus = write(texts(80), shard_size=2)
    expected = CorpusItems(corpus, "text", 40).counts.tolist()
    monkeypatch.setattr(Corpus, "_local", lambda *_: pytest.fail("an index by itself"))
    assert CorpusItems(Corpus.open(corpus.place), "text", 40).counts.tolist() == expected
    monkeypatch.undo()
    bundle = Path(corpus.place, "index.bundle")
    content = bundle.read_bytes()
    for damaged in (None, b"", content[:100], content[:-300] + bytes(300), bytes(len(content))):
        bundle.unlink() if damaged is None else bundle.write_bytes(damaged)
        assert CorpusItems(Corpus.open(corpus.place), "text", 40).counts.tolist() == expected


def test_tables_of_many_windows_are_kept(
    write: Any, texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows of a large shard are cut once in a cache folder. A damaged table is cut again."""
    place = write(texts(60), shard_size=60).place
    plain = CorpusItems(Corpus.open(place), "text", 40)
    expected = [plain.stretch(0, item) for item in range(plain.total)]
    monkeypatch.setattr("workbench.corpora.reading.item_table.KEPT", 10)

    def stretches() -> list[Any]:
        items = CorpusItems(Corpus.open(place, cache=tmp_path / "kept"), "text", 40)
        assert items.runs(0).tolist() == plain.runs(0).tolist()
        return [items.stretch(0, item) for item in range(items.total)]

    assert stretches() == expected
    (kept,) = (tmp_path / "kept" / "windows").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(ShardIndex, "windows", lambda *_: pytest.fail("cut again"))
        assert stretches() == expected
    for content in (b"", kept.read_bytes()[:-1], kept.read_bytes()[:-1] + b"\x77"):
        kept.write_bytes(content)
        assert stretches() == expected
