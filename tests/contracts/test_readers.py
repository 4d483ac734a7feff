"""Contracts of the raw formats: what they make of whole, empty, damaged, cut and very long files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import detect, make_reader
from pipelines.readers.reader import Drop, RawReader, Record
from tests.contracts.case_finder import case_of, cases_of, over
from tests.contracts.cases import ReaderCase
from tests.contracts.material import plain, travelled
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.schema.schema import fields_of, lacking
from workbench.corpora.shards.writer import ShardWriter

GARBAGE = b"\n\xff\xfe{\x00\n"
MANY = 4000


class Raw:
    """An input in a folder, and a reader of it."""

    def __init__(self, name: str, folder: Path, records: int = 5) -> None:
        self.case: ReaderCase = case_of("reader", name)
        pytest.importorskip(self.case.needs)
        self.kind, self.format = cases_of("reader")[name].part.split()
        self.folder = folder / "raw"
        self.folder.mkdir()
        self.file = self.folder / self.case.file
        text = self.case.text(records)
        self.file.write_bytes(text.encode() if isinstance(text, str) else text)
        for other, data in self.case.alongside(records).items():
            (self.folder / other).write_bytes(data)
        self.paths = [self.folder if self.case.folder else self.file]

    def reader(self) -> RawReader:
        return make_reader(self.kind, self.format, self.paths, self.case.options)

    def records(self) -> list[Record]:
        return list(self.reader().records(self.paths))

    def samples(self) -> list[dict[str, Any]]:
        return list(self.reader().samples(self.paths))

    def samples_or_name(self) -> list[dict[str, Any]]:
        """The samples; none where it is refused with the name of its file."""
        try:
            return self.samples()
        except WorkbenchError as error:
            assert any(path.name in str(error) for path in (self.file, *self.paths))  # noqa: PT017
            return []


@pytest.fixture
def raw(name: str, tmp_path: Path) -> Raw:
    return Raw(name, tmp_path)


@over("reader")
def test_a_format_is_detected_by_its_input(name: str, raw: Raw) -> None:
    assert detect(raw.kind, raw.paths) == raw.format
    assert raw.file in raw.reader().inputs(raw.paths)


@over("reader")
def test_samples_are_those_of_the_schema_and_can_be_stored(name: str, raw: Raw, tmp_path: Path) -> None:
    made = raw.samples()
    assert len(made) == 5 + raw.case.more
    with ShardWriter(tmp_path / "corpus" / "part-000000.tar", kind=raw.kind) as writer:
        for sample in made:
            assert {*sample} - {"key"} <= {*fields_of(raw.kind)}
            assert not lacking(raw.kind, sample)
            writer.add(sample["key"], {field: value for field, value in sample.items() if field != "key"})
    assert writer.info is not None
    finish_corpus(tmp_path / "corpus", kind=raw.kind, shards=[writer.info], provenance={})
    corpus = Corpus.open(tmp_path / "corpus")
    for i, sample in enumerate(made):
        stored = corpus.read(0, i)
        assert plain({field: stored[field] for field in sample if field in stored}) == plain(
            {field: value for field, value in sample.items() if field in stored}
        )
        assert all(not value for field, value in sample.items() if field not in stored)


@over("reader")
def test_records_are_the_same_twice_and_in_any_worker(name: str, raw: Raw) -> None:
    reader, records = raw.reader(), raw.records()
    assert plain(records) == plain(raw.records())
    assert all(record.size > 0 and ":" in record.where for record in records)
    assert len({sample["key"] for sample in raw.samples()}) == 5 + raw.case.more
    here = [reader.read(record) for record in records]
    there = [travelled(reader).sample(travelled(record)) for record in reversed(records)]
    assert plain(here) == plain(list(reversed(there)))
    assert not any(isinstance(sample, Drop) for sample in here)


@over("reader")
def test_reading_may_stop_early(name: str, raw: Raw) -> None:
    """As `--limit` does; the same reader then begins anew."""
    reader = raw.reader()
    some = reader.records(raw.paths)
    first = [next(some), next(some)]
    some.close()
    assert plain(list(reader.records(raw.paths))[:2]) == plain(first)


@over("reader", "streams")
def test_records_stream(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a fraction of a large file is in memory at once."""
    many = Raw(name, tmp_path, MANY)
    monkeypatch.setattr("pipelines.sources.files.READ_SIZE", 4096)
    reader, size = many.reader(), many.file.stat().st_size
    tracemalloc.start()
    try:
        assert sum(1 for _ in reader.records(many.paths)) == MANY + many.case.more
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 3


@over("reader")
def test_an_empty_file_gives_nothing_or_is_named(name: str, raw: Raw) -> None:
    raw.file.write_bytes(b"")
    assert raw.samples_or_name() == []


@over("reader", "damaged")
def test_damage_is_reported_with_the_file(name: str, raw: Raw) -> None:
    whole = raw.file.read_bytes()
    at = whole.index(b"\n", len(whole) // 2) if b"\n" in whole[len(whole) // 2 :] else len(whole) // 2
    raw.file.write_bytes(whole[:at] + GARBAGE + whole[at:])
    with pytest.raises(WorkbenchError, match=raw.file.name.replace(".", r"\.")):
        raw.samples()


@over("reader")
@pytest.mark.parametrize("share", [0.3, 0.5, 0.95])
def test_a_cut_off_file_gives_its_beginning_or_is_named(name: str, raw: Raw, share: float) -> None:
    whole, keys = raw.file.read_bytes(), [sample["key"] for sample in raw.samples()]
    raw.file.write_bytes(whole[: int(share * len(whole))])
    found = [sample["key"] for sample in raw.samples_or_name()]
    assert len(found) <= len(keys)


@over("reader", "long lines")
def test_an_endless_line_is_refused(name: str, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.sources.files.LINE_LIMIT", 1000)
    with raw.file.open("a") as file:
        file.write("x" * 2000)
    with pytest.raises(WorkbenchError, match=rf"{raw.file.name}:\d+: the line is longer than 1,000 bytes"):
        raw.samples()


@over("reader")
def test_a_missing_file_is_named(name: str, raw: Raw) -> None:
    raw.file.unlink()
    with pytest.raises(WorkbenchError, match=raw.file.stem):
        raw.samples()
