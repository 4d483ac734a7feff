"""Inputs of a command or a notebook as samples: files of texts, texts, images, pairs of both."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import read_lines
from workbench.core.files.urls import is_url
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
PATH = re.compile(r"\S*(/\S*|\.\w{2,8})")
"""A word that looks like the place of a file: with a slash, or with the end of a file's name."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")


def input_corpus(source: Path) -> Corpus | None:
    """What a command is given as INPUT: a corpus, or None for a text file, which can be opened then.

    Raises:
        WorkbenchError: it is neither, such as an image, or the corpus is of triples.
    """
    if not (source / FILE_NAME).is_file():
        try:
            source.open("rb").close()
        except OSError as error:
            raise _unreadable(source, error) from error
        if source.suffix.lower() in IMAGE_SUFFIXES:
            raise WorkbenchError(
                f"{source} is an image, and INPUT is a text file or a corpus; for its caption: workbench predict "
                f"caption RUN {source}; for a corpus of images: workbench prepare image-text"
            )
        return None
    corpus = Corpus.open(source)
    if corpus.kind == "triples":
        raise WorkbenchError(f"{source} is a corpus of triples; give one of texts or of images")
    return corpus


def input_at(source: str) -> Path | str:
    """The place that an input of the command line names, or the text or the URL that it is.

    Raises:
        WorkbenchError: it looks like a place, and nothing is there.
    """
    if is_url(source) or not source.strip():
        return source
    try:
        if Path(source).exists():
            return Path(source)
    except OSError:  # a text that is longer than a file's name may be
        return source
    if PATH.fullmatch(source):
        raise WorkbenchError(
            f"there is no file or folder {source}; give the place of a text file, an image, a corpus or raw files, or "
            "a text of several words"
        )
    return source


def text_lines(source: Path) -> list[tuple[int, str]]:
    """The lines of a text file that are not blank, with their numbers, from 1.

    Raises:
        WorkbenchError: it cannot be read, or is not UTF-8.
    """
    try:
        lines = read_lines(source)
    except OSError as error:
        raise _unreadable(source, error) from error
    return [(i, line) for i, line in enumerate(lines, 1) if line.strip()]


def _unreadable(source: Path, error: OSError) -> WorkbenchError:
    return WorkbenchError(f"{source}: {error.strerror}; INPUT is a text file or a corpus folder")


def text_samples(numbered: list[tuple[int, str]], size: int) -> Iterator[list[Sample]]:
    """A sample for each text, `size` at a time."""
    for start in range(0, len(numbered), size):
        yield [{"key": str(i), "draw": (0, 0, i), "text": text} for i, text in numbered[start : start + size]]


def samples_of(given: Any) -> list[Sample]:
    """Texts, images, pairs or samples of a corpus as numbered samples.

    Args:
        given: one of these, or an iterable of them: a text; an image (a path, the bytes of a file, a PIL image); a pair
            of a text and an image in either order, or of two texts; a sample of a corpus.

    Raises:
        WorkbenchError: nothing was given, or something else.
    """
    listed = [given] if is_one(given) else list(given)
    if not listed:
        raise WorkbenchError("no input is given; allowed: a text, an image, a pair of them, or a list of such")
    return [{**_fields(each), "key": str(i), "draw": (0, 0, i)} for i, each in enumerate(listed, 1)]


def is_one(given: Any) -> bool:
    """Whether it is one input, not a list of them."""
    alone = isinstance(given, str | bytes | Mapping | Path) or _is_pil(given) or _is_pair(given)
    return alone or not isinstance(given, Iterable)


def texts_of(given: Any, *, pairs: bool = True) -> list[Sample]:
    """Inputs that have a text, as numbered samples.

    Args:
        pairs: whether an input may be a pair of texts.

    Raises:
        WorkbenchError: one has no text, or is a pair.
    """
    samples = samples_of(given)
    for number, sample in enumerate(samples):
        if not isinstance(sample.get("text"), str):
            raise WorkbenchError(
                f"input {number} has no text (it has {', '.join(sorted(sample.keys() - {'key', 'draw'}))}); give its "
                'text, such as sample["captions"][0]'
            )
        if "second" in sample and not pairs:
            raise WorkbenchError(f"input {number} is a pair of texts, and one text is wanted; give the texts as a list")
    return samples


def one_kind(samples: list[Sample]) -> list[Sample]:
    """The samples, which either all have an image or none has.

    Raises:
        WorkbenchError: some have an image, and others have a text alone.
    """
    alone = [number for number, sample in enumerate(samples) if "text" in sample and "image" not in sample]
    seen = [number for number, sample in enumerate(samples) if "image" in sample]
    if alone and seen:
        raise WorkbenchError(
            f"input {seen[0]} has an image and input {alone[0]} is a text; give texts and images in two calls, or as "
            "pairs (image, text), which are read together"
        )
    return samples


def images_of(given: Any) -> list[Sample]:
    """Images as numbered samples; a path may be text."""
    listed = given if isinstance(given, list | tuple) else [given]
    return samples_of([Path(each) if isinstance(each, str) else each for each in listed])


def batches_of(samples: list[Sample], size: int) -> Iterator[list[Sample]]:
    """The samples, `size` at a time."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def image_bytes(image: Any) -> bytes:
    """The encoded bytes of an image: a path, the bytes themselves, or a PIL image.

    Raises:
        WorkbenchError: it is something else, or cannot be read.
    """
    if _is_pil(image):
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()
    if isinstance(image, bytes):
        return image
    if not isinstance(image, str | Path):
        raise WorkbenchError(f"an image is of type {type(image).__name__}; allowed: a path, bytes, or a PIL image")
    try:
        return Path(image).read_bytes()
    except OSError as error:
        raise WorkbenchError(f"{image}: {error.strerror}; an image file is wanted") from error


def captioned(image: Any, text: str = "") -> Sample:
    """An image with a text, which is its caption and a question about it: a builder reads the one that it is made
    for."""
    question = {"question_id": 0, "question": text, "answers": []}
    return {"image": image_bytes(image), "captions": [text], "questions": [question]}


def _fields(given: Any) -> Sample:
    """One input without its number."""
    if isinstance(given, str):
        if given.lower().endswith(IMAGE_SUFFIXES) and Path(given).is_file():
            logger.warning("the text %r names an image file, but is read as a text; for the image give a Path", given)
        return {"text": given}
    if isinstance(given, Mapping):
        return dict(given)
    if not _is_pair(given):
        return captioned(given)
    first, second = given
    if isinstance(first, str) and isinstance(second, str):
        return {"text": first, "second": second}
    return captioned(second, first) if isinstance(first, str) else captioned(first, second)


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and any(isinstance(each, str) for each in given)


def _is_pil(given: Any) -> bool:
    """Whether it is an image of PIL's, which is not imported for this."""
    return any(kind.__module__ == "PIL.Image" for kind in type(given).__mro__)
