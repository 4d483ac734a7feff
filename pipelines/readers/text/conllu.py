"""CoNLL-U: sentences with their dependency trees (Universal Dependencies, Nivre et al., LREC 2016)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from pipelines.readers.reader import Drop, MalformedError, RawReader, Record
from pipelines.sources.files import decode, files, lines, record_key, stem
from workbench.sequences.sequence import Sample

COLUMNS = 10
NOTHING, ROOT = "_", 0


class Word(NamedTuple):
    """A word of the tree and its span in the text."""

    start: int
    end: int
    upos: str
    head: int | None
    relation: str


@dataclass(frozen=True)
class ConllU(RawReader):
    """Each sentence is a sample: its text, `tags` (the words' parts of speech, UPOS) and `dependencies`.

    The text is the forms joined by spaces, unless the file says SpaceAfter=No. A token of several words (1-2) is one
    word
    here: the one whose head is outside. Empty nodes (1.1) are dropped. A file may lack parts of speech, or heads (`_`).
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = (".conllu",)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in files(paths, self.suffixes):
            gathered: list[bytes] = []
            for number, line in lines(path):
                if line.strip():
                    gathered.append(line)
                elif gathered:
                    yield _record(path, number - len(gathered), gathered)
                    gathered = []
            if gathered:  # there is no empty line after the last sentence
                yield _record(path, number - len(gathered) + 1, gathered)

    def sample(self, record: Record) -> Sample | Drop:
        name, number, raw = record.data
        rows = [decode(line, record.where).split("\t") for line in raw if not line.startswith(b"#")]
        wrong = next((row for row in rows if len(row) != COLUMNS), None)
        if wrong is not None:
            raise MalformedError(f"{len(wrong)} columns; a line of CoNLL-U has {COLUMNS}", record.where, wrong[0][:40])
        text, words = _words(rows, record.where)
        if not words:
            return Drop("no words")
        sample: Sample = {"key": record_key(f"{name}-{number}"), "text": text}
        different = list(dict.fromkeys(words.values()))
        tags = [[word.start, word.end, word.upos] for word in different if word.upos != NOTHING]
        if tags:
            sample["tags"] = tags
        if any(word.head is not None for word in different):
            sample["dependencies"] = [_dependency(word, words, record.where) for word in different]
        return {**sample, "meta": {"source": record.where.rpartition(":")[0], "line": number}}


def _record(path: Path, begin: int, raw: list[bytes]) -> Record:
    return Record((stem(path), begin, raw), sum(map(len, raw)), f"{path.name}:{begin}")


def _words(rows: list[list[str]], where: str) -> tuple[str, dict[int, Word]]:
    """The text, and its words by their numbers; the words of one token are the same."""
    text, words, tokens, last = "", dict[int, Word](), dict[int, list[int]](), 0
    for row in rows:
        name = row[0]
        if "." in name:
            continue
        first, _, end = name.partition("-")
        if not first.isdecimal() or (end and not end.isdecimal()):
            raise MalformedError(f"{name[:40]!r} is no number of a word", where)
        if end or int(first) > last:
            start, last = len(text), int(end or first)
            text += row[1]
            place = (start, len(text))
            text += "" if "SpaceAfter=No" in row[9].split("|") else " "
            tokens[start] = []
        if not end:
            words[int(first)] = Word(*place, row[3], _head(row, where), row[7])
            tokens[start].append(int(first))
    for several in tokens.values():
        outer = [number for number in several if words[number].head not in several]
        if len(several) > 1:
            words |= dict.fromkeys(several, words[(outer or several)[0]])
    return text.rstrip(), words


def _head(row: list[str], where: str) -> int | None:
    if row[6] != NOTHING and not row[6].isdecimal():
        raise MalformedError(f"the head of {row[1][:40]!r} is no number", where, row[6][:40])
    return None if row[6] == NOTHING else int(row[6])


def _dependency(word: Word, words: dict[int, Word], where: str) -> list[object]:
    """[start, end, distance of its head's start in characters (0: the root), relation]."""
    if word.head is None or (word.head != ROOT and word.head not in words) or not word.relation:
        found = NOTHING if word.head is None else str(word.head)
        raise MalformedError(f"a word has the head {found} in a sentence of {len(words)} words", where)
    if word.head == ROOT:
        return [word.start, word.end, 0, word.relation]
    distance = words[word.head].start - word.start
    if not distance:
        raise MalformedError("a word is its own head", where, word.relation)
    return [word.start, word.end, distance, word.relation]
