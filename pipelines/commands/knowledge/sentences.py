"""`prepare sentences`: the triples of a graph as a linked text corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import open_corpus
from pipelines.sources.templates import read_templates
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count
from workbench.core.packages import extra
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.sequences.entities import GRAPHS, noted


def sentences(
    graph: Annotated[CorpusFolder, typer.Argument(help="A triples corpus.", show_default=False)],
    options: WritingOptions,
    templates: Annotated[
        Path | None, typer.Option(help="Sentences of relations: lines of RELATION<tab>TEMPLATE, or LAMA's file.")
    ] = None,
    most: Annotated[Count, typer.Option(help="Most triples of a text.")] = 5,
) -> None:
    """Write the triples of each entity as texts, in which the entities are linked (KELM).

    A template such as "[X] lies in [Y] ." makes a sentence of each triple. Triples of relations without a template are
    left out and counted. Without templates the triples are listed: "Oslo lies in Norway, near Bergen." A run that
    writes texts turns lists into sentences: `workbench generate RUN CORPUS`.

    Examples:

      workbench prepare sentences corpora/graph --templates templates.tsv --output corpora/sentences

      workbench prepare sentences corpora/graph --most 3 --output corpora/listed
    """
    opened = open_corpus(str(graph))
    if opened.kind != "triples":
        raise WorkbenchError(f"{graph} (kind {opened.kind}) has no triples; needed: a corpus of `prepare triples`")
    with extra("kg"):
        from kg.evaluation.facts.clozes import check_template
        from kg.graph.store import GraphStore
        from pipelines.preparing.triple_sentences import TripleSentenceReader
    found = {} if templates is None else read_templates(templates)
    for relation, template in found.items():
        check_template(template, f"{templates}, relation {relation!r}")
    reader = TripleSentenceReader(str(graph), tuple(found.items()), most)
    about = {GRAPHS: [noted(GraphStore.open(str(graph)).space)], "relations with a template": len(found)}
    options.prepare(Conversion(reader), [graph], "text", about=about)
