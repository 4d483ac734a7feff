"""Corpora on a real S3 server behind a proxy that misbehaves."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.corpora.conftest import text_samples
from tests.object_store import BUCKET, Proxy, object_store, upload
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files import cache as cache_module
from workbench.core.files import transfers
from workbench.core.files.cache import FileCache, RemoteFile
from workbench.core.files.downloads import THREADS, pool
from workbench.core.files.transfers import StoreOptions
from workbench.corpora import remote_copies
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME, finish_corpus, parse_manifest
from workbench.corpora.opened_manifests import forget_manifests
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.index import ShardIndex
from workbench.corpora.shards.writer import ShardWriter
from workbench.corpora.verify import verify

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
RECORDS = 10
TIMEOUT = "1.5"


def corpus_in(folder: Path, shards: int) -> Corpus:
    samples, infos = text_samples(shards * RECORDS), []
    for shard in range(shards):
        with ShardWriter(folder / f"part-{shard:06d}.tar", kind="text") as writer:
            for record in range(RECORDS):
                writer.add(f"r{shard}-{record}", samples[shard * RECORDS + record])
        assert writer.info is not None
        infos.append(writer.info)
    finish_corpus(folder, kind="text", shards=infos, provenance={"command": "test"})
    return Corpus.open(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, str, Corpus]]:
    """The proxy, and a corpus of 40 shards: its URL and its local files."""
    folder = tmp_path_factory.mktemp("store")
    local = corpus_in(folder / "corpus", 40)
    with object_store(folder) as (proxy, variables), pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        url = upload(local.place, "corpus")
        patch.setenv("WORKBENCH_STORE_TIMEOUT", TIMEOUT)
        transfers.facts_of(url)  # the first use of the library takes a second
        yield proxy, url, local


@pytest.fixture
def store(
    server: tuple[Proxy, str, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, str, Corpus]]:
    """The same, with an empty cache, short bounds of time, and whole shards only."""
    monkeypatch.setattr(remote_copies, "RANGES", 0)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WORKBENCH_STORE_TIMEOUT", TIMEOUT)
    monkeypatch.setenv("WORKBENCH_STORE_TRIES", "3")
    monkeypatch.setattr(transfers, "FIRST_WAIT", 0.1)
    forget_manifests()
    server[0].behave()
    yield server
    pool().stop()
    server[0].behave()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(("way", "times"), [("busy", 2), ("cut", 1), ("flip", 2), ("silent", 1), ("stall", 1)])
def test_errors_that_pass_are_tried_again(store: Any, way: str, times: int, caplog: Any) -> None:
    proxy, url, local = store
    corpus = Corpus.open(url)
    proxy.misbehave(way, ".tar", times)
    assert corpus.read(0, 0)["text"] == local.read(0, 0)["text"]
    assert len(proxy.gets(".tar")) == times + 1
    said = warnings_of(caplog)
    assert len(said) == times
    assert all(line.startswith(f"{url}/part-000000.tar: ") and "\n" not in line for line in said)
    assert "(try 1 of 3); the next try is in 0." in said[0]


@pytest.mark.parametrize("way", ["busy", "cut", "flip", "silent", "stall"])
@pytest.mark.parametrize("target", [".tar", FILE_NAME])
def test_after_the_last_try_the_same_command_may_be_started_again(
    store: Any, way: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, url, _ = store
    monkeypatch.setenv("WORKBENCH_STORE_TRIES", "2")
    proxy.misbehave(way, target)
    began = time.monotonic()
    with pytest.raises(MachineError) as raised:
        Corpus.open(url).read(0, 0)
    name = FILE_NAME if target == FILE_NAME else "part-000000.tar"
    assert str(raised.value).startswith(f"{url}/{name} cannot be read: ")
    assert "It was tried 2 times in" in str(raised.value)
    assert "Start the same command again" in str(raised.value)
    assert raised.value.exit_code == 1
    bound = StoreOptions.of_environment().longest_silence
    assert bound < 4
    assert time.monotonic() - began < bound + 3
    assert not list(Path(os.environ["WORKBENCH_CACHE"]).rglob("*.part"))


def test_what_another_try_cannot_change_is_refused_at_once(store: Any, caplog: Any) -> None:
    proxy, url, _ = store
    corpus = Corpus.open(url)
    proxy.misbehave("denied")
    with pytest.raises(WorkbenchError, match=r"part-000000\.tar cannot be read: no access") as denied:
        corpus.read(0, 0)
    assert denied.value.exit_code == 2
    assert len(proxy.gets(".tar")) == 1
    with pytest.raises(WorkbenchError, match=r"nowhere/corpus\.json cannot be read: there is no such file") as missing:
        Corpus.open(f"s3://{BUCKET}/nowhere")
    with pytest.raises(WorkbenchError, match="cannot be read: The specified bucket does not exist") as bucket:
        Corpus.open("s3://another/corpus")
    assert (missing.value.exit_code, bucket.value.exit_code) == (2, 2)
    assert not warnings_of(caplog)


def test_a_file_that_was_changed_is_distinguished_from_damage_on_the_way(store: Any, tmp_path: Path) -> None:
    proxy, _, _ = store
    local = corpus_in(tmp_path / "changed", 2)
    data = bytearray(Path(local.place, "part-000001.tar").read_bytes())
    data[700] ^= 1
    Path(local.place, "part-000001.tar").write_bytes(data)
    url = upload(local.place, "changed")
    with pytest.raises(
        WorkbenchError, match=r"the checksum is .*, but corpus\.json has .*3 reads found the same"
    ) as one:
        Corpus.open(url).read(1, 0)
    assert one.value.exit_code == 2
    assert len(proxy.gets("part-000001.tar")) == 3


def test_silence_ends_a_command_with_exit_code_1(store: Any) -> None:
    proxy, url, _ = store
    proxy.misbehave("silent", FILE_NAME)
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "show", url],
        env=os.environ | {"WORKBENCH_STORE_TRIES": "2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no byte came for 1.5 s. It was tried 2 times" in " ".join(done.stderr.split())


def test_a_file_system_that_blocks_is_abandoned(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    ended = threading.Event()
    monkeypatch.setattr(MemoryFileSystem, "get_file", lambda *_, **__: ended.wait(30))
    MemoryFileSystem().pipe_file("/blocked/x", b"x")
    with pytest.raises(MachineError, match=r"no byte came for 1\.5 s\. It was tried 3 times"):
        transfers.read_bytes("memory://blocked/x")
    ended.set()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORKBENCH_STORE_TIMEOUT", "soon", "WORKBENCH_STORE_TIMEOUT = 'soon': allowed is a number from 0.1 to 3600"),
        ("WORKBENCH_STORE_TRIES", "0", "WORKBENCH_STORE_TRIES = '0': allowed is a number from 1 to 100"),
        ("WORKBENCH_STORE_TRIES", "2.5", "tries are a whole number"),
        ("WORKBENCH_CACHE_LIMIT", "200 apples", "allowed is a size such as 500MB, 200GB or 1.5TiB"),
        ("WORKBENCH_CACHE_LIMIT", "0GB", "allowed is a size such as"),
        ("WORKBENCH_CACHE_LIMIT", "0.4", "allowed is a size such as"),
        ("WORKBENCH_CACHE_LIMIT", "9" * 400 + "GB", "allowed is a size such as"),
    ],
)
def test_wrong_options_are_refused(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(WorkbenchError, match=message):
        StoreOptions.of_environment()


def test_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_STORE_TIMEOUT", raising=False)
    assert StoreOptions.of_environment() == StoreOptions(30.0, 5, None)
    assert 165 <= StoreOptions().longest_silence < 166
    for value, size in (("200GB", 2 * 10**11), ("1.5TiB", 3 << 39), ("7", 7), ("500 mb", 5 * 10**8)):
        monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", value)
        assert StoreOptions.of_environment().limit == size


# ---- in the background


def shards_of(reader: Reader, numbers: range) -> set[str]:
    return {f"part-{place.shard:06d}.tar" for n in numbers for place in reader.places(n, 0)}


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_next_group_is_fetched_before_it_is_needed(store: Any) -> None:
    proxy, url, local = store
    reader, expected = (Reader([(c, 1.0)], seed=0, lanes=1, micro_batch_size=8) for c in (Corpus.open(url), local))
    proxy.misbehave("")
    reader.micro_batch(0, 0)  # of the first of five groups of 80 items
    wanted = shards_of(reader, range(20))
    assert len(wanted) == 16
    wait_until(lambda: len(list(Path(os.environ["WORKBENCH_CACHE"]).rglob("*.tar"))) == 16)
    assert {path.rpartition("/")[2].partition("?")[0] for path in proxy.gets(".tar")} == wanted
    assert len(proxy.gets(".tar")) == 16
    assert sum(thread.name == "download" for thread in threading.enumerate()) <= THREADS
    proxy.misbehave("busy")  # from now on nothing is there but what was fetched ahead
    for number in range(20):
        assert [s["text"] for s in reader.micro_batch(number, 0)] == [
            s["text"] for s in expected.micro_batch(number, 0)
        ]
    with pytest.raises(MachineError, match="tried 3 times"):
        reader.micro_batch(20, 0)
    proxy.behave()
    assert texts_of(reader, 20) == texts_of(expected, 20)


def texts_of(reader: Reader, number: int) -> list[str]:
    return [sample["text"] for sample in reader.micro_batch(number, 0)]


def test_a_finite_pass_fetches_the_shard_after(store: Any) -> None:
    proxy, url, _ = store
    finite = Reader.finite([Corpus.open(url)], lanes=1, micro_batch_size=5)
    proxy.misbehave("")
    finite.micro_batch(0, 0)
    wait_until(lambda: len(proxy.gets(".tar")) == 2)
    assert proxy.gets("part-000001.tar")


def test_a_fork_ends_the_threads_first(store: Any) -> None:
    proxy, url, local = store
    reader = Reader([(Corpus.open(url), 1.0)], seed=0, lanes=1, micro_batch_size=8)
    reader.micro_batch(0, 0)
    proxy.misbehave("slow1")
    reader.micro_batch(10, 0)  # the third group follows, slowly
    reached = multiprocessing.get_context("fork").Queue()

    def in_child() -> None:
        names = [thread.name for thread in threading.enumerate()]
        reached.put((names.count("download"), texts_of(reader, 1)))

    proxy.behave()
    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    expected = Reader([(local, 1.0)], seed=0, lanes=1, micro_batch_size=8)
    assert reached.get(timeout=30) == (0, texts_of(expected, 1))
    child.join(10)
    assert child.exitcode == 0
    assert len(reader.micro_batch(2, 0)) == 8


# ---- indexes


def test_indexes_take_one_request(store: Any) -> None:
    proxy, url, _ = store
    reader = Reader([(Corpus.open(url), 1.0)], seed=0, lanes=1, micro_batch_size=8, unit="text", window=40)
    assert [path.rpartition("/")[2] for path in proxy.gets()] == [FILE_NAME, "index.bundle"]
    reader.micro_batch(0, 0)
    assert not proxy.gets(".index")
    assert not list(verify(Corpus.open(url)))


def test_a_large_bundle_is_read_only_where_all_indexes_are(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, url, local = store
    monkeypatch.setattr("workbench.corpora.corpus.SMALL_BUNDLE", 10)
    corpus = Corpus.open(url)
    assert corpus.read(3, 0)["text"] == local.read(3, 0)["text"]
    assert proxy.gets("part-000003.index")
    assert not proxy.gets(".bundle")
    Reader([(corpus, 1.0)], seed=0, lanes=1, micro_batch_size=8, unit="text", window=40)
    assert len(proxy.gets(".bundle")) == 1


def test_indexes_of_older_corpora_are_fetched_side_by_side(store: Any, tmp_path: Path) -> None:
    proxy, _, _ = store
    local = corpus_in(tmp_path / "older", 24)
    place = Path(local.place, FILE_NAME)
    manifest = parse_manifest(place.read_bytes(), "x")
    object.__setattr__(manifest, "bundle", {})
    manifest.write(Path(local.place))
    url = upload(local.place, "older")
    expected = Reader([(Corpus.open(local.place), 1.0)], seed=0, lanes=1, micro_batch_size=8, unit="text", window=40)
    proxy.misbehave("slow2", ".index")
    reader = Reader([(Corpus.open(url), 1.0)], seed=0, lanes=1, micro_batch_size=8, unit="text", window=40)
    assert 2 <= proxy.most_at_once <= THREADS + 1
    assert len(proxy.gets(".index")) == 24
    assert reader.items(0) == expected.items(0)
    proxy.behave()
    assert texts_of(reader, 3) == texts_of(expected, 3)


def test_a_damaged_bundle_is_found(tmp_path: Path, store: Any) -> None:
    local = corpus_in(tmp_path / "bundled", 3)
    assert not list(verify(Corpus.open(local.place)))
    place = Path(local.place, "index.bundle")
    data = bytearray(place.read_bytes())
    data[-9] ^= 1
    place.write_bytes(data)
    (problem,) = verify(Corpus.open(local.place))
    assert problem.shard == "index.bundle"
    url = upload(local.place, "bundled")
    (problem,) = verify(Corpus.open(url))
    assert problem.shard == "index.bundle"
    assert "checksum" in problem.reason


def test_each_version_of_a_corpus_json_is_parsed_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, url, _ = store
    parsed = []
    monkeypatch.setattr(
        "workbench.corpora.opened_manifests.parse_manifest", lambda *given: parsed.append(1) or parse_manifest(*given)
    )
    for _ in range(3):
        Corpus.open(url).manifest.about["changed"] = "by a caller"
    assert "changed" not in Corpus.open(url).manifest.about
    assert (len(parsed), len(proxy.gets(FILE_NAME))) == (1, 1)
    forget_manifests()
    Corpus.open(url)
    assert (len(parsed), len(proxy.gets(FILE_NAME))) == (2, 1)  # another process of the node


# ---- records before their shard


def copies(folder: Path, suffix: str) -> list[Path]:
    return list((folder / "cache").rglob(f"*{suffix}"))


def test_the_first_records_are_read_without_their_shards(store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    proxy, url, local = store
    monkeypatch.setattr(remote_copies, "RANGES", 3)
    corpus = Corpus.open(url)
    for number in (7, 395, 0):
        assert corpus[number]["text"] == local[number]["text"]
    assert not copies(tmp_path, ".tar")
    assert len(proxy.gets(".tar")) == 3
    assert corpus[1]["text"] == local[1]["text"]  # one too many: the shard is fetched
    assert len(copies(tmp_path, ".tar")) == 1
    assert corpus[2]["text"] == local[2]["text"]
    assert len(proxy.gets(".tar")) == 4


@pytest.mark.parametrize("way", ["busy", "cut", "flip", "silent", "stall"])
def test_a_record_that_does_not_come_right_is_read_with_the_shard(
    store: Any, way: str, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    proxy, url, local = store
    monkeypatch.setattr(remote_copies, "RANGES", 3)
    monkeypatch.setattr(remote_copies, "PATIENCE", 0.5)
    corpus = Corpus.open(url)
    corpus.index(0)
    proxy.misbehave(way, "part-000000.tar", 1)
    started = time.monotonic()
    assert corpus[0]["text"] == local[0]["text"]
    assert time.monotonic() - started < 10
    assert len(copies(tmp_path, ".tar")) == 1
    assert corpus[10]["text"] == local[10]["text"]  # none is tried again
    assert len(copies(tmp_path, ".tar")) == 2
    assert not warnings_of(caplog)


def test_a_reader_waits_for_whole_shards(store: Any, monkeypatch: Any) -> None:
    proxy, url, _ = store
    monkeypatch.setattr(remote_copies, "RANGES", 1000)
    corpus = Corpus.open(url)
    texts_of(Reader([(corpus, 1.0)], seed=0, lanes=1, micro_batch_size=20), 0)
    requested = proxy.gets(".tar")
    assert len(requested) == len(set(requested))


def test_an_index_of_an_earlier_version_has_no_checksums_of_records(
    store: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    _, url, local = store
    monkeypatch.setattr(remote_copies, "RANGES", 3)
    monkeypatch.setattr(ShardIndex, "checksum", lambda *_: None)
    assert Corpus.open(url)[0]["text"] == local[0]["text"]
    assert len(copies(tmp_path, ".tar")) == 1


# ---- the cache of a node


def test_a_lock_file_with_other_content_is_no_mark_of_a_checked_copy(store: Any, tmp_path: Path) -> None:
    _, url, local = store
    Corpus.open(url).shard(0)
    for place in (tmp_path / "cache" / "locks").glob("*/*"):
        place.write_bytes(b"\x9f\xff")
    assert Corpus.open(url)[0]["text"] == local[0]["text"]


def hold_all(url: str, shards: list[int], folder: Path, results: Any) -> None:
    try:
        corpus = Corpus.open(url, cache=folder)
        results.put([corpus.read(shard, 0)["key"] for shard in shards])
    except WorkbenchError as error:
        results.put(str(error))


def processes(number: int, target: Any, *arguments: Any) -> list[Any]:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    started = [context.Process(target=target, args=(*arguments, results)) for _ in range(number)]
    for process in started:
        process.start()
    try:
        return [results.get(timeout=60) for _ in started]
    finally:
        for process in started:
            process.kill()
            process.join()


def test_a_node_fetches_a_shard_once(store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    proxy, url, _ = store
    monkeypatch.setenv("WORKBENCH_STORE_TIMEOUT", "20")
    proxy.misbehave("slow0.5")
    found = processes(4, hold_all, url, [0, 1], tmp_path / "cache")
    assert found == [["r0-0", "r1-0"]] * 4
    assert sorted(path.rpartition("/")[2] for path in proxy.gets(".tar")) == ["part-000000.tar", "part-000001.tar"]


def test_a_killed_process_leaves_nothing_that_is_used_or_blocks(store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    proxy, url, local = store
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str(local.shards[0].bytes + 200_000))
    monkeypatch.setenv("WORKBENCH_STORE_TIMEOUT", "20")
    proxy.misbehave("slow20")
    context = multiprocessing.get_context("fork")
    killed = context.Process(target=hold_all, args=(url, [0], tmp_path / "cache", context.Queue()))
    killed.start()
    wait_until(lambda: bool(list((tmp_path / "cache").glob("??/.*.part"))))
    assert list((tmp_path / "cache" / "reserved").iterdir())
    killed.kill()
    killed.join()
    proxy.behave()
    assert processes(1, hold_all, url, [0], tmp_path / "cache") == [["r0-0"]]
    assert not list((tmp_path / "cache").glob("??/.*"))
    assert not list((tmp_path / "cache" / "reserved").iterdir())


class Sizes(threading.Thread):
    """Measures the largest size of the copies in a cache."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.most, self.ended = folder, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.005):
            self.most = max(self.most, copies_in(self.folder))


