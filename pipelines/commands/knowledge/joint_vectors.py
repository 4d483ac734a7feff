"""`prepare joint-vectors`: vectors of words and entities in one space, trained on linked texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands import options
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Place
from workbench.core.packages import extra
from workbench.corpora.corpus import Corpus
from workbench.runs.output_places import OutputFile
from workbench.text.word_vectors import WordVectorOptions

log = logging.getLogger(__name__)


def joint_vectors(
    corpora: Annotated[list[Place], typer.Argument(help="Folders of linked text corpora.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .txt.", show_default=False)],
    training: WordVectorOptions,
    graph: Annotated[
        Path | None, typer.Option(help="A triples corpus or graph store whose triples are additional sentences.")
    ] = None,
    limit: options.Limit = None,
) -> None:
    """Train vectors of words and entities together (skip-gram), as Wikipedia2Vec does, for E-BERT.

    Each text is read twice: unchanged, and with entities in place of their mentions. The file has word2vec's text
    format, with lower-case words, and entities as ENTITY/id. `prepare vectors GRAPH --from FILE --map-to MODEL` maps
    the entities into the space of a model's words.

    Examples:

      workbench prepare joint-vectors corpora/wiki-linked --output joint.txt

      workbench prepare joint-vectors corpora/wiki-linked --graph corpora/graph -o joint.txt --min-count 2 --epochs 10
    """
    if output.suffix != ".txt":
        raise WorkbenchError(f"--output {output}: the vectors are written to a .txt file; choose that suffix")
    opened = [Corpus.open(place) for place in corpora]
    for corpus in opened:
        lacking = sorted({"text", "spans"} - set(corpus.manifest.fields))
        if lacking:
            raise WorkbenchError(
                f"{corpus.place} has no {' and no '.join(lacking)}; needed: texts with links (workbench prepare link)"
            )
    with extra("kg"):
        from kg.graph.store import GraphStore
        from kg.sequences.linked_mentions import right_links
        from kg.vectors.joint_vectors import Linked, save_joint_vectors
    store = None if graph is None else GraphStore.open(graph)

    def texts() -> Iterator[Linked]:
        for sample in islice(chain.from_iterable(opened), limit):
            yield sample["text"], right_links(sample)

    words, entities = save_joint_vectors(output, texts, store, training)
    log.info("%s: vectors of %s words and %s entities", output, f"{words:,}", f"{entities:,}")
