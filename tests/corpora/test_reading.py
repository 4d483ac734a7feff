"""The order is a function of (seed, epoch, index); nothing depends on ranks, workers or restarts."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading import items as items_module
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.reading.lanes import Mixture, block_counts
from workbench.corpora.reading.order import EpochOrder
from workbench.corpora.reading.reader import FinitePass, Reader
from workbench.corpora.shards.record import BadRecordError, decode


def identity(sample: dict[str, Any]) -> tuple[Any, ...]:
    return (sample["corpus"], sample["key"], sample.get("text"), tuple(sample.get("captions", ())))


def lane_samples(reader: Reader | FinitePass, lane: int, numbers: range) -> list[dict[str, Any]]:
    return [sample for number in numbers for sample in reader.micro_batch(number, lane)]


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("lanes", [1, 3, 4])
def test_every_item_once_per_epoch(write: Any, texts: Any, lanes: int, window: int | None) -> None:
    corpus = write(texts(50))
    reader = Reader([(corpus, 1.0)], seed=3, lanes=lanes, micro_batch_size=4, unit="text", window=window)
    total = reader.items(0)
    samples = [s for lane in range(lanes) for s in lane_samples(reader, lane, range(2 * total // lanes // 4 + 3))]
    for epoch in (0, 1):
        draws = [s["draw"][2] for s in samples if s["draw"][1] == epoch]
        assert sorted(draws) == list(range(total))
        found = Counter(identity(s) for s in samples if s["draw"][1] == epoch)
        plain = Counter(identity(s) for s in lane_samples(everything(corpus, window), 0, range(1)))
        assert found == plain
    orders = [[identity(s) for s in samples if s["draw"][1] == e] for e in (0, 1)]
    assert orders[0] != orders[1]


def everything(corpus: Corpus, window: int | None) -> FinitePass:
    return Reader.finite([corpus], lanes=1, micro_batch_size=10**6, unit="text", window=window)


def test_windows_of_an_epoch_join_to_the_texts_with_every_mention(write: Any, texts: Any) -> None:
    corpus = write(texts(50))
    joined: dict[str, str] = {}
    mentions: Counter[tuple[str, str, str]] = Counter()
    for sample in lane_samples(everything(corpus, 30), 0, range(1)):
        joined[sample["key"]] = joined.get(sample["key"], "") + sample["text"]
        mentions.update((sample["key"], sample["text"][a:b], q) for a, b, q, _ in sample["spans"])
        assert all(0 <= a < b <= len(sample["text"]) for a, b, *_ in sample["spans"])
    assert joined == {f"r{i}": s["text"] for i, s in enumerate(texts(50))}
    assert mentions == Counter(
        (f"r{i}", s["text"][a:b], q) for i, s in enumerate(texts(50)) for a, b, q, _ in s["spans"]
    )


def test_elements_of_a_list_are_items(write: Any, images: Any) -> None:
    corpus = write(images(9), kind="image-text", shard_size=4)
    samples = lane_samples(Reader.finite([corpus], lanes=1, micro_batch_size=99, unit="captions"), 0, range(1))
    assert [s["captions"] for s in samples] == [[c] for i in images(9) for c in i["captions"]]
    assert all(len(s["caption_spans"]) == 1 and "image" in s for s in samples)


def test_reading_depends_on_nothing_but_number_and_lane(write: Any, texts: Any) -> None:
    corpus = write(texts(60))
    pairs = [(corpus, 1.0), (write(texts(20, 1), name="b"), 2.0)]
    options: dict[str, Any] = {"seed": 5, "lanes": 6, "micro_batch_size": 3, "unit": "text", "window": 50}
    whole = Reader(pairs, **options)
    places = [(number, lane) for number in range(40) for lane in range(6)]
    expected = {place: whole.micro_batch(*place) for place in places}
    random.Random(0).shuffle(places)
    fresh = pickle.loads(pickle.dumps(Reader(pairs, **options)))
    assert all(fresh.micro_batch(*place) == expected[place] for place in places)
    for ranks in (1, 2, 3):
        for rank in range(ranks):
            own = Reader([(Corpus.open(c.place), w) for c, w in pairs], **options)
            for number in (7, 39):  # resumed in the middle
                for lane in range(rank, 6, ranks):
                    assert own.micro_batch(number, lane) == expected[number, lane]
    other = Reader(pairs, **{**options, "seed": 6})
    assert any(other.micro_batch(*place) != expected[place] for place in places[:5])


class Batches(Dataset):
    """Micro-batches by their place, for the loader's workers."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, place: tuple[int, int]) -> list[dict[str, Any]]:
        return self.reader.micro_batch(*place)


