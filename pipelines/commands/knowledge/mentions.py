"""`prepare mentions`: the mentions of a linked corpus as questions, with their candidate entities as choices."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import open_corpus
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Name
from workbench.core.packages import extra
from workbench.corpora.stored_corpus import CorpusFolder


def mentions(
    corpus: Annotated[CorpusFolder, typer.Argument(help="A linked text corpus.", show_default=False)],
    graph: Annotated[CorpusFolder, typer.Option(help="The triples corpus or graph store of its entities.")],
    options: WritingOptions,
    most: Annotated[Count, typer.Option(help="Most candidates of a mention.")] = 10,
    context: Annotated[Count, typer.Option(help="Characters on either side of a mention.")] = 128,
    marker: Annotated[Name, typer.Option(help="A token on both sides of a mention.")] = "#",
) -> None:
    """Write each mention in its context as a text, with descriptions of its candidate entities as choices (BLINK).

    CORPUS has candidates of which the right ones are marked: `prepare link --candidates 30 --supervise`. The choices
    are in the linker's order, so that the baseline "always the first" of `evaluate choose` is the linker. Mentions with
    a single candidate, or without the right one, are left out and counted.

    Example:

      workbench prepare mentions corpora/wiki-links --graph corpora/graph --output corpora/mentions
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "text" or "spans" not in opened.manifest.fields:
        raise WorkbenchError(f"{corpus} (kind {opened.kind}) has no links; needed: a text corpus with `spans`")
    with extra("kg"):
        from pipelines.preparing.mentions import MentionReader
    reader = MentionReader(str(graph), most, context, marker)
    options.prepare(Conversion(reader), [corpus], "text", about={"linker": opened.manifest.about.get("linker")})
