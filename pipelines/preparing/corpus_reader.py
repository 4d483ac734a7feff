"""The reader of a finished corpus: as input of another preparation (linking, region features), or its texts only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from pipelines.readers.reader import Drop, MalformedError, RawReader, Record, RecordPlace
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.corpora.shards.record import BadRecordError
from workbench.sequences.sequence import Sample


@lru_cache(maxsize=4)
def open_corpus(place: str) -> Corpus:
    """The corpus, opened once in each process."""
    return Corpus.open(place)


@dataclass(frozen=True)
class CorpusReader(RawReader):
    """Every record of a corpus, under its key."""

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [path / FILE_NAME for path in paths]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in paths:
            yield from self.records_from(RecordPlace(path / FILE_NAME, 0, 0))

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        """From a place, whose offset counts the records of the whole corpus, and whose number is that of the shard."""
        corpus = open_corpus(str(place.path.parent))
        before = sum(info.records for info in corpus.shards[: place.number])
        for number, info in enumerate(corpus.shards[place.number :], place.number):
            shard = corpus.shard(number)
            for record in range(max(0, place.offset - before), info.records):
                data = (str(place.path.parent), number, record)
                at = RecordPlace(place.path, before + record, number)
                yield Record(data, shard.size_of(record), f"{info.name}:{record}", at)
            before += info.records

    def sample(self, record: Record) -> Sample | Drop:
        place, shard, number = record.data
        try:
            sample = dict(open_corpus(place).read(shard, number))
        except BadRecordError as error:
            raise MalformedError(error.reason, f"{error.shard}, key {error.key!r}", error.detail) from error
        sample.pop("corpus", None)
        return sample


class CorpusTexts:
    """The texts of the first `limit` records of corpora; iterates as often as needed."""

    def __init__(self, corpora: Sequence[Corpus], limit: int | None = None) -> None:
        self.corpora = corpora
        self.limit = limit

    def __iter__(self) -> Iterator[str]:
        for sample in islice(chain.from_iterable(self.corpora), self.limit):
            yield from _texts_of(sample)


class SmoothedTexts:
    """The texts of corpora, sampled in proportion to size ** `exponent`; iterates as often as needed.

    The total number of characters stays the same. Only the beginning of a large corpus is read, and a small one is read
    several times (XLM, arXiv:1901.07291, section 3.1)."""

    def __init__(self, corpora: Sequence[Corpus], exponent: float, limit: int | None = None) -> None:
        self.each = [CorpusTexts([corpus], limit) for corpus in corpora]
        sizes = [sum(map(len, texts)) for texts in self.each]
        shares = [size**exponent if size else 0.0 for size in sizes]
        self.characters = [round(sum(sizes) * share / (sum(shares) or 1)) for share in shares]

    def __iter__(self) -> Iterator[str]:
        for texts, left in zip(self.each, self.characters, strict=True):
            endless = chain.from_iterable(repeat(texts))
            while left > 0:
                text = next(endless)[:left]
                yield text
                left -= len(text)


def _texts_of(sample: Sample) -> Iterator[str]:
    """All texts of a sample that a tokenizer will encode."""
    yield from (sample[name] for name in ("text", "second") if name in sample)
    yield from sample.get("translations", {}).values()
    yield from sample.get("turns", [])
    yield from sample.get("choices", [])
    yield from sample.get("captions", [])
    questions: list[dict[str, Any]] = sample.get("questions", [])
    for question in questions:
        yield question["question"]
        yield from question["answers"]
    if "triples" in sample:
        yield from filter(None, (sample.get("label"), sample.get("description"), *sample.get("aliases", [])))
        yield from (triple.get("relation_text") or triple["relation"] for triple in sample["triples"])
