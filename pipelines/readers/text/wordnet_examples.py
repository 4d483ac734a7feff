"""The examples in WordNet's glosses as texts with known links, written by lexicographers.

    data.noun:  00001740 03 n 01 bank 0 000 | sloping land; "they sat on the bank of the river"

becomes the text of the example with `bank` linked to 00001740-n. KnowBERT trains its linker of WordNet on them (Peters
et al., arXiv:1909.04164; its code has them with SemCor in `semcor_and_wordnet_examples.json`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import Drop, MalformedError, Peek, RawReader, Record
from pipelines.readers.triples.wordnet import FILES, files_of, synsets
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample

_QUOTED = re.compile(r'"([^"]+)"')


@dataclass(frozen=True)
class WordnetExamples(RawReader):
    """Each example is a sample, with a link to its synset at the first of the synset's words in it.

    A word is searched for as it is spelt, ignoring case; an example without one (it has another form: went) is dropped.
    The folder is WordNet's `dict`, which `prepare triples` turns into a graph.
    """

    kind: ClassVar[str] = "text"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.is_folder and any(name in source.names for name in FILES)

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return files_of(paths)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for synset in synsets(paths):
            if isinstance(synset, MalformedError):
                yield Record(synset, 0, synset.where)
                continue
            for number, text in enumerate(_QUOTED.findall(synset.gloss)):
                yield Record((synset.id, number, synset.words, text), len(text.encode()), f"wordnet:{synset.id}")

    def sample(self, record: Record) -> Sample | Drop:
        synset, number, words, text = record.data
        found = re.search(rf"\b(?:{'|'.join(map(re.escape, words))})\b", text, re.IGNORECASE)
        if found is None:
            return Drop("no word of its synset as it is spelt")
        return {
            "key": record_key(f"{synset}-{number}"),
            "text": text,
            "spans": [[found.start(), found.end(), synset, 1.0]],
            "meta": {"source": "wordnet", "id": synset},
        }
