"""Vectors of words and entities in one space (Wikipedia2Vec, Yamada et al., CoNLL 2016), trained with gensim.

Skip-gram over texts that are read twice: as they are, and with the entities in the places of their mentions, so that
what is around a mention predicts, and is predicted by, its entity too. That is the anchor context model; in place of
Wikipedia2Vec's graph of links between articles the triples of a graph are read as sentences.

The file is word2vec's text as wikipedia2vec writes it: words in small letters, entities as ENTITY/ and their id, with
"_" for spaces. `prepare vectors --from FILE --map-to MODEL` takes it (E-BERT).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kg.graph.store import GraphStore
from kg.vectors.pretrained_vectors import TITLE, underscored
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.text.word_vectors import WordVectorOptions, skip_gram

Words = list[str]
Linked = tuple[str, Sequence[Sequence[Any]]]
"""A text and its links, [start, end, entity, ...] in characters."""
_WORD = re.compile(r"\w+")


def save_joint_vectors(
    path: Path, texts: Callable[[], Iterable[Linked]], graph: GraphStore | None, options: WordVectorOptions
) -> tuple[int, int]:
    """Train vectors of the words and entities of linked texts, and write them whole or not at all.

    The same texts and options give the same file.

    Args:
        texts: as often as asked.
        graph: its triples are sentences too.

    Returns:
        How many words and how many entities have a vector.

    Raises:
        WorkbenchError: no entity or no word occurs often enough, or gensim is not installed.
    """
    model, sentences = skip_gram(options), _Sentences(texts, graph)
    model.build_vocab(sentences)
    keys: list[str] = model.wv.index_to_key
    entities = sum(key.startswith(TITLE) for key in keys)
    if not 0 < entities < len(keys):
        raise WorkbenchError(
            f"{'no entity' if not entities else 'no word'} occurs {options.min_count} times in the texts; give more "
            "linked text (workbench prepare link), a graph (--graph), or a smaller --min-count"
        )
    model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs)
    with atomic(path) as file:
        file.write(f"{len(keys)} {options.dim}\n".encode())
        for key, vector in zip(keys, model.wv.vectors, strict=True):
            file.write(f"{key} {' '.join(map(str, vector))}\n".encode())
    return len(keys) - entities, entities


class _Sentences:
    """The texts and the graph as lists of words and entities, as often as asked."""

    def __init__(self, texts: Callable[[], Iterable[Linked]], graph: GraphStore | None) -> None:
        self.texts, self.graph = texts, graph

    def __iter__(self) -> Iterator[Words]:
        for text, links in self.texts():
            yield from read_twice(text, links)
        if self.graph is not None:
            yield from stated(self.graph)


def read_twice(text: str, links: Sequence[Sequence[Any]]) -> Iterator[Words]:
    """The words of a text; and again, where there are any, with its entities in the places of their mentions."""
    yield _words(text)
    with_entities, end = [], 0
    for start, stop, entity, *_ in sorted(links, key=lambda link: (link[0], -link[1])):
        if start >= end:
            with_entities += [*_words(text[end:start]), key_of(entity)]
            end = stop
    if with_entities:
        yield [*with_entities, *_words(text[end:])]


def stated(graph: GraphStore) -> Iterator[Words]:
    """Each triple as its entities about the words of its relation, and each entity before the words of its label."""
    for head, relation, tail in graph.triples():
        yield [key_of(head), *_words(graph.relation_label(relation)), key_of(tail)]
    ids_are_names = graph.meta["labels"] == 0
    for row, entity in enumerate(graph.ids):
        if label := _words(entity if ids_are_names else graph.label_of(row)):
            yield [key_of(entity), *label]


def key_of(entity: str) -> str:
    """An entity among words."""
    return TITLE + underscored(entity)


def _words(text: str) -> Words:
    return _WORD.findall(text.lower())
