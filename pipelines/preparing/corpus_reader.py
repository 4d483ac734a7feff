"""Reading a finished corpus as the input of another preparation (linking, region features)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pipelines.readers.reader import MalformedError, RawReader, Record
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.corpora.shards.record import BadRecordError
from workbench.sequences.sequence import Sample


@lru_cache(maxsize=4)
def open_corpus(place: str) -> Corpus:
    """The corpus, opened once in each process."""
    return Corpus.open(place)


def all_samples(corpus: Corpus) -> Iterator[Sample]:
    """Every record of a corpus, in the order of its shards."""
    for shard, info in enumerate(corpus.shards):
        for record in range(info.records):
            yield corpus.read(shard, record)


@dataclass(frozen=True)
class CorpusReader(RawReader):
    """Every record of a corpus, under its key."""

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [path / FILE_NAME for path in paths]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in paths:
            corpus = open_corpus(str(path))
            for number, info in enumerate(corpus.shards):
                shard = corpus.shard(number)
                for record in range(info.records):
                    yield Record((str(path), number, record), shard.size_of(record), f"{info.name}:{record}")

    def sample(self, record: Record) -> Sample:
        place, shard, number = record.data
        try:
            sample = dict(open_corpus(place).read(shard, number))
        except BadRecordError as error:
            raise MalformedError(error.reason, f"{error.shard}, key {error.key!r}", error.detail) from error
        sample.pop("corpus", None)
        return sample
