"""`prepare phrases`: a text corpus with the phrases in its texts."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.sources.spacy_pipeline import identity
from pipelines.stages.phrase_marks import FindPhrases, chunker, phrase_fields
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.corpora.corpus import Corpus
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.text.collocations import CollocationOptions, Collocations

log = logging.getLogger(__name__)


def phrases(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a text corpus.", show_default=False)],
    options: WritingOptions,
    statistics: CollocationOptions,
    model: Annotated[
        Name | None,
        typer.Option(help="A spaCy pipeline (package or folder) for noun chunks; default: statistics of the corpus."),
    ] = None,
) -> None:
    """Find the phrases of texts, and store their places (mask_spans) in a new corpus: for phrase-level masking.

    With --model the phrases are the noun chunks of a spaCy pipeline. Without it they are words that occur together in
    the corpus far more often than by chance; this needs no model and works for any language.

    Examples:

      workbench prepare phrases corpora/wiki --output corpora/wiki-phrases

      workbench prepare phrases corpora/wiki --model en_core_web_sm -o corpora/wiki-chunks
    """
    opened = open_corpus(str(corpus))
    if not any(field.spans_of in opened.manifest.fields for field in phrase_fields()):
        raise WorkbenchError(
            f"no record of {corpus} has a 'text' (they have {', '.join(opened.manifest.fields)}), and phrases are "
            "marked in texts alone; dialogues, translations and captions are masked by maskings that need no marks "
            "(token, whole_word, ngram)"
        )
    stage = _chunks(model) if model is not None else _collocations(opened, statistics)
    about = {**opened.manifest.about, "phrases": stage.found_by}
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], opened.kind, about=about)


def _chunks(model: str) -> FindPhrases:
    return FindPhrases(identity(chunker(model)), model)


def _collocations(corpus: Corpus, options: CollocationOptions) -> FindPhrases:
    found = Collocations.of(_Texts(corpus), options)
    if not len(found):
        raise WorkbenchError(
            f"no two words occur together {options.min_count} times in {corpus.place} with a mutual information "
            f"of {options.threshold}: it has no phrases. Give more text, lower --min-count or --threshold, or name a "
            "--model"
        )
    log.info("%s: %d phrases", corpus.place, len(found))
    return FindPhrases({"gensim": version("gensim"), **dataclasses.asdict(options)}, collocations=found)


class _Texts:
    """The texts of a corpus that may hold phrases; iterates as often as needed."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def __iter__(self) -> Iterator[str]:
        fields = [str(field.spans_of) for field in phrase_fields()]
        return (sample[name] for sample in self.corpus for name in fields if name in sample)
