"""The images nearest to a sentence, or the sentences nearest to an image (of runs with a contrast)."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image
from rich.markup import escape
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vision.evaluation.retrieval.nearest import KINDS, Kind
from vision.evaluation.retrieval.retrieval_corpus import dual_scores
from vision.figures._pair import ObjectiveName, Records, RunFolder, TaskName, one_text
from vision.images.decoding import sample_image
from vision.objectives._comparing import MediaContrast, MediaContrastHead
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.core.options.bounds import Count, CountOrZero, Title
from workbench.core.options.command import Trust
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import with_texts
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_objective
from workbench.interop.run_or_checkpoint import load
from workbench.pretraining.forward import read
from workbench.report.figure_file import FigureFile, keep_figure
from workbench.sequences.batch import collate

_COLUMNS = 4


def draw(
    run: RunFolder,
    corpus: Records,
    text: Annotated[Title | None, typer.Option(help="The sentence whose nearest images are drawn.")] = None,
    image: Annotated[Path | None, typer.Option(help="The image file whose nearest captions are drawn.")] = None,
    record: Annotated[
        CountOrZero | None, typer.Option(help="The record whose image's nearest captions are drawn, from 0.")
    ] = None,
    count: Annotated[Count, typer.Option("--count", "-k", help="Number of neighbours.")] = 8,
    vectors: Annotated[
        Path | None, typer.Option(help="Store the corpus's vectors in this file, and reuse them next time.")
    ] = None,
    index: Annotated[Kind, typer.Option(help="Exact search, or faiss's graph for millions of vectors.")] = "exact",
    task: TaskName = None,
    objective: ObjectiveName = None,
    output: FigureFile = None,
    trust: Trust = False,
) -> None:
    """Draw what a dual encoder finds in a corpus: the images for a sentence, or the captions for an image.

    Examples:

      workbench show neighbours runs/clip corpora/flickr8k-dev --text "a dog runs on the beach"

      workbench show neighbours runs/clip corpora/flickr8k-dev --record 12 -k 5

      workbench show neighbours runs/clip corpora/laion --text "a red car" --vectors laion.safetensors --index faiss
    """
    if sum(given is not None for given in (text, image, record)) != 1:
        raise WorkbenchError("give one query: --text SENTENCE, --image FILE or --record NUMBER")
    if text is not None and not text.strip():
        raise WorkbenchError("--text '' is empty; give a sentence")
    loaded = load(run, trust=trust)
    opened = find_objective(loaded, run, MediaContrast, "use a run that has one (clip)", task=task, objective=objective)
    records = Corpus.open(corpus)
    known = embedded_items(opened, records, vectors)
    if known.images.ndim != 2:
        raise WorkbenchError(f"{run} has several vectors of an image; nearest neighbours need one. Use a run with itc")
    if text is not None:
        scores, places = KINDS[index](known.images).search(_of_text(opened, records, text), count)
        images = [sample_image(records[place]) for place in places[0].tolist()]
        captions = [known.captions_of(place)[0] for place in places[0].tolist()]
        figure, title = images_figure(text, images, captions, scores[0]), f"The images nearest to: {text}"
    else:
        asked = records[_checked(record, records)] if image is None else {"image": image.read_bytes()}
        scores, places = KINDS[index](known.texts).search(_of_image(opened, records, asked), count)
        own = {*asked.get("captions", ())}
        lines = [known.captions[place] for place in places[0].tolist()]
        figure = captions_figure(sample_image(asked), lines, scores[0], [line in own for line in lines])
        title = "The captions nearest to an image; its own are darker."
    path = keep_figure(figure, run, "neighbours", "Nearest neighbours.", title, output)
    Terminal().print(f"{escape(str(path))}: {escape(title)}", highlight=False)


@dataclass(frozen=True)
class EmbeddedItems:
    """The vectors of a corpus's captions and images, and the captions with their images."""

    texts: np.ndarray
    images: np.ndarray
    owner: np.ndarray
    captions: list[str]

    def captions_of(self, image: int) -> list[str]:
        """The captions of an image."""
        return [self.captions[text] for text in np.flatnonzero(self.owner == image).tolist()]


