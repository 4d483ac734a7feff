"""The texts and images of a corpus as a vision-language run reads them, apart, and their scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from vision.metrics.retrieval import DualScores, MatrixScores
from vision.objectives.itc import Itc, ItcHead
from vision.objectives.itm import ItmHead
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.passes import sample_pass
from workbench.sequences.batch import Batch, collate
from workbench.sequences.builders.image_caption import ImageCaption
from workbench.sequences.sequence import Sequence
from workbench.tasks.forward import read
from workbench.terminal import Terminal

_FEW = 8  # batches that need no progress bar


@dataclass
class Pairs:
    """Texts and images without each other; `owner[i]` is the image of text i, `captions[i]` its words.

    With a text comes what hangs on it: every stream but the image.
    """

    texts: list[Sequence] = field(default_factory=list)
    images: list[Sequence] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """Which of a corpus's images are read, and how many captions of each.

    Attributes:
        first, limit: from this image on so many; None: all.
        captions: the first ones of each image (COCO's protocol takes 5); None: all.
    """

    first: int = 0
    limit: int | None = None
    captions: int | None = None


EVERYTHING = Part()


def read_pairs(run: Evaluated, corpus: Corpus, part: Part = EVERYTHING, *, size: int) -> Iterator[Pairs]:
    """The captions and images, at most `size` images at a time; `owner` counts from the first image that is read.

    Also a run that was trained on exchanged captions is given the true ones.

    Raises:
        WorkbenchError: the corpus has no captions, or the run reads no images.
    """
    builder = run.task.builder
    if not isinstance(builder, ImageCaption):
        raise WorkbenchError(f"{run.folder}: retrieval needs a task with the builder image_caption")
    if not corpus.manifest.lengths.get("captions"):
        raise WorkbenchError(
            f"corpus {corpus.name!r} has no captions (it has {', '.join(corpus.manifest.fields)}); retrieval needs an "
            "image-text corpus with captions"
        )
    first = 0
    groups = sample_pass([corpus], size=size, unit=None, limit=part.limit, first=part.first)
    for number, samples in enumerate(groups):
        found = Pairs()
        places = {str(sample["key"]): i for i, sample in enumerate(samples)}
        known: set[int] = set()
        for sequence in run.task.sequences(samples, (number,)):
            image = places[sequence.key]
            if part.captions is not None and sequence.meta["caption"] >= part.captions:
                continue
            if image not in known:
                known.add(image)
                found.images.append(image_of(run, sequence))
            found.texts.append(replace(sequence, streams=sequence.alone("text").streams))
            found.owner.append(first + image)
            found.captions.append(samples[image]["captions"][sequence.meta["caption"]])
        first += len(samples)
        yield found


def image_of(run: Evaluated, sequence: Sequence) -> Sequence:
    """Its image by itself.

    Raises:
        WorkbenchError: the run reads no images.
    """
    if "image" not in sequence.streams:
        raise WorkbenchError(f"{run.folder} reads no images (control: {run.loaded.recipe.control})")
    return sequence.alone("image")


def all_pairs(run: Evaluated, corpus: Corpus, part: Part = EVERYTHING, *, size: int) -> Pairs:
    """All of them at once; the images' rows are kept in memory."""
    whole = Pairs()
    for found in read_pairs(run, corpus, part, size=size):
        for name, values in vars(whole).items():
            values.extend(getattr(found, name))
    return whole


def dual_scores(
    run: Evaluated, corpus: Corpus, part: Part = EVERYTHING, *, size: int
) -> tuple[DualScores, np.ndarray, list[str]]:
    """The vectors of an itc head, texts and images each run alone: scores, owners, captions.

    Raises:
        WorkbenchError: the network lets texts and images see each other, so that they have no vectors of their own.
    """
    owner: list[int] = []
    captions: list[str] = []

    def parts() -> Iterator[Pairs]:
        for found in read_pairs(run, corpus, part, size=size):
            owner.extend(found.owner)
            captions.extend(found.captions)
            yield found

    vectors = pair_vectors(run, parts())
    return DualScores(*vectors), np.asarray(owner), captions


@torch.inference_mode()
def pair_vectors(run: Evaluated, parts: Iterable[Pairs]) -> tuple[Tensor, Tensor]:
    """The vectors of an itc head of all texts and of all images [n, size], each run alone.

    Args:
        parts: the first one has texts and images, later ones may lack either.

    Raises:
        WorkbenchError: the network lets texts and images see each other, so that they have no vectors of their own.
    """
    head = run.head
    assert isinstance(head, ItcHead)
    vectors: dict[str, list[Tensor]] = {"text": [], "image": []}
    for number, part in enumerate(parts):
        if not number and not _apart(run):
            _check_apart(run, head, part)
        for side, sequences in (("text", part.texts), ("image", part.images)):
            if sequences:
                found = head.vectors(read(run.network, _batch(run, sequences)), head.space.streams[side])
                vectors[side].append(found.float().cpu())
    empty = torch.zeros(0, 0)
    return torch.cat(vectors["text"] or [empty]), torch.cat(vectors["image"] or [empty])


class Matcher:
    """Matching scores of texts with images: the log-odds of an itm head."""

    def __init__(self, run: Evaluated, pairs: Pairs, *, size: int) -> None:
        assert isinstance(run.head, ItmHead)
        self.run, self.head, self.pairs, self.size = run, run.head, pairs, size

    @torch.inference_mode()
    def __call__(self, texts: np.ndarray, images: np.ndarray) -> Tensor:
        """Text numbers [n] and image numbers [n] -> scores [n]."""
        found = []
        for start in self._shown(range(0, len(texts), self.size)):
            chosen = zip(texts[start : start + self.size], images[start : start + self.size], strict=True)
            batch = _batch(self.run, [_together(self.pairs.texts[t], self.pairs.images[i]) for t, i in chosen])
            logits = self.head.logits(self.run.network, self.run.network(batch), batch).float()
            found.append((logits[:, 1] - logits[:, 0]).cpu())
        return torch.cat(found)

    def matrix(self) -> MatrixScores:
        """Every text with every image: [texts, images] forward passes of one pair each, `size` of them at once."""
        texts, images = len(self.pairs.texts), len(self.pairs.images)
        pairs = np.arange(texts * images)
        return MatrixScores(self(pairs // images, pairs % images).reshape(texts, images))

    def _shown(self, starts: range) -> Iterable[int]:
        """The batches with a progress bar, where there are more than a few."""
        if len(starts) <= _FEW:
            return starts
        return track(starts, "matching", console=Terminal(stderr=True), transient=True)


def _batch(run: Evaluated, sequences: list[Sequence]) -> Batch:
    return collate(sequences).to(next(run.network.parameters()).device)


def _together(text: Sequence, image: Sequence) -> Sequence:
    return replace(text, streams={**text.streams, **image.streams})


def _apart(run: Evaluated) -> bool:
    objective = run.objective.objective
    assert isinstance(objective, Itc)
    return objective.apart


def _check_apart(run: Evaluated, head: ItcHead, part: Pairs) -> None:
    """The text's vectors are the same with and without an image beside it, to rounding."""
    texts, images = part.texts[:4], part.images
    first = part.owner[0]
    beside = _batch(run, [_together(t, images[o - first]) for t, o in zip(texts, part.owner, strict=False)])
    alone = _batch(run, texts)
    text = head.space.streams["text"]
    difference = head.vectors(read(run.network, beside), text) - head.vectors(read(run.network, alone), text)
    if difference.abs().max() > 1e-2:
        raise WorkbenchError(
            f"{run.folder}: its network lets texts see images, so a text has no vector of its own, as contrast (itc) "
            "needs; rank by matching (itm), or train itc with `apart: true`, or on layers without mixing (clip)"
        )
