"""The runner: same corpus for any number of workers, resuming, drops, splits, refusals."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pipelines.preparing import workspace
from pipelines.preparing.chunks import Conversion, Limits, cut_chunks
from pipelines.preparing.engines.local import LocalEngine
from pipelines.preparing.runner import check, run
from pipelines.preparing.splits import check_parts, parse_splits, part_of
from pipelines.readers.reader import Record
from pipelines.readers.text.json_lines import TextJsonLines
from pipelines.stages.text_cleaning import MinimumLength
from tests.pipelines.jobs import prepare
from workbench.core.errors import WorkbenchError
from workbench.core.files.lock import locked
from workbench.corpora.corpus import Corpus

ROOT = Path(__file__).resolve().parents[2]
ROWS = [{"id": f"d{i}", "text": f"document number {i} " * (1 + i % 5)} for i in range(23)]


def shard_hashes(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("part-*"))}


def test_chunks_end_at_counts_and_bytes():
    records = [Record(i, size, "") for i, size in enumerate([1, 1, 1, 50, 1, 1])]
    cut = [[r.data for r in chunk.records] for chunk in cut_chunks(iter(records), Limits(2, 10))]
    assert cut == [[0, 1], [2, 3], [4, 5]]
    cut = [[r.data for r in chunk.records] for chunk in cut_chunks(iter(records), Limits(9, 10, limit=5))]
    assert cut == [[0, 1, 2, 3], [4]]


def test_corpus_holds_every_sample_in_order(json_lines, text_job, stored):
    job = text_job(json_lines("docs.jsonl", ROWS), meta={"licence": "CC0"})
    result = prepare(job, [job_input(job)], Limits(shard_size=5), command="a command", source={"url": "u"})
    assert [len(result.manifests[""].shards), result.read] == [5, 23]
    samples = stored(job.output)
    assert [(s["key"], s["text"]) for s in samples] == [(r["id"], r["text"]) for r in ROWS]
    assert samples[7]["meta"] == {"licence": "CC0", "source": "docs.jsonl", "line": 8}
    provenance = Corpus.open(job.output).manifest.provenance
    assert provenance["command"] == "a command"
    assert provenance["source"] == {"url": "u"}
    assert provenance["inputs"][0]["name"] == "docs.jsonl"
    others = sorted(p.name for p in job.output.iterdir() if not p.name.startswith("part-"))
    assert others == ["corpus.json", "index.bundle"]


def job_input(job) -> Path:
    return job.output.parent / "docs.jsonl"


@pytest.mark.long
def test_one_and_two_workers_make_the_same_corpus(json_lines, text_job):
    path = json_lines("docs.jsonl", [*ROWS, {"id": "empty", "text": " "}])
    outputs = []
    for workers in (1, 2):
        job = text_job(path, f"corpus{workers}", stages=(MinimumLength(20),), splits={"dev": 0.3}, dedupe=True)
        result = prepare(job, [path], Limits(shard_size=4), workers=workers)
        outputs.append((shard_hashes(job.output), shard_hashes(result.folders["dev"]), result.dropped))
    assert outputs[0] == outputs[1]


def test_drops_are_counted_by_stage_and_reason(json_lines, text_job, stored):
    rows = [{"text": "long enough text"}, {"text": ""}, {"text": "short"}, {"text": "\n"}]
    job = text_job(json_lines("docs.jsonl", rows), stages=(MinimumLength(8), drop_nothing_or_all))
    result = prepare(job, [job_input(job)], Limits())
    expected = {"MinimumLength: empty": 2, "MinimumLength: too short": 1}
    assert result.dropped == expected == Corpus.open(job.output).manifest.dropped
    assert (result.read, len(stored(job.output))) == (4, 1)


def drop_nothing_or_all(sample):
    return None if "drop me" in sample["text"] else sample


def test_a_stage_may_return_none(json_lines, text_job):
    job = text_job(json_lines("docs.jsonl", [{"text": "drop me"}, {"text": "x"}]), stages=(drop_nothing_or_all,))
    assert prepare(job, [job_input(job)], Limits()).dropped == {"drop_nothing_or_all: left out": 1}


def test_nothing_is_written_into_what_is_read(json_lines, text_job):
    place = json_lines("docs.jsonl", [{"text": "a town"}]).parent
    job = text_job(place, output=place / "corpus")
    with pytest.raises(WorkbenchError, match=r"lies inside the input .* outside of it"):
        prepare(job, [place], Limits())
    assert not job.output.exists()


def test_nothing_left_is_an_error_that_lists_the_reasons(json_lines, text_job):
    job = text_job(json_lines("docs.jsonl", [{"text": "a"}, {"text": ""}]), stages=(MinimumLength(5),))
    with pytest.raises(WorkbenchError, match=r"would be empty: .*too short.*"):
        prepare(job, [job_input(job)], Limits())
    assert not job.output.exists()


def test_malformed_records_stop_the_run_or_are_counted(tmp_path, text_job):
    path = tmp_path / "docs.jsonl"
    path.write_text('{"text": "one"}\n{"text": 2}\n{broken\n')
    with pytest.raises(WorkbenchError, match=r"docs\.jsonl:2: .*--on-error skip"):
        prepare(text_job(path), [path], Limits())
    assert not (tmp_path / "corpus").exists()
    result = prepare(text_job(path, on_error="skip"), [path], Limits())
    assert result.dropped == {
        "TextJsonLines: field 'text' has the wrong type": 1,
        "TextJsonLines: not a line of JSON": 1,
    }


def test_malformed_records_in_a_worker_process(tmp_path, text_job):
    path = tmp_path / "docs.jsonl"
    path.write_text('{"text": "one"}\n{"text": 2}\n')
    with pytest.raises(WorkbenchError, match=r"docs\.jsonl:2: field 'text' has the wrong type.*--on-error skip"):
        prepare(text_job(path), [path], Limits(), workers=2)


def test_a_rerun_does_nothing_and_changed_options_are_refused(json_lines, text_job):
    path = json_lines("docs.jsonl", ROWS)
    job = text_job(path)
    first = prepare(job, [path], Limits(shard_size=5))
    before = {p: p.stat().st_mtime_ns for p in job.output.iterdir()}
    again = prepare(job, [path], Limits(shard_size=5), workers=2)
    assert {p: p.stat().st_mtime_ns for p in job.output.iterdir()} == before
    assert (again.manifests, again.skipped) == (first.manifests, 5)
    with pytest.raises(WorkbenchError, match=r"shard_size was 5, is 6.*another --output"):
        prepare(job, [path], Limits(shard_size=6))
    with pytest.raises(WorkbenchError, match="stages was"):
        prepare(text_job(path, stages=(MinimumLength(3),)), [path], Limits(shard_size=5))
    json_lines("docs.jsonl", ROWS[:-1])
    with pytest.raises(WorkbenchError, match="the inputs are different or have changed"):
        prepare(job, [path], Limits(shard_size=5))


@pytest.mark.parametrize(("size", "message"), [(5, None), (6, "shard_size was 6, is 5")])
def test_what_another_process_finished_meanwhile_is_left_as_it_is(json_lines, text_job, monkeypatch, size, message):
    path = json_lines("docs.jsonl", ROWS)
    job, waited = text_job(path), []

    @contextmanager
    def late(folder):
        if not waited:  # the other one begins after this one has looked, and ends before it gets the lock
            waited.append(folder)
            waited.append(prepare(job, [path], Limits(shard_size=size)))
        with locked(folder):
            yield

    monkeypatch.setattr(workspace, "locked", late)
    if message is None:
        done = prepare(job, [path], Limits(shard_size=5))
        assert (done.manifests, done.skipped) == (waited[1].manifests, 5)
    else:
        with pytest.raises(WorkbenchError, match=message):
            prepare(job, [path], Limits(shard_size=5))
    assert Corpus.open(job.output).manifest == waited[1].manifests[""]
    assert not list(job.output.glob(".*"))


def test_a_folder_with_other_shards_is_refused(tmp_path, json_lines, text_job):
    path = json_lines("docs.jsonl", ROWS)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.tar").write_bytes(b"")
    with pytest.raises(WorkbenchError, match="holds shards of another corpus"):
        prepare(text_job(path), [path], Limits())


INTERRUPTED = {"now": True}


def stop_at_17(sample):
    if sample["key"] == "d17" and INTERRUPTED["now"]:
        raise KeyboardInterrupt
    return sample


def test_an_interrupted_run_continues_where_it_was(json_lines, text_job, monkeypatch):
    path = json_lines("docs.jsonl", ROWS)
    job = text_job(path, stages=(stop_at_17,))
    with pytest.raises(KeyboardInterrupt):
        prepare(job, [path], Limits(shard_size=5))
    kept = {p: p.stat().st_mtime_ns for p in job.output.glob("part-*")}
    assert sorted(p.name for p in kept) == [f"part-{i:06d}.{s}" for i in range(3) for s in ("index", "tar")]
    assert not (job.output / "corpus.json").exists()
    monkeypatch.setitem(INTERRUPTED, "now", False)
    result = prepare(job, [path], Limits(shard_size=5))
    assert result.skipped == 3
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    whole = text_job(path, "whole", stages=(stop_at_17,))
    prepare(whole, [path], Limits(shard_size=5))
    assert shard_hashes(job.output) == shard_hashes(whole.output)


@pytest.mark.parametrize(
    ("size", "reported"),
    [(5, "stopped. The finished shards of {} are kept; run the same"), (50, "stopped before a shard of {} ")],
)
def test_a_stop_reports_shards_where_there_are_some(json_lines, text_job, capfd, size, reported):
    path = json_lines("docs.jsonl", ROWS)
    job = text_job(path, stages=(stop_at_17,))
    with pytest.raises(KeyboardInterrupt):
        prepare(job, [path], Limits(shard_size=size))
    said = " ".join(capfd.readouterr().err.split())
    assert reported.format(job.output) in said
    assert job.output.exists() == ("are kept" in said)


@pytest.mark.scale
def test_sigkill_in_the_middle_then_rerun(tmp_path, json_lines, text_job):
    """A killed preparation leaves finished shards; the rerun completes the corpus, equal to an uninterrupted one."""
    rows = [{"id": f"d{i}", "text": f"{i} some words. " * 600} for i in range(1500)]
    path = json_lines("docs.jsonl", rows)
    command = [sys.executable, "-m", "workbench", "prepare", "text", str(path), "--workers", "2", "--shard-size", "20"]
    output = tmp_path / "killed"
    process = subprocess.Popen(
        [*command, "-o", str(output)], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until = time.monotonic() + 600
    while len(list(output.glob("part-*.index"))) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with suppress(ProcessLookupError):  # its workers end a moment later
        while time.monotonic() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    finished = len(list(output.glob("part-*.index")))
    assert 3 <= finished < 75
    assert not (output / "corpus.json").exists()
    (output / ".part-000070.tar.x.part").write_bytes(b"half")
    subprocess.run([*command, "-o", str(output)], cwd=ROOT, check=True, capture_output=True)
    subprocess.run([*command, "-o", str(tmp_path / "whole")], cwd=ROOT, check=True, capture_output=True)
    assert shard_hashes(output) == shard_hashes(tmp_path / "whole")
    assert Corpus.open(output).records == 1500
    assert not [p for p in output.iterdir() if p.name.startswith(".")]


@pytest.mark.scale
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_finished_shards_and_says_how_to_continue(tmp_path, json_lines, number, code):
    path = json_lines("docs.jsonl", [{"id": f"d{i}", "text": f"{i} some words. " * 400} for i in range(1500)])
    output = tmp_path / "stopped"
    command = [sys.executable, "-m", "workbench", "prepare", "text", str(path), "-o", str(output), "--shard-size", "20"]
    process = subprocess.Popen([*command, "--workers", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not list(output.glob("part-*.index")):
        time.sleep(0.01)
    process.send_signal(number)
    _, message = process.communicate(timeout=600)
    assert process.returncode == code
    assert "run the same command again" in " ".join(message.split())  # the terminal breaks lines
    assert "Traceback" not in message
    names = {p.name for p in output.iterdir()}
    assert not [name for name in names if name.endswith(".part")]
    assert {n.replace(".index", ".tar") for n in names if n.endswith(".index")} == {n for n in names if ".tar" in n}


def test_an_input_that_changes_while_it_is_read_makes_no_corpus(json_lines, text_job, monkeypatch):
    path = json_lines("docs.jsonl", ROWS)
    job, each = text_job(path), LocalEngine.each

    def changing(*arguments):
        yield from each(*arguments)
        path.write_text('{"text": "another one"}\n')

    monkeypatch.setattr(LocalEngine, "each", changing)
    with pytest.raises(WorkbenchError, match=r"docs\.jsonl changed while it was read.* Delete .* and run"):
        prepare(job, [path], Limits())
    assert not (job.output / "corpus.json").exists()


def test_duplicate_keys_in_a_shard_and_across_shards(json_lines, text_job):
    rows = [{"id": f"d{i % 4}", "text": str(i)} for i in range(8)]
    path = json_lines("docs.jsonl", rows)
    with pytest.raises(WorkbenchError, match=r"key 'd0': docs\.jsonl:1 and docs\.jsonl:5.*--numbered-keys"):
        prepare(text_job(path), [path], Limits())
    with pytest.raises(WorkbenchError, match="4 keys are used more than once"):
        prepare(text_job(path, "b"), [path], Limits(shard_size=4))
    assert not (path.parent / "b" / "corpus.json").exists()
    result = prepare(text_job(path, "c", numbered_keys=True), [path], Limits(shard_size=4))
    assert result.manifests[""].records == 8


def test_exact_duplicates_across_shards_are_left_out(json_lines, text_job, stored):
    texts = ["one", "two", "one ", "three", "cafe\u0301", "caf\u00e9", "two"]
    path = json_lines("docs.jsonl", [{"text": text} for text in texts])
    job = text_job(path, dedupe=True)
    result = prepare(job, [path], Limits(shard_size=2))
    assert [s["text"] for s in stored(job.output)] == ["one", "two", "three", "cafe\u0301"]
    assert result.dropped == {"dedupe: duplicate": 3}


def test_held_out_documents_are_a_partition_by_key(json_lines, text_job, stored):
    rows = [{"id": f"d{i}", "text": str(i)} for i in range(400)]
    path = json_lines("docs.jsonl", rows)
    job = text_job(path, splits=parse_splits(["held-out=0.1", "test=0.2"]))
    result = prepare(job, [path], Limits(shard_size=150))
    parts = {name: {s["key"] for s in stored(folder)} for name, folder in result.folders.items()}
    assert result.folders["test"].name == "corpus-test"
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 400
    assert 15 <= len(parts["held-out"]) <= 70
    assert 50 <= len(parts["test"]) <= 115
    # another order, other shards, more documents: every document stays where it is
    path = json_lines("docs.jsonl", [{"id": f"d{i}", "text": str(i)} for i in range(600)][::-1])
    again = prepare(text_job(path, "again", splits=job.splits), [path], Limits())
    for name, folder in again.folders.items():
        assert parts[name] <= {s["key"] for s in stored(folder)}


def test_a_split_that_gets_everything_says_so_and_leaves_nothing(json_lines, text_job):
    path = json_lines("docs.jsonl", [*ROWS, {"id": "short", "text": "x"}])
    job = text_job(path, splits={"a": 0.00001, "dev": 0.99998}, stages=(MinimumLength(5),))
    for _ in range(2):
        with pytest.raises(
            WorkbenchError, match=r"no record is left for the corpus itself, .*\(dev: 23\); hold out smaller"
        ):
            prepare(job, [path], Limits(shard_size=5))
        assert [p.name for p in job.output.parent.iterdir()] == ["docs.jsonl"]
    assert prepare(text_job(path, splits={"dev": 0.5}), [path], Limits()).read == 24, "with other options"


def test_a_split_that_gets_nothing_leaves_no_corpus_and_says_so(json_lines, text_job, caplog):
    path = json_lines("docs.jsonl", ROWS[:2])
    result = prepare(text_job(path, splits={"dev": 0.001}), [path], Limits())
    assert list(result.manifests) == [""]
    assert not result.folders["dev"].exists()
    assert "the split dev got no records" in caplog.text


@pytest.mark.parametrize("text", ["a=b", "a=0", "a=1", "a b=0.1", "=", "=0.1", "-0.1"])
def test_bad_splits(text):
    with pytest.raises(WorkbenchError, match="--split"):
        parse_splits([text])


def test_splits_must_leave_something():
    with pytest.raises(WorkbenchError, match="add up to 1"):
        parse_splits(["a=0.5", "b=0.5"])
    with pytest.raises(WorkbenchError, match="twice"):
        parse_splits(["a=0.1", "a=0.2"])
    assert parse_splits(["0.05"]) == {"held-out": 0.05}
    assert {part_of({"key": str(i)}, {"a": 0.5}) for i in range(40)} == {"", "a"}


def test_parts_that_the_set_says_itself():
    shares, own = {"dev": 0.5}, ("val", "test")
    reported = [{"key": str(i), "meta": {"split": name}} for i, name in enumerate(("val", "test", "train", "restval"))]
    assert [part_of(sample, {}, own) for sample in reported] == ["val", "test", "", ""]
    assert {part_of(sample, shares, own) for sample in reported} <= {"val", "test", "", "dev"}
    with pytest.raises(WorkbenchError, match="--own-split dev and --split dev"):
        check_parts(("dev",), shares)
    with pytest.raises(WorkbenchError, match="may have letters"):
        check_parts(("../x",), {})


def test_what_is_one_document_is_not_torn_apart():
    shares = {"dev": 0.5}
    parts = {part_of({"key": f"{i}", "meta": {"document": "set 1", "sha256": str(i)}}, shares) for i in range(30)}
    assert len(parts) == 1
    assert len({part_of({"key": f"{i}", "meta": {"document": str(i)}}, shares) for i in range(30)}) == 2


@pytest.mark.parametrize(
    ("returned", "said"),
    [({"text": ["Oslo"]}, r"format TextJsonLines returns text of type list; it must be"), ({"txt": "Oslo"}, "'txt'")],
)
def test_what_a_format_returns_is_checked_where_it_returns(json_lines, text_job, monkeypatch, returned, said):
    """Before a stage fails on it, or drops the text as too short."""
    monkeypatch.setattr(TextJsonLines, "sample", lambda self, record: dict(returned))
    path = json_lines("docs.jsonl", ROWS)
    with pytest.raises(WorkbenchError, match=said):
        prepare(text_job(path, stages=(MinimumLength(5),)), [path], Limits())


def test_equal_texts_stay_on_one_side():
    texts = [{"key": f"{i}", "text": f"text  {i % 15}", "meta": {}} for i in range(60)]
    sides = {i: {part_of(sample, {"dev": 0.5}) for sample in texts[i::15]} for i in range(15)}
    assert all(len(parts) == 1 for parts in sides.values())
    assert set.union(*sides.values()) == {"", "dev"}


def test_limits_are_checked():
    with pytest.raises(WorkbenchError, match="--shard-size = 0"):
        Limits(shard_size=0)
    with pytest.raises(WorkbenchError, match="--limit = -1"):
        Limits(limit=-1)


def test_limit_takes_the_first_records(json_lines, text_job, stored):
    job = text_job(json_lines("docs.jsonl", ROWS))
    prepare(job, [job_input(job)], Limits(shard_size=5, limit=7))
    assert [s["key"] for s in stored(job.output)] == [f"d{i}" for i in range(7)]


def test_a_full_disk_is_one_clear_message(json_lines, text_job, monkeypatch):
    job = text_job(json_lines("docs.jsonl", ROWS))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    state_written = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: full(fd) if state_written else (state_written.append(fd), real(fd)))
    with pytest.raises(WorkbenchError, match="disk is full"):
        prepare(job, [job_input(job)], Limits())
    assert not job.output.exists()


class Warns:
    """A stage whose library warns of every sample, with its number."""

    def __call__(self, sample):
        warnings.warn(f"Corrupt EXIF data: {len(sample['text'])} bytes", UserWarning, stacklevel=1)
        return sample


@pytest.mark.parametrize("workers", [1, 2])
def test_warnings_of_libraries_are_reported_once_and_counted(tmp_path, text_job, workers, caplog, capfd):
    (tmp_path / "a.txt").write_text("a\n\nbb\n\nccc\n")
    job = text_job(tmp_path / "a.txt", stages=(Warns(),))
    prepare(job, [tmp_path / "a.txt"], Limits(shard_size=2), workers=workers)
    reported = [record.getMessage() for record in caplog.records if "library" in record.getMessage()]
    assert reported == ["a library warned 3 times: test_runner: Corrupt EXIF data: ... bytes"]
    assert "UserWarning" not in capfd.readouterr().err


def test_the_check_refuses_before_any_work_and_writes_nothing(tmp_path, json_lines, text_job):
    path = json_lines("docs.jsonl", ROWS)
    job = text_job(path)

    def asked(size, output=job.output):
        return check(Conversion(job.reader), [path], output, "text", limits=Limits(shard_size=size))

    plan = asked(5)
    assert plan.complete is None
    assert [p.name for p in tmp_path.iterdir()] == ["docs.jsonl"]
    first = run(plan)
    before = {p: p.stat().st_mtime_ns for p in job.output.iterdir()}
    assert asked(5).complete == first.manifests
    with pytest.raises(WorkbenchError, match="shard_size was 5, is 6"):
        asked(6)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part.tar").write_bytes(b"")
    with pytest.raises(WorkbenchError, match="holds shards of another corpus"):
        asked(5, tmp_path / "mine")
    with pytest.raises(WorkbenchError, match="lies inside the input"):
        check(Conversion(job.reader), [tmp_path], tmp_path / "out", "text")
    assert {p: p.stat().st_mtime_ns for p in job.output.iterdir()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus", "docs.jsonl", "mine"]