def copies_in(folder: Path) -> int:
    total = 0
    for path in folder.glob("??/*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_several_processes_stay_below_the_limit(store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    _, url, local = store
    limit = 12 * max(info.bytes for info in local.shards) + local.manifest.bundle["bytes"] + 60_000
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str(limit))
    monkeypatch.setenv("WORKBENCH_STORE_TIMEOUT", "20")
    sizes = Sizes(tmp_path / "cache")
    sizes.start()
    found = processes(3, read_epoch, url, tmp_path / "cache")
    sizes.ended.set()
    assert found == [400] * 3
    assert limit / 2 < sizes.most <= limit
    assert sum(info.bytes for info in local.shards) > 2 * limit


def read_epoch(url: str, folder: Path, results: Any) -> None:
    try:
        corpus = Corpus.open(url, cache=folder)
        results.put(sum(1 for _ in corpus))
    except WorkbenchError as error:
        results.put(str(error))


def files_of(local: Corpus) -> list[RemoteFile]:
    return [RemoteFile(f"local://{local.place}/{info.name}", info.sha256, info.bytes) for info in local.shards]


def test_the_copy_used_longest_ago_leaves_and_open_ones_stay(store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    *_, local = store
    files, cache = files_of(local), FileCache(tmp_path / "cache")
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str(sum(file.size or 0 for file in files[:3])))
    monkeypatch.setattr(cache_module, "close_spare", lambda: None)
    held = cache.hold(files[0])
    for file in (files[1], files[2], files[1]):
        cache.hold(file)
        time.sleep(0.02)
    smallest = min(files[3:], key=lambda file: file.size or 0)
    cache.hold(smallest)
    there = [cache.path(file).is_file() for file in (files[0], files[1], files[2], smallest)]
    assert there == [True, True, False, True]
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str((files[0].size or 0) + 100))
    began = time.monotonic()
    with pytest.raises(
        WorkbenchError, match=r"WORKBENCH_CACHE_LIMIT = .* is too small: the copies in use take"
    ) as raised:
        cache.hold(files[5])
    assert raised.value.exit_code == 2
    assert time.monotonic() - began < 6
    assert cache.path(files[0]).is_file()
    del held
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str(files[5].size))
    cache.hold(files[5])
    assert copies_in(tmp_path / "cache") == files[5].size


def test_a_group_that_does_not_fit_is_refused_before_it_is_read_again_and_again(store: Any, monkeypatch: Any) -> None:
    proxy, url, local = store
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str(5 * int(np.mean([info.bytes for info in local.shards])) + 60_000))
    proxy.misbehave("")
    reader = Reader([(Corpus.open(url), 1.0)], seed=0, lanes=1, micro_batch_size=8)
    with pytest.raises(WorkbenchError, match="too small"):
        list(map(reader.micro_batch, range(10), [0] * 10))
    assert len(proxy.gets(".tar")) <= 16


def test_a_limit_with_room_for_a_group_is_enough(store: Any, monkeypatch: Any) -> None:
    _, url, local = store
    room = 9 * max(info.bytes for info in local.shards) + local.manifest.bundle["bytes"] + 60_000
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", str(room))
    reader, expected = (Reader([(c, 1.0)], seed=0, lanes=1, micro_batch_size=8) for c in (Corpus.open(url), local))
    for number in range(50):
        assert [s["text"] for s in reader.micro_batch(number, 0)] == [
            s["text"] for s in expected.micro_batch(number, 0)
        ]
    assert copies_in(Path(os.environ["WORKBENCH_CACHE"])) <= room
