"""Vectors of words and entities in one space, as Wikipedia2Vec's (Yamada et al. 2016), trained on linked texts.

Each text is read twice: as it is, and with its entities in the places of their mentions, so that entities are learnt
from the words around them. Triples of a graph are read as sentences; Wikipedia2Vec reads which entities link to which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gensim.models import Word2Vec

from kg.graph.store import GraphStore
from workbench.corpora.corpus import Corpus
from workbench.evaluation.passes import all_records

_WORD = re.compile(r"\w+")


def write_joint_vectors(
    corpus: Path, output: Path, graph: Path | None = None, size: int = 100, epochs: int = 10
) -> None:
    """Train by skip-gram and write word2vec's text; an entity's key is its id. The same corpus gives the same file."""
    texts = [text for record in all_records(Corpus.open(str(corpus))) for text in read_twice(record)]
    texts += stated(GraphStore.open(graph)) if graph is not None else []
    model = Word2Vec(texts, vector_size=size, sg=1, min_count=2, epochs=epochs, workers=1, seed=1)
    model.wv.save_word2vec_format(str(output))


def read_twice(record: dict[str, Any]) -> Iterator[list[str]]:
    """The words of a text, lower-cased; and again with its entities in the places of their mentions."""
    text, spans = str(record["text"]), record.get("spans", ())
    yield _words(text)
    with_entities, end = [], 0
    for start, stop, entity, *_ in spans:
        if start >= end:
            with_entities += [*_words(text[end:start]), str(entity)]
            end = stop
    yield [*with_entities, *_words(text[end:])]


def stated(graph: GraphStore) -> Iterator[list[str]]:
    """Each triple as its entities about the words of its relation, and each entity before the words of its label."""
    for head, relation, tail in graph.triples():
        yield [head, *_words(graph.relation_label(relation)), tail]
    for entity in graph.ids:
        if graph.label(entity) != entity:
            yield [entity, *_words(graph.label(entity))]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
