"""The segmenter of texts that are written without spaces, where a recipe masks whole words.

A recipe may leave its `segmenter` to the corpora (`null`): the first records of a task show whether its texts are
Chinese or Japanese. A run records the name of the segmenter, and the version of its package with the identities of its
data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from workbench.components.build_context import note
from workbench.components.building import named_by, options_of
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import texts_in
from workbench.recipe.spec import NO_SEGMENTER, Recipe, TaskSpec
from workbench.text.segmenters import SEGMENTERS, WITHOUT_SEGMENTER, LanguageDetection, Segmenter, SegmenterName, shares
from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
RECORDS = 50
"""The number of records of a corpus that are examined."""
UNSPACED = 0.1
"""A corpus is in a script without spaces where this share of the letters of its records is in one."""


def with_segmenter(recipe: Recipe) -> Recipe:
    """The recipe with the segmenter that its corpora need, where it masks whole words and names none.

    Raises:
        WorkbenchError: the texts are Chinese or Japanese, and the segmenter is not installed; what to do.
    """
    if recipe.segmenter is not None:
        return recipe
    for name, task in recipe.tasks.items():
        by = next(_by_words(task, f"tasks.{name}"), None)
        found = None if by is None else _called_for(f"tasks.{name}", by, list(task.corpora))
        if found is not None:
            return replace(recipe, segmenter=found)
    return recipe


def cut_by(recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with the words of the recipe's segmenter; records the segmenter's version.

    Raises:
        WorkbenchError: the segmenter is not installed.
    """
    if recipe.segmenter in (None, NO_SEGMENTER):
        return tokenizer
    segmenter = Segmenter(str(recipe.segmenter))
    note("segmenter", segmenter.name, str(segmenter))
    return tokenizer.cut_by(segmenter)


def _called_for(where: str, by: str, corpora: list[str]) -> SegmenterName | None:
    """The segmenter for the texts of a task."""
    texts = [text for place in corpora for text in _first_texts(place)]
    known, others = shares(texts)
    if others >= UNSPACED:
        logger.warning(
            "%s: %s masks whole words, and a large share of its texts is in a script without spaces for which there is "
            "no segmenter (%s): the words are those of the tokenizer's pre-tokenizer",
            *(where, by, WITHOUT_SEGMENTER),
        )
    if known < UNSPACED:
        return None
    language = LanguageDetection()
    for text in texts:
        language.see(text)
    name = language.segmenter
    assert name is not None
    try:
        segmenter = Segmenter(name)
    except WorkbenchError as error:
        raise WorkbenchError(
            f"{where}: {by} masks whole words, and its texts look {SEGMENTERS[name].language}, which has no spaces "
            f"between them; {error}. segmenter={NO_SEGMENTER} uses the words of the tokenizer's pre-tokenizer, which "
            "are single characters for most"
        ) from error
    logger.info("%s: the words that %s masks are found by %s", where, by, segmenter)
    return name


def _first_texts(place: str) -> Iterator[str]:
    corpus = Corpus.open(place)
    places = ((shard, record) for shard, info in enumerate(corpus.shards) for record in range(info.records))
    for shard, record in islice(places, RECORDS):
        yield from texts_in(corpus.read(shard, record))


def _by_words(task: TaskSpec, where: str) -> Iterator[str]:
    """The components of a task that use whole words, as their classes report."""
    for number, spec in enumerate(task.objectives):
        part, options, place = named_by("objective", spec, f"{where}.objectives[{number}]")
        with ErrorContext(place):
            found = part.goes_by_words({**options_of(part).defaults, **options})
        if found:
            yield found