@pytest.mark.parametrize("workers", [1, 2])
def test_loader_workers_give_the_same_samples(write: Any, texts: Any, workers: int) -> None:
    reader = Reader([(write(texts(60)), 1.0)], seed=5, lanes=2, micro_batch_size=3, unit="text", window=50)
    places = [(number, lane) for number in range(20) for lane in range(2)]
    expected = [reader.micro_batch(*place) for place in places]  # files are open when the workers fork
    loader = DataLoader(Batches(reader), batch_size=None, sampler=places, num_workers=workers, collate_fn=list)
    assert list(loader) == expected


def test_lanes_are_consecutive_ranges_of_one_order(write: Any, texts: Any) -> None:
    corpus = write(texts(23))
    reader = Reader([(corpus, 1.0)], seed=1, lanes=4, micro_batch_size=1)
    for lane in range(4):
        first, last = lane * 23 // 4, (lane + 1) * 23 // 4
        draws = [reader.micro_batch(n, lane)[0]["draw"] for n in range(2 * (last - first))]
        assert draws == [(0, epoch, index) for epoch in (0, 1) for index in range(first, last)]


def test_the_order_is_a_permutation_that_mixes_shards() -> None:
    counts = np.array([5, 0, 300, 17, 1, 64, 2, 9, 30, 30, 30, 30, 0, 30])
    for group_shards in (1, 3, 8, 20):
        order = EpochOrder(counts, seed=9, group_shards=group_shards)
        for epoch in (0, 7):
            shard, item = order.locate(epoch, np.arange(order.total))
            found = set(zip(shard.tolist(), item.tolist(), strict=True))
            assert found == {(s, i) for s, n in enumerate(counts) for i in range(n)}
            one, alone = order.locate(epoch, np.array([order.total // 2]))
            assert (one[0], alone[0]) == (shard[order.total // 2], item[order.total // 2])
    mixed, _ = EpochOrder(np.full(8, 100), seed=0).locate(0, np.arange(100))
    assert len(set(mixed.tolist())) == 8


@pytest.mark.parametrize(
    ("weights", "ratio"),
    [([1, 1], [32, 32]), ([1, 3], [16, 48]), ([1, 1, 1], [22, 22, 22]), ([0.5, 0.3, 0.2], [35, 21, 14])],
)
def test_blocks_hold_the_weights_exactly(weights: list[float], ratio: list[int]) -> None:
    assert block_counts([float(w) for w in weights]).tolist() == ratio


def test_mixture_counts_its_draws_without_state() -> None:
    mixture = Mixture([1.0, 2.0, 0.5], seed=4)
    plain: Counter[int] = Counter()
    whole = mixture.draws(2, 0, 1000)
    for corpus, number in zip(*whole, strict=True):
        assert number == plain[int(corpus)]
        plain[int(corpus)] += 1
    jump = Mixture([1.0, 2.0, 0.5], seed=4).draws(2, 777, 100)
    assert np.array_equal(np.stack(jump), np.stack(whole)[:, 777:877])
    other = mixture.draws(3, 0, 1000)
    assert not np.array_equal(other[0], whole[0])
    block = np.bincount(whole[0][: mixture.length])
    assert block.tolist() == mixture.counts.tolist()
    assert block[1] == 2 * block[0] == 4 * block[2]


def test_irrational_weights_come_close_and_hopeless_ones_are_refused() -> None:
    counts = block_counts([2**0.5, 1.0])
    assert counts[0] / counts.sum() == pytest.approx(2**0.5 / (1 + 2**0.5), abs=1e-4)
    with pytest.raises(WorkbenchError, match="differ too much"):
        block_counts([1.0, 1e-9])
    for wrong in ([], [1.0, 0.0], [-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(WorkbenchError, match="must be positive"):
            block_counts(wrong)


def test_each_corpus_of_a_mixture_has_its_own_epochs(write: Any, texts: Any) -> None:
    corpora = [write(texts(64), name="big"), write(texts(12, 1), name="small")]
    reader = Reader([(corpora[0], 1.0), (corpora[1], 3.0)], seed=0, lanes=2, micro_batch_size=4)
    samples = [s for lane in (0, 1) for s in lane_samples(reader, lane, range(32))]
    assert Counter(s["draw"][0] for s in samples) == {0: 64, 1: 192}
    assert reader.epochs(32) == [1.0, 16.0]
    big = [s["draw"] for s in samples if s["draw"][0] == 0]
    assert sorted(big) == [(0, 0, i) for i in range(64)]
    small = Counter(s["draw"][1:] for s in samples if s["draw"][0] == 1)
    assert small == Counter({(epoch, i): 1 for epoch in range(16) for i in range(12)})
    assert {s["corpus"] for s in samples} == {"big", "small"}


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_a_finite_pass_gives_each_item_once_in_one_order(write: Any, texts: Any, lanes: int) -> None:
    corpora = [write(texts(11), name="one", shard_size=4), write(texts(6, 1), name="two")]
    passed = Reader.finite(corpora, lanes=lanes, micro_batch_size=3)
    batches = [passed.micro_batch(n, lane) for n in range(passed.steps) for lane in range(lanes)]
    assert passed.total == 17
    assert [s["key"] for b in batches for s in b] == [f"r{i}" for i in [*range(11), *range(6)]]
    assert [s["draw"] for b in batches for s in b] == [(0, 0, i) for i in range(11)] + [(1, 0, i) for i in range(6)]
    sizes = [len(b) for b in batches]
    assert sizes == [3] * 5 + [2] + [0] * (len(sizes) - 6)
    assert passed.steps == -(-17 // (3 * lanes))
    assert passed.micro_batch(passed.steps, 0) == []


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_a_limited_pass_is_spread_over_the_whole_of_the_corpora(write: Any, texts: Any, lanes: int) -> None:
    corpora = [write(texts(71), name="one", shard_size=10), write(texts(30, 1), name="two")]
    passed = Reader.finite(corpora, lanes=lanes, micro_batch_size=2, max_steps=6 // lanes)
    again = Reader.finite(corpora, lanes=lanes, micro_batch_size=2, max_steps=6 // lanes)
    batches = [passed.micro_batch(n, lane) for n in range(passed.steps) for lane in range(lanes)]
    draws = [s["draw"] for b in batches for s in b]
    assert (passed.steps, passed.read, passed.total) == (6 // lanes, len(draws), 101)
    assert draws == [place.draw for n in range(again.steps) for lane in range(lanes) for place in again.places(n, lane)]
    index = [i + 71 * corpus for corpus, _, i in draws]
    assert [len({i for i in index if first <= i < first + 17}) for first in range(0, 101, 17)] == [2] * 6
    assert passed.micro_batch(passed.steps, 0) == []


def test_a_limited_pass_over_short_corpora_reads_all_of_them(write: Any, texts: Any) -> None:
    passed = Reader.finite([write(texts(11))], lanes=2, micro_batch_size=3, max_steps=2)
    keys = [s["key"] for n in range(passed.steps) for lane in (0, 1) for s in passed.micro_batch(n, lane)]
    assert keys == [f"r{i}" for i in range(11)]
    assert passed.read == passed.total == 11


def damage(corpus: Corpus, shard: int, record: int, member: str = "json") -> None:
    """Overwrite the first bytes of a member; the shard keeps its size."""
    path = Path(corpus.place, corpus.shards[shard].name)
    offset = next(o for n, o, _ in corpus.index(shard).members(record) if n == member)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff!\xfe")  # no byte order mark


def test_a_corrupt_member_stops_with_shard_and_key(write: Any, texts: Any) -> None:
    corpus = write(texts(10), shard_size=5)
    damage(corpus, 1, 2)
    with pytest.raises(BadRecordError, match=r"part-000005\.tar, key 'r7': member json is not UTF-8"):
        lane_samples(everything(Corpus.open(corpus.place, verify=False), None), 0, range(1))
    error = pickle.loads(pickle.dumps(BadRecordError("s", "k", "broken", "at 1")))
    assert str(error) == "shard s, key 'k': broken (at 1)"


def test_skipping_counts_by_reason_and_stays_pure(write: Any, images: Any) -> None:
    corpus = write(images(12), kind="image-text", shard_size=6)
    whole = Reader([(corpus, 1.0)], seed=0, lanes=2, micro_batch_size=3)
    expected = {(n, lane): whole.micro_batch(n, lane) for n in range(2) for lane in range(2)}
    damage(corpus, 0, 1)
    damage(corpus, 1, 0, "regions.npz")
    damaged = Corpus.open(corpus.place, verify=False)
    reader = Reader([(damaged, 1.0)], seed=0, lanes=2, micro_batch_size=3, on_error="skip")
    for place in [(1, 1), (0, 0), (0, 1), (1, 0)]:
        kept = [s["key"] for s in expected[place] if s["key"] not in ("r1", "r6")]
        assert [s["key"] for s in reader.micro_batch(*place)] == kept
    assert reader.skipped == {"member json is not UTF-8": 1, "member regions.npz is damaged": 1}


def test_skipping_stops_above_the_limit(write: Any, texts: Any) -> None:
    corpus = write(texts(10))
    for record in range(3):
        damage(corpus, 0, record)
    damaged = Corpus.open(corpus.place, verify=False)
    passed = Reader.finite([damaged], lanes=1, micro_batch_size=10, on_error="skip", skip_limit=2)
    with pytest.raises(WorkbenchError, match=r"more than 2 samples .*3 x member json is not UTF-8.*verify.*skip_limit"):
        passed.micro_batch(0, 0)


def test_a_truncated_tar_names_shard_and_key(write: Any, texts: Any) -> None:
    corpus = write(texts(10), shard_size=5)
    path = Path(corpus.place, corpus.shards[1].name)
    offset = corpus.index(1).members(3)[0][1]
    with open(path, "r+b") as file:
        file.truncate(offset + 1)
    with pytest.raises(
        WorkbenchError, match=r"part-000005\.tar: .* truncated in or before key 'r8', and 2 of 5 records"
    ):
        lane_samples(everything(Corpus.open(corpus.place), None), 0, range(1))


def test_a_missing_shard_or_index_is_named(write: Any, texts: Any) -> None:
    corpus = write(texts(10), shard_size=5)
    Path(corpus.place, "part-000005.tar").unlink()
    with pytest.raises(WorkbenchError, match=r"part-000005\.tar is listed .* but is missing"):
        corpus.read(1, 0)
    Path(corpus.place, "part-000000.index").write_bytes(b"short")
    with pytest.raises(WorkbenchError, match=r"part-000000\.index: the checksum of this index differs"):
        Corpus.open(corpus.place).read(0, 0)


def test_wrong_units_and_small_corpora_are_explained(write: Any, texts: Any, images: Any) -> None:
    corpus = write(texts(5))
    with pytest.raises(
        WorkbenchError, match=r"'a corpus' is of kind text, which has no unit 'captions'; allowed: text"
    ):
        CorpusItems(corpus, "captions")
    with pytest.raises(WorkbenchError, match=r"5 items for 8 lanes"):
        Reader([(corpus, 1.0)], seed=0, lanes=8, micro_batch_size=1)
    without = write(images(1), kind="image-text", name="no captions")
    with pytest.raises(WorkbenchError, match="empty: no captions in its 1 records"):
        CorpusItems(without, "captions")
    with pytest.raises(WorkbenchError, match="at least one"):
        Reader([], seed=0, lanes=1, micro_batch_size=1)
    with pytest.raises(WorkbenchError, match="at least 1 character"):
        CorpusItems(corpus, "text", 0)


def test_a_long_text_is_decoded_once_for_its_windows(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write([{"text": "A sentence here. " * 8000, "spans": []}])
    calls = []
    plain = decode
    monkeypatch.setattr("workbench.corpora.corpus.decode", lambda members: calls.append(1) or plain(members))
    samples = lane_samples(everything(corpus, 500), 0, range(1))
    assert "".join(s["text"] for s in samples) == "A sentence here. " * 8000
    assert len(calls) == 1


def test_window_counts_of_large_corpora_are_kept(
    write: Any, texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(texts(30)).place
    expected = [CorpusItems(Corpus.open(place), "text", width).counts.tolist() for width in (40, 50)]
    monkeypatch.setattr(items_module, "REMEMBERED", 10)
    for _ in range(2):
        corpus = Corpus.open(place, cache=tmp_path / "kept")
        assert [CorpusItems(corpus, "text", width).counts.tolist() for width in (40, 50)] == expected
        monkeypatch.setattr(CorpusItems, "_load", lambda *_: pytest.fail("counted again"))
    assert len(list((tmp_path / "kept" / "windows").iterdir())) == 2
    monkeypatch.undo()
    monkeypatch.setattr(items_module, "REMEMBERED", 10)
    (tmp_path / "a file").touch()
    assert CorpusItems(Corpus.open(place, cache=tmp_path / "a file"), "text", 40).counts.tolist() == expected[0]


def test_a_remote_corpus_is_fetched_once_and_checked(
    write: Any, texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = write(texts(10), shard_size=5)
    memory = fsspec.filesystem("memory")
    memory.put(local.place + "/", "memory://bucket/remote/", recursive=True)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "the cache"))
    remote = Corpus.open("memory://bucket/remote")
    assert remote.name == "remote"
    expected = [local.read(s, r)["text"] for s in (0, 1) for r in range(5)]
    assert remote[0]["text"] == expected[0]
    assert not list((tmp_path / "the cache").rglob("*.tar"))  # it was read by itself
    assert [remote.shard(s).raw(r) for s in (0, 1) for r in range(5)] == [
        local.raw(s, r) for s in (0, 1) for r in range(5)
    ]
    assert [remote.read(s, r)["text"] for s in (0, 1) for r in range(5)] == expected
    cached = sorted(p for p in (tmp_path / "the cache").glob("??/*") if p.is_file())
    assert sorted(p.suffix for p in cached) == [".bundle", ".json", ".tar", ".tar"]
    memory.rm("memory://bucket/remote/part-000000.tar")
    assert Corpus.open("memory://bucket/remote").read(0, 0)["text"] == expected[0]
    for path in cached:
        path.unlink()
    memory.pipe("memory://bucket/remote/part-000005.tar", b"something else")
    again = Corpus.open("memory://bucket/remote")
    with pytest.raises(WorkbenchError, match=r"part-000005\.tar: the checksum is .*, but corpus\.json has"):
        again.read(1, 0)
    with pytest.raises(WorkbenchError, match=r"part-000000\.tar cannot be read"):
        again.read(0, 0)
    assert not [p for p in (tmp_path / "the cache").rglob("*") if p.suffix in (".tar", ".part")]
    with pytest.raises(WorkbenchError, match="cannot be read"):
        Corpus.open("memory://bucket/nowhere")
    with pytest.raises(WorkbenchError, match="URLs of nosuchscheme:// are not opened; allowed: "):
        Corpus.open("nosuchscheme://x")


def test_a_file_url_is_a_local_path(write: Any, texts: Any, tmp_path: Path) -> None:
    local = write(texts(3))
    corpus = Corpus.open(f"file://{local.place}", cache=tmp_path / "unused")
    assert corpus.read(0, 0) == local.read(0, 0)
    assert not (tmp_path / "unused").exists()


def test_only_the_shards_of_the_lane_are_fetched(
    write: Any, texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = write(texts(320), shard_size=10)
    fsspec.filesystem("memory").put(local.place + "/", "memory://bucket/lanes/", recursive=True)
    remote = Corpus.open("memory://bucket/lanes", cache=tmp_path / "cache")
    reader = Reader([(remote, 1.0)], seed=0, lanes=4, micro_batch_size=8)
    lane_samples(reader, 1, range(10))
    own, next_group = (
        {remote.shards[place.shard].sha256 for n in numbers for place in reader.places(n, 1)}
        for numbers in (range(10), range(10, 20))
    )
    fetched = {path.stem for path in (tmp_path / "cache").rglob("*.tar")}
    assert len(own) == 8
    assert own <= fetched <= own | next_group
