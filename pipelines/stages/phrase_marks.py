"""The stage that marks phrases in the texts of a sample: noun chunks of a spaCy pipeline, or collocations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.sources.spacy_pipeline import pipeline_version, spacy_pipeline
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.corpora.schema.field_values import MARKS
from workbench.corpora.schema.schema import FIELDS, SchemaField
from workbench.sequences.sequence import Sample
from workbench.text.collocations import Collocations, Spans

if TYPE_CHECKING:
    from spacy.language import Language

PHRASE = "phrase"


@dataclass(frozen=True)
class FindPhrases:
    """Writes phrases of two or more words into `mask_spans` of the text and of the second text, and their source into
    `meta.phrases`. Existing marks are replaced.

    Args:
        found_by: the name and version of the source.
        model: a spaCy pipeline with noun chunks.
        collocations: those of the corpus, if there is no pipeline.
    """

    found_by: dict[str, Any]
    model: Name | None = None
    collocations: Collocations | None = field(default=None, compare=False, repr=False)

    def batch(self, samples: list[Sample]) -> list[Sample]:
        """The samples with their phrases."""
        fields = phrase_fields()
        texts = [sample[f.spans_of] for sample in samples for f in fields if f.spans_of in sample]
        found = iter(self._spans(texts))
        marked = []
        for sample in samples:
            spans = {f.name: [[*span, PHRASE] for span in next(found)] for f in fields if f.spans_of in sample}
            marked.append({**sample, **spans, "meta": {**sample.get("meta", {}), "phrases": self.found_by}})
        return marked

    def __call__(self, sample: Sample) -> Sample:
        return self.batch([sample])[0]

    def _spans(self, texts: list[str]) -> list[Spans]:
        if self.collocations is not None:
            return [self.collocations.spans(text) for text in texts]
        assert self.model is not None
        documents = chunker(self.model).pipe(texts)
        return [[[c.start_char, c.end_char] for c in doc.noun_chunks if len(c) > 1] for doc in documents]


def phrase_fields() -> list[SchemaField]:
    """The fields of spans that are masked as a whole."""
    return [f for f in FIELDS.values() if f.value is MARKS]


def chunker(name: str) -> Language:
    """A spaCy pipeline that finds noun chunks.

    Raises:
        WorkbenchError: spaCy or the pipeline is not installed, it does not parse, or its language has no noun chunks.
    """
    pipeline = spacy_pipeline(name)
    if "parser" not in pipeline.pipe_names or pipeline.vocab.get_noun_chunks is None:
        raise WorkbenchError(
            f"the spaCy pipeline {name!r} ({pipeline_version(pipeline)}) finds no noun chunks: this needs a parser "
            f"and a supported language. Remove --model to find phrases by the statistics of the corpus"
        )
    return pipeline
