"""Loads spaCy pipelines, once in each process."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from workbench.core.errors import WorkbenchError

if TYPE_CHECKING:
    from spacy.language import Language


@lru_cache(maxsize=1)
def spacy_pipeline(name: str) -> Language:
    """A spaCy pipeline by the name of its package or its folder, without named entities, text classes and lemmas.

    Raises:
        WorkbenchError: spaCy or the pipeline is not installed.
    """
    try:
        import spacy
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            "pipelines of spaCy need the package 'spacy': pip install 'pretraining-workbench[kg]'"
        ) from error
    try:
        pipeline = spacy.load(name, exclude=["ner", "textcat", "lemmatizer"])
    except (OSError, ValueError) as error:
        raise WorkbenchError(
            f"there is no spaCy pipeline {name!r} ({str(error).splitlines()[0]}); install it, or name the folder of one"
        ) from error
    pipeline.max_length = 10**9  # characters; the default refuses a book
    return pipeline


def pipeline_version(pipeline: Language) -> str:
    """A description for messages: its language and its pipes."""
    return f"language {pipeline.lang}, parts: {', '.join(pipeline.pipe_names) or 'none'}"


def identity(pipeline: Language) -> dict[str, Any]:
    """Its name and version, as corpora store them."""
    return {"pipeline": f"{pipeline.meta['lang']}_{pipeline.meta['name']}", "version": pipeline.meta["version"]}
