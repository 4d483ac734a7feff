"""The texts and images (or videos) of a corpus as separate inputs of a vision-language run, and their scores.

Statements about images hold for videos: a video's candidates are the segments of its captions, or the whole of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vision.metrics.retrieval_scores import DualScores, MatrixScores
from vision.objectives._comparing import MatchingHead, MediaContrast, MediaContrastHead
from workbench.core.errors import WorkbenchError
from workbench.core.live_output import ProgressBars
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import without_captions
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.image_sequences import media_of
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.rank_shares import Group, shared_groups
from workbench.pretraining.forward import read
from workbench.pretraining.task import Task
from workbench.sequences.batch import Batch, collate
from workbench.sequences.builders.image_caption import ImageCaptionBuilder
from workbench.sequences.sequence import Rows, Sample, Sequence, row_count

_FEW = 8  # most batches without a progress bar


class ImageReference(NamedTuple):
    """The identity of an image: the number and key of its record; for a segment of a video also its time."""

    record: int
    key: str


@dataclass
class Pairs:
    """Separate texts and images; `owner[i]` is the image of text i, `captions[i]` its words, `shown[j]` the identity of
    image j.

    A text keeps all its streams except the image. Links to rows of its own image are kept, too.
    """

    texts: list[Sequence] = field(default_factory=list)
    images: list[Sequence] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    shown: list[ImageReference] = field(default_factory=list)


@dataclass(frozen=True)
class ImageSubset:
    """The images and captions of a corpus to use.

    Attributes:
        first, limit: number of the first image, and of images; None: all.
        captions: number of captions of each image, the first ones (COCO's protocol: 5); None: all.
        image: all images get the features of this one (the control same-features); None: their own.
    """

    first: int = 0
    limit: int | None = None
    captions: int | None = None
    image: Sample | None = None


ALL_IMAGES = ImageSubset()


def read_pairs(run: EvaluatedRun, corpus: Corpus, part: ImageSubset = ALL_IMAGES, *, size: int) -> Iterator[Pairs]:
    """The captions and images of at most `size` records at a time; `owner` counts from the first of each group.

    A run that was trained on exchanged captions is evaluated on the true ones, too.

    Raises:
        WorkbenchError: the corpus has no captions, or the run reads no images.
    """
    check_pairs(run, corpus)
    for number, group in enumerate(image_groups(corpus, part, size)):
        yield pairs_of(run, number, group, part)


def check_pairs(run: EvaluatedRun, corpus: Corpus, captioned: bool = True) -> None:
    """
    Raises:
        WorkbenchError: the run's task is none of images with captions, or the corpus has no captions and is to be
            `captioned`.
    """
    if not isinstance(run.task.builder, ImageCaptionBuilder):
        raise WorkbenchError(f"{run.folder}: retrieval needs a run with a task of captions and images or videos")
    if not captioned:
        return
    if not corpus.manifest.lengths.get("captions"):
        raise WorkbenchError(
            f"corpus {corpus.name!r} has no captions (it has {', '.join(corpus.manifest.fields)}); retrieval needs a "
            "corpus of images or videos with captions"
        )
    lacking = corpus.records - corpus.manifest.fields.get("captions", corpus.records)
    if lacking:
        raise WorkbenchError(
            f"{lacking} of {corpus.records} records of corpus {corpus.name!r} have no captions, so no text could find "
            "them. Remove them: workbench prepare corpus CORPUS --min-words 1 --output CAPTIONED"
        )


class ImageGroup(NamedTuple):
    """Records, and the number of the first of them in the corpus."""

    first: int
    samples: list[Sample]


def image_groups(corpus: Corpus, part: ImageSubset, size: int) -> Iterator[ImageGroup]:
    """The selected records, in groups of at most `size`."""
    first = part.first
    for samples in sample_pass([corpus], size=size, unit=None, limit=part.limit, first=part.first):
        yield ImageGroup(first, samples)
        first += len(samples)


def pairs_of(run: EvaluatedRun, number: int, group: ImageGroup, part: ImageSubset) -> Pairs:
    """The captions and images of the group with this number.

    Raises:
        WorkbenchError: the run reads no images.
    """
    found = Pairs()
    task = run.task if part.image is None else _all_like(run.task, part.image)
    media = {
        str(medium["key"]): (group.first + place, medium)
        for place, sample in enumerate(group.samples)
        for medium in media_of(task, [sample])
    }
    known: dict[str, int] = {}
    for sequence in task.sequences([medium for _, medium in media.values()], (number,)):
        record, medium = media[sequence.key]
        if part.captions is not None and sequence.meta["caption"] >= part.captions:
            continue
        if sequence.key not in known:
            known[sequence.key] = len(known)
            found.images.append(image_of(run, sequence))
            found.shown.append(ImageReference(record, sequence.key))
        found.texts.append(replace(sequence, streams={n: sequence.streams[n] for n in sequence.alone("text").streams}))
        found.owner.append(known[sequence.key])
        found.captions.append(medium["captions"][sequence.meta["caption"]])
    return found


def with_same_features(run: EvaluatedRun, corpus: Corpus, part: ImageSubset) -> ImageSubset:
    """The group with the first image in place of all others."""
    check_pairs(run, corpus)
    (first,) = next(image_groups(corpus, replace(part, limit=1), 1)).samples
    return replace(part, image=media_of(run.task, [first])[0])


def _all_like(task: Task, image: Sample) -> Task:
    """The task with the same image in every sample; the other fields stay."""
    other, builder = copy.copy(task), copy.copy(task.builder)
    assert isinstance(builder, ImageCaptionBuilder)
    builder.image = builder.image.all_like(image)
    other.builder = builder
    return other


def image_of(run: EvaluatedRun, sequence: Sequence) -> Sequence:
    """A sequence of the image alone.

    Raises:
        WorkbenchError: the run reads no images, or this one has no rows.
    """
    assert isinstance(run.task.builder, ImageCaptionBuilder)
    stream = run.task.builder.image.stream
    if stream not in sequence.streams:
        raise WorkbenchError(f"{run.folder} reads no {stream}s (control: {run.loaded.recipe.control})")
    if not sequence.length(stream):
        raise WorkbenchError(f"the {stream} of sequence {sequence.key!r} has no rows; remove it from the corpus")
    return sequence.alone(stream)


def all_pairs(run: EvaluatedRun, corpus: Corpus, part: ImageSubset = ALL_IMAGES, *, size: int) -> Pairs:
    """All groups as one, on every rank; the images' rows are held in memory. They are counted once."""
    whole = Pairs()
    for found in read_pairs(run, corpus, part, size=size):
        before = len(whole.images)
        for name, values in vars(whole).items():
            values.extend(getattr(found, name))
        whole.owner[len(whole.owner) - len(found.owner) :] = [before + image for image in found.owner]
    if not run.world.is_main:
        run.task.take_used(), run.task.take_dropped()
    return whole


def dual_scores(
    run: EvaluatedRun, corpus: Corpus, part: ImageSubset = ALL_IMAGES, *, size: int
) -> tuple[DualScores, PairVectors]:
    """The scores of a contrast's vectors, and the vectors; texts and images are encoded separately.

    Raises:
        WorkbenchError: texts and images attend to each other in the network, so that they have no separate vectors; or
        as
            `read_pairs`.
    """
    check_pairs(run, corpus)
    groups = image_groups(corpus, part, size)
    found = pair_vectors(run, groups, lambda number, group: pairs_of(run, number, group, part))
    return DualScores(found.text, found.image), found


class PairVectors(NamedTuple):
    """Vectors [n, size] of the texts and of the images of `Pairs`, on the CPU, with the identities of the texts."""

    text: Tensor
    image: Tensor
    owner: list[int]
    captions: list[str]
    shown: list[ImageReference]


def pair_vectors(run: EvaluatedRun, groups: Iterable[Group], pairs: Callable[[int, Group], Pairs]) -> PairVectors:
    """The vectors of a contrast for all texts and all images, encoded separately; the ranks share the groups.

    Args:
        pairs: the group of a number. The first one has texts and images, others may lack either.

    Raises:
        WorkbenchError: texts and images attend to each other in the network, so that they have no separate vectors.
    """
    head = run.head
    assert isinstance(head, MediaContrastHead)

    @torch.inference_mode()
    def vectors(number: int, group: Group) -> PairVectors:
        part = pairs(number, group)
        if not number and not _apart(run):
            _check_apart(run, head, part)
        found = {"text": torch.zeros(0, 0), "image": torch.zeros(0, 0)}
        for side, sequences in (("text", _alone(part.texts)), ("image", part.images)):
            if sequences:
                of_side = head.vectors(read(run.network, _batch(run, sequences)), head.streams[side])
                found[side] = of_side.float().cpu()
        return PairVectors(found["text"], found["image"], part.owner, part.captions, part.shown)

    parts = shared_groups(run.world, groups, vectors)
    before = np.cumsum([0, *(len(part.image) for part in parts)]).tolist()
    return PairVectors(
        torch.cat([part.text for part in parts if len(part.text)] or [torch.zeros(0, 0)]),
        torch.cat([part.image for part in parts if len(part.image)] or [torch.zeros(0, 0)]),
        owner=[first + owner for first, part in zip(before, parts, strict=False) for owner in part.owner],
        captions=[caption for part in parts for caption in part.captions],
        shown=[shown for part in parts for shown in part.shown],
    )


class Matcher:
    """Matching scores of a head that reads each text with an image (itm: the log-odds).

    The ranks of `run.world` share the pairs.
    """

    def __init__(self, run: EvaluatedRun, pairs: Pairs, *, size: int) -> None:
        assert isinstance(run.head, MatchingHead)
        self.run, self.head, self.pairs, self.size = run, run.head, pairs, size

    def __call__(self, texts: np.ndarray, images: np.ndarray) -> Tensor:
        """Text numbers [n] and image numbers [n] -> scores [n]."""

        @torch.inference_mode()
        def scores(_: int, start: int) -> Tensor:
            chosen = zip(texts[start : start + self.size], images[start : start + self.size], strict=True)
            batch = _batch(self.run, [_together(self.pairs.texts[t], self.pairs.images[i]) for t, i in chosen])
            return self.head.match(self.run.network, self.run.network(batch), batch).cpu()

        return torch.cat(shared_groups(self.run.world, self._shown(range(0, len(texts), self.size)), scores))

    def matrix(self) -> MatrixScores:
        """Every text with every image: [texts, images] forward passes of one pair each, in batches of `size`."""
        texts, images = len(self.pairs.texts), len(self.pairs.images)
        pairs = np.arange(texts * images)
        return MatrixScores(self(pairs // images, pairs % images).reshape(texts, images))

    def _shown(self, starts: range) -> Iterator[int]:
        """The batches, with a progress bar if there are more than a few."""
        if len(starts) <= _FEW or not self.run.world.is_main:
            yield from starts
            return
        with ProgressBars() as progress:
            yield from progress.track(starts, description="matching")


def _batch(run: EvaluatedRun, sequences: list[Sequence]) -> Batch:
    return collate(sequences).to(next(run.network.parameters()).device)


def _together(text: Sequence, image: Sequence) -> Sequence:
    """A text with any image: its links point to the rows with the same numbers, if they exist."""
    rows = {name: row_count(fields) for name, fields in image.streams.items()}
    linked = {name: {k: _within(v, rows) for k, v in fields.items()} for name, fields in text.streams.items()}
    return replace(text, streams={**linked, **image.streams})


def _within(value: Any, rows: dict[str, int]) -> Any:
    """Links, with those to missing rows set to -1."""
    if not isinstance(value, Rows) or value.stream not in rows:
        return value
    return replace(value, index=np.where(value.index < rows[value.stream], value.index, -1))


def _alone(texts: Iterable[Sequence]) -> list[Sequence]:
    return [text.alone("text") for text in texts]


def _apart(run: EvaluatedRun) -> bool:
    objective = run.objective.objective
    assert isinstance(objective, MediaContrast)
    return objective.apart


def _check_apart(run: EvaluatedRun, head: MediaContrastHead, part: Pairs) -> None:
    """Check that the text's vectors are the same with and without an image in the batch, to rounding."""
    texts, images = part.texts[:4], part.images
    alongside = _batch(run, [_together(t, images[o]) for t, o in zip(texts, part.owner, strict=False)])
    alone = _batch(run, _alone(texts))
    text = head.streams["text"]
    difference = head.vectors(read(run.network, alongside), text) - head.vectors(read(run.network, alone), text)
    if difference.abs().max() > 1e-2:
        raise WorkbenchError(
            f"{run.folder}: in its network, texts attend to {head.streams['image']}s, so a text has no separate "
            "vector, "
            "as contrast (itc) needs; rank by matching (itm), or train itc with `apart: true`, or on layers without "
            "mixing (clip)"
        )


def ranked_among(
    run: EvaluatedRun, corpus: Corpus, queries: list[Sample], images: bool, size: int
) -> tuple[list[dict[str, Any]], Tensor]:
    """The images of a corpus, or its captions where the queries are `images`, by key, and their scores [queries, n].
    The file of an image (`meta.image`) is named, too.

    Raises:
        WorkbenchError: the corpus has no captions for images, or as `pair_vectors`.
    """
    if images:
        check_pairs(run, corpus)
    names: list[dict[str, Any]] = []

    def pairs(number: int, group: ImageGroup) -> Pairs:
        media = [medium for sample in group.samples for medium in media_of(run.task, [sample])]
        if images:
            names.extend({**_named(each), "caption": text} for each in media for text in each["captions"])
            texts, shown = run.task.sequences(media, (number,)), [] if number else queries
        else:
            names.extend(map(_named, media))
            first = {**media[0], "captions": [str(query["text"]) for query in queries]}
            texts, shown = [] if number else run.task.sequences([first]), media
        rows = run.task.sequences(without_captions(shown)) if shown else []
        return Pairs([one.alone("text") for one in texts], [image_of(run, one) for one in rows], [0] * len(texts))

    groups = image_groups(corpus, ALL_IMAGES, size)
    if isinstance(run.head, MediaContrastHead):
        found = pair_vectors(run, groups, pairs)
        scores = found.text @ found.image.T
    else:
        parts = [pairs(number, group) for number, group in enumerate(groups)]
        whole = Pairs([t for part in parts for t in part.texts], [i for part in parts for i in part.images], [])
        scores = Matcher(run, whole, size=size).matrix().matrix
    return names, scores.T if images else scores


def _named(sample: Sample) -> dict[str, str]:
    """The key of a record, and the file of its image or video where the record has it."""
    files = {name: sample.get("meta", {}).get(name) for name in ("image", "video")}
    return {"key": str(sample["key"]), **{name: str(file) for name, file in files.items() if file}}
