"""`prepare word-pairs`: pairs of related words from a graph of senses, and static vectors of the words."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from pipelines.commands.options import SplitShares, WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusTexts
from pipelines.preparing.splits import Splits
from pipelines.readers.reader import RawReader, Record
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.stores import NoSuchFileError, path_at
from workbench.core.options.bounds import Name, Place
from workbench.core.packages import extra
from workbench.corpora.corpus import Corpus
from workbench.sequences.sequence import Sample
from workbench.text.word_vectors import WordVectorOptions

log = logging.getLogger(__name__)
VECTORS = "words.safetensors"
"""Name of the file of vectors in the corpus's folder."""
SENSES = (
    "Give a graph of senses, such as WordNet's (workbench prepare triples dict --output CORPUS), or name a relation of "
    "this one whose ends are words of one meaning (--relation)."
)


@dataclass(frozen=True)
class WordPairs(RawReader):
    """The pairs of a graph, each a record: a word as `text`, the other as `second`, the label `relation`."""

    kind: ClassVar[str] = "text"
    relations: tuple[str, ...]

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        from kg.graph.builder import META

        return [path / META for path in paths]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        from kg.graph.store import GraphStore
        from kg.lexicons.word_pairs import word_pairs

        for path in paths:
            for number, pair in enumerate(word_pairs(GraphStore.open(path), self.relations)):
                yield Record((number, pair), 100, f"{path.name}:{pair.entity}")

    def sample(self, record: Record) -> Sample:
        number, pair = record.data
        return {
            "key": f"{number:08}",
            "text": pair.first,
            "second": pair.second,
            "labels": {"relation": pair.relation},
            "meta": {"source": pair.entity},
        }


def word_pairs(
    graph: Annotated[Path, typer.Argument(help="A triples corpus of WordNet, or its graph store.", show_default=False)],
    texts: Annotated[
        list[Place], typer.Option(help="A corpus to train word vectors on. Repeatable.", show_default=False)
    ],
    options: WritingOptions,
    training: WordVectorOptions,
    relation: Annotated[
        list[Name],
        typer.Option(help="A relation whose heads and tails are pairs, in addition to synonyms. Repeatable."),
    ] = ["hypernym"],  # noqa: B006
    split: SplitShares = [],  # noqa: B006
) -> None:
    """Write the pairs of words that a graph of senses relates, for kg.lexical_relation (LIBERT).

    Names of the same entity are synonyms. The names of a triple's head and tail have its relation.
    OUTPUT/words.safetensors has vectors of all words (fastText): with them the objective finds hard false pairs.

    Example:

      workbench prepare word-pairs corpora/wordnet --texts corpora/wiki -o corpora/word-pairs --split held-out=0.02
    """
    with extra("kg"):
        from kg.graph.store import GraphStore
        from kg.lexicons.word_vectors import save_word_vectors
    store = GraphStore.open(graph)
    for name in relation:
        if store.relation_ids.find(name) < 0:
            raise unknown("relation", name, list(store.relation_ids), str(store.path), advice=SENSES)
    opened = [Corpus.open(place) for place in texts]
    splits = Splits.parse(split)
    provenance = {
        **dataclasses.asdict(training),
        "corpora": {str(corpus.place): corpus.identity for corpus in opened},
        "gensim": version("gensim"),
    }
    before = _vectors_before(f"{options.place_of()}/{VECTORS}", provenance)
    options.prepare(Conversion(WordPairs(tuple(relation))), [store.path], "text", splits=splits)
    if before is not None:
        log.info("%s exists already", before)
        return
    words = sorted({word for part in splits.parts for word in _words(options.place_of(part))})
    if not words:
        raise WorkbenchError(
            f"the graph {store.path} has no pair of related words; use WordNet's (workbench prepare triples dict "
            "--output CORPUS)"
        )
    with options.file_next_to(VECTORS) as path:
        save_word_vectors(path, words, CorpusTexts(opened), training, provenance)
        log.info("%s: vectors of %s words", path, f"{len(words):,}")


def _vectors_before(place: str, provenance: Mapping[str, Any]) -> Path | None:
    """The vectors that an earlier call trained.

    Raises:
        WorkbenchError: they were trained with other options or texts.
    """
    try:
        path = path_at(place)
    except NoSuchFileError:
        return None
    if not path.is_file():
        return None
    from kg.vectors.vectors import load_vectors

    made = load_vectors(path).provenance
    changed = [name for name in provenance if made.get(name) != provenance[name]]
    if changed:
        raise WorkbenchError(
            f"{path} was trained with other options or texts ({', '.join(changed)}); choose another --output, or "
            "remove the file to train "
            "these vectors again"
        )
    return path


def _words(place: str) -> Iterator[str]:
    for sample in Corpus.open(place):
        yield from (sample["text"].lower(), sample["second"].lower())
