"""Parallel text of machine translation: a file for each language, with the same sentence in line i of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import Drop, Peek, RawReader, Record, parse_text
from pipelines.sources.files import NOT_DATA, files, lines, plain_suffix, record_key, stem
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Word
from workbench.sequences.sequence import Sample

_LANGUAGE = re.compile(r"\.[a-z]{2}([-_][a-z0-9]{2,8})?")


@dataclass(frozen=True)
class Parallel(RawReader):
    """`languages` are those of the files, in their order; by default the files' suffixes (`train.en train.de`).

    A line becomes a record with `translations`, by language. A line that is empty in a language is dropped, and counted
    under that language (as "every language" if it is empty in all of them).
    """

    kind: ClassVar[str] = "text"

    languages: list[Word] | None = None

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return is_parallel(source)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        sources = files(paths)
        languages, names = self._languages(sources), [path.name for path in sources]
        each = [lines(path) for path in sources]
        for number, found in enumerate(zip_longest(*each), 1):
            if None in found:
                read = [number - (line is None) for line in found]
                raise _uneven(sources, [n + sum(1 for _ in rest) for n, rest in zip(read, each, strict=True)])
            raw = [line for _, line in found]
            data = (stem(sources[0]), number, languages, names, raw)
            yield Record(data, sum(map(len, raw)), f"{names[0]}:{number}")

    def sample(self, record: Record) -> Sample | Drop:
        stemmed, number, languages, names, raw = record.data
        texts = [parse_text(line, f"{name}:{number}").strip() for line, name in zip(raw, names, strict=True)]
        empty = [language for language, text in zip(languages, texts, strict=True) if not text]
        if empty:
            return Drop(f"empty in {'every language' if len(empty) == len(languages) else ' and '.join(empty)}")
        translations = dict(zip(languages, texts, strict=True))
        meta = {"source": names[0], "line": number}
        return {"key": record_key(f"{stemmed}-{number}"), "translations": translations, "meta": meta}

    def _languages(self, sources: Sequence[Path]) -> list[str]:
        """The language of each file.

        Raises:
            WorkbenchError: there is a single file, a language is missing, or one occurs twice.
        """
        found = ", ".join(path.name for path in sources)
        if len(sources) < 2:
            raise WorkbenchError(f"parallel text is a file for each language, in the same lines; found {found} alone")
        languages = self.languages or [plain_suffix(path).removeprefix(".") for path in sources]
        if len(languages) != len(sources) or len(set(languages)) < len(languages) or not all(languages):
            raise WorkbenchError(
                f"the files {found} have the languages {', '.join(languages) or 'none'}; one for each file is "
                "needed, all different: name the files train.en, train.de, or add --option languages=[en,de]"
            )
        return languages


def is_parallel(source: Peek) -> bool:
    """Whether the inputs, or the files of a folder, share a stem and have languages as suffixes."""
    inside = [Path(name) for name in source.names if not name.startswith(NOT_DATA)]
    named = inside if source.is_folder else list(source.inputs)
    suffixes = {plain_suffix(path) for path in named}
    return (
        len(named) > 1
        and len({stem(path) for path in named}) == 1
        and len(suffixes) == len(named)
        and all(map(_LANGUAGE.fullmatch, suffixes))
    )


def _uneven(sources: Sequence[Path], counts: Sequence[int]) -> WorkbenchError:
    listed = ", ".join(f"{path} has {count:,}" for path, count in zip(sources, counts, strict=True))
    return WorkbenchError(
        f"the files have different numbers of lines: {listed}. Line i of each must be the same sentence; fix the "
        f"files, or use the files of one set"
    )
