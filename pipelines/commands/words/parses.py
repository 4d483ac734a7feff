"""`prepare parses`: the dependency trees of the sentences of a corpus."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands import options
from pipelines.preparing.corpus_reader import open_corpus
from pipelines.sources.spacy_pipeline import pipeline_version, spacy_pipeline
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.core.options.bounds import Name
from workbench.corpora.corpus import Corpus
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.runs.output_places import OutputFile

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Span

log = logging.getLogger(__name__)
ENDING = ".conllu"


def parses(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a text corpus.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .conllu.", show_default=False)],
    model: Annotated[Name, typer.Option(help="A spaCy pipeline with a parser (package or folder).")],
    limit: options.Limit = None,
) -> None:
    """Parse the sentences of texts into dependency trees, as CoNLL-U, which `prepare text` reads: for K-Adapter.

    Examples:

      workbench prepare parses corpora/books --model en_core_web_sm --output trees.conllu

      workbench prepare text trees.conllu --output corpora/parsed
    """
    if output.suffix != ENDING:
        raise WorkbenchError(f"--output {output}: the trees are written to a {ENDING} file, which `prepare text` reads")
    opened = open_corpus(str(corpus))
    if "text" not in opened.manifest.fields:
        raise WorkbenchError(
            f"no record of {corpus} has a 'text' (they have {', '.join(opened.manifest.fields)}), and only texts "
            "are parsed; name a corpus of texts"
        )
    pipeline, sentences = _parser(model), 0
    with atomic(output) as file:
        for parsed in pipeline.pipe(_paragraphs(opened, limit)):
            for sentence in parsed.sents:
                rows = list(conllu(sentence))
                file.write(("\n".join(rows) + "\n\n").encode() if rows else b"")
                sentences += bool(rows)
        if not sentences:
            raise WorkbenchError(f"{corpus} has no sentence; name a corpus with texts")
    log.info("%s: %d sentences", output, sentences)


def _parser(name: str) -> Language:
    pipeline = spacy_pipeline(name)
    if "parser" not in pipeline.pipe_names:
        raise WorkbenchError(
            f"the spaCy pipeline {name!r} ({pipeline_version(pipeline)}) has no parser; name one with a parser, such "
            "as "
            f"en_core_web_sm"
        )
    return pipeline


def _paragraphs(corpus: Corpus, limit: int | None) -> Iterator[str]:
    """The lines of the texts, with single spaces."""
    texts = (sample["text"] for sample in islice(corpus, limit) if "text" in sample)
    return (" ".join(line.split()) for text in texts for line in text.splitlines() if line.strip())


def conllu(sentence: Span) -> Iterator[str]:
    """The lines of a sentence; heads count from its first word, 0 is the root."""
    for number, word in enumerate(sentence, start=1):
        head = 0 if word.head == word else word.head.i - sentence.start + 1
        after = "_" if word.whitespace_ else "SpaceAfter=No"
        named = (word.text, "_", word.pos_, word.tag_, "_", str(head), word.dep_)
        yield "\t".join((str(number), *(name or "_" for name in named), "_", after))
