"""What finds the words of texts that are written without spaces, where a recipe hides words as a whole.

A recipe's `segmenter` is left to the corpora (`null`): the first records of a task tell whether its texts are Chinese
or Japanese. A run keeps the name that comes out, and the version of the package next to the identities of its data.
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
"""How many records of a corpus are looked at."""
UNSPACED = 0.1
"""A corpus is in a script without spaces where that share of the letters of its records is."""


def with_segmenter(recipe: Recipe) -> Recipe:
    """The recipe with the segmenter that its corpora call for, where it goes by words and does not name one.

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
    """The tokenizer, whose words are those of the recipe's segmenter; notes which version that is.

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
            "%s: %s hides whole words, and much of its texts is in a script without spaces that no segmenter here cuts "
            "(%s): a word is what the tokenizer's pre-tokenizer separates",
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
            f"{where}: {by} hides whole words, and its texts look {SEGMENTERS[name].language}, which has no spaces "
            f"between them; {error}. segmenter={NO_SEGMENTER} takes what the tokenizer's pre-tokenizer separates, "
            "which is single characters for most"
        ) from error
    logger.info("%s: the words that %s hides are found by %s", where, by, segmenter)
    return name


def _first_texts(place: str) -> Iterator[str]:
    corpus = Corpus.open(place)
    places = ((shard, record) for shard, info in enumerate(corpus.shards) for record in range(info.records))
    for shard, record in islice(places, RECORDS):
        yield from texts_in(corpus.read(shard, record))


def _by_words(task: TaskSpec, where: str) -> Iterator[str]:
    """What of a task goes by words, as its classes say."""
    for number, spec in enumerate(task.objectives):
        part, options, place = named_by("objective", spec, f"{where}.objectives[{number}]")
        with ErrorContext(place):
            found = part.goes_by_words({**options_of(part).defaults, **options})
        if found:
            yield found