def embedded_items(run: EvaluatedRun, corpus: Corpus, place: Path | None) -> EmbeddedItems:
    """The vectors of a corpus, from a file that has them for the same weights and records; else computed and stored
    there.

    Raises:
        WorkbenchError: the file has other vectors, or is not a file of vectors.
    """
    head = f"{run.task.name}.{run.objective.name}"
    identity = {"checkpoint": run.checkpoint, "head": head, "corpus": corpus.identity}
    if place is not None and place.is_file():
        arrays = _read(place, identity)
    else:
        scores, found = dual_scores(run, corpus, size=64)
        said = np.frombuffer("\n".join(" ".join(line.split()) for line in found.captions).encode(), np.uint8)
        owners = torch.as_tensor(found.owner)
        arrays = {"texts": scores.text, "images": scores.image, "owner": owners, "captions": torch.tensor(said)}
        if place is not None:
            with atomic(place) as file:
                file.write(save({name: values.contiguous() for name, values in arrays.items()}, identity))
    lines = arrays["captions"].numpy().tobytes().decode().split("\n")
    return EmbeddedItems(arrays["texts"].numpy(), arrays["images"].numpy(), arrays["owner"].numpy(), lines)


def _read(place: Path, identity: dict[str, str]) -> dict[str, Tensor]:
    try:
        with safe_open(place, "pt") as file:
            found = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in ("texts", "images", "owner", "captions")}
    except (SafetensorError, OSError) as error:
        raise WorkbenchError(f"--vectors {place} is not a file of a corpus's vectors: {error}") from error
    for name, value in identity.items():
        if found.get(name) != value:
            raise WorkbenchError(
                f"--vectors {place}: its {name} is {found.get(name)!r}, but this corpus and run have {value!r}; name "
                "another file, "
                "or delete it to compute them again"
            )
    return arrays


def _checked(record: int | None, corpus: Corpus) -> int:
    assert record is not None
    if record >= corpus.records:
        raise WorkbenchError(f"--record {record}: {corpus.place} has {corpus.records:,} records, counted from 0")
    return record


def _of_text(run: EvaluatedRun, corpus: Corpus, text: str) -> np.ndarray:
    return _vector(run, one_text(run, corpus, 0, text), "text")


def _of_image(run: EvaluatedRun, corpus: Corpus, sample: dict[str, Any]) -> np.ndarray:
    made = {"key": "image", "corpus": "", "draw": (0, 0), **with_texts(sample, "captions", ["an image"])}
    return _vector(run, made, "image")


@torch.inference_mode()
def _vector(run: EvaluatedRun, sample: dict[str, Any], side: str) -> np.ndarray:
    """[1, size], the vector of the text or the image."""
    head = run.head
    assert isinstance(head, MediaContrastHead)
    batch = collate([run.task.sequences([sample])[0].alone(head.streams[side])]).to(
        next(run.network.parameters()).device
    )
    return head.vectors(read(run.network, batch), head.streams[side]).float().cpu().numpy()


def images_figure(text: str, images: list[Image.Image], captions: list[str], scores: np.ndarray) -> Any:
    """The images in the order of their scores, each with its score and its first caption."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(2.7 * columns, 0.5 + 3.1 * rows), layout="constrained")
    figure.suptitle(f"“{text}”", fontsize=14)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid:
        axes.set(xticks=[], yticks=[], frame_on=False)
    for axes, image, caption, score in zip(grid, images, captions, scores, strict=False):
        axes.imshow(np.asarray(image.convert("RGB")))
        axes.set_title(f"{score:.3f}", fontsize=10, color="#5c6875", pad=3)
        words = textwrap.shorten(caption, 90, placeholder=" …")
        axes.set_xlabel(textwrap.fill(words, 34), fontsize=8.5)
    return figure


def captions_figure(image: Image.Image, captions: list[str], scores: np.ndarray, own: list[bool]) -> Any:
    """The image next to its nearest captions, with bars as long as their scores; its own captions' are darker."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, max(3.2, 0.5 * len(captions))), layout="constrained")
    photo, table = figure.subplots(1, 2, width_ratios=(1, 2.2))
    photo.imshow(np.asarray(image.convert("RGB")))
    photo.set_axis_off()
    places = -np.arange(len(captions))
    low = min(0.0, float(scores.min()))
    high = max(float(scores.max()), 0.0) or 1.0
    table.barh(places, scores, height=0.8, color=["#8fb4e3" if mine else "#e2eaf4" for mine in own])
    for place, caption, score, mine in zip(places, captions, scores, own, strict=True):
        words = textwrap.shorten(caption, 78, placeholder=" …")
        table.text(0.012 * high, place, words, va="center", fontsize=9, fontweight="bold" if mine else "normal")
        table.text(1.12 * high, place, f"{score:.3f}", va="center", ha="right", fontsize=8.5, color="#5c6875")
    table.set_xlim(low, 1.12 * high)
    table.set_axis_off()
    return figure
