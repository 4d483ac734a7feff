"""The attention of a text's words to the regions of its image: the weights, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vision.images.decoding import sample_image
from vision.models.layers.projector import ProjectorLayer
from vision.sequences.image_processors.patches import PatchesProcessor
from vision.sequences.image_processors.pixels import PixelsProcessor
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.passes import sample_pass
from workbench.models.context import AttentionRecord, Context
from workbench.models.network import Network
from workbench.report.run import save_figure
from workbench.sequences.batch import Batch, collate
from workbench.sequences.protocols import ImageProcessor
from workbench.sequences.sequence import Fields

_COLUMNS = 4
_PALE, _STRONGEST, _RED = 0.35, 0.72, (214, 40, 28)


def attention_to_regions(network: Network, batch: Batch, sequence: int, layers: int | None = None) -> np.ndarray:
    """The attention of each text row to each image row of one sequence: [text rows, image rows], rows sum to 1.

    The mean over heads and over the last `layers` layers (default: all) in which text reads the image. If text reads
    only rows that have read the image (the queries of CoCa's pooler), it is the product of both (attention rollout,
    Abnar and Zuidema, arXiv:2005.00928, section 3, for layers without a residual). A projected row stands for the row
    that it is of.

    Raises:
        WorkbenchError: no layer lets the text attend to the image, or to rows that have read it.
    """
    batch = batch.pick({name: [sequence] for name in batch.streams})
    context = Context(batch, keep_attention=True)
    training = network.training
    network.eval()
    with torch.no_grad():
        network(batch, context)
    network.train(training)
    projected = {layer.stream: layer.source for layer in network.layers if isinstance(layer, ProjectorLayer)}
    found = _Looks(context.attention, batch, projected).to_image("text", len(context.attention))
    if not found:
        raise _none(context)
    chosen = torch.stack(found[-layers:] if layers else found).float().mean(0)
    return (chosen / chosen.sum(1, keepdim=True).clamp_min(1e-12)).cpu().numpy()


class _Looks:
    """The attention calls on a batch of one sequence, in their order; `projected` names the streams whose rows are
    those of others, with these."""

    def __init__(self, calls: Sequence[AttentionRecord], batch: Batch, projected: dict[str, str]) -> None:
        self.calls, self.batch, self.projected = calls, batch, projected
        self._known: dict[tuple[str, int], list[torch.Tensor]] = {}

    def to_image(self, stream: str, before: int) -> list[torch.Tensor]:
        """The weights [stream rows, image rows] of every one of the first `before` calls in which a stream reads the
        image. If there is none: those of every call in which it reads streams that have read the image, times the
        average weights of these."""
        if stream in self.projected and stream in self.batch.streams:
            of, source = self.batch.streams[stream].fields["of"], self.projected[stream]
            if source == "image":
                return [torch.eye(self.batch.streams["image"].rows, device=of.device)[of]]
            return [part[of] for part in self.to_image(source, before)]
        if (stream, before) not in self._known:
            places = [place for place, call in enumerate(self.calls[:before]) if stream in call.queries]
            direct = [self._block(place, stream, "image") for place in places if "image" in self.calls[place].keys]
            self._known[stream, before] = direct or [part for place in places for part in self._through(place, stream)]
        return self._known[stream, before]

    def _through(self, place: int, stream: str) -> list[torch.Tensor]:
        read = {key: self.to_image(key, place) for key in self.calls[place].keys if key != stream}
        parts = [self._block(place, stream, key) @ torch.stack(found).mean(0) for key, found in read.items() if found]
        return [torch.stack(parts).sum(0)] if parts else []

    def _block(self, place: int, stream: str, key: str) -> torch.Tensor:
        call = self.calls[place]
        rows, columns = _rows(self.batch, call.queries, stream), _rows(self.batch, call.keys, key)
        return call.weights[0].mean(0)[rows][:, columns].float()


def _none(context: Context) -> WorkbenchError:
    """The streams that the text attends to instead of the image."""
    read = {name for call in context.attention if "text" in call.queries for name in call.keys}
    others = ", ".join(sorted(read - {"text"}))
    instead = f"next to itself to {others}, whose rows have not read the image" if others else "to itself alone"
    return WorkbenchError(
        f"no layer of this network lets text attend to the image: it attends {instead}. Use a run in which a joint, "
        "co or cross layer has `text` read the stream `image`, or a stream that has read it"
    )


def draw_attention(
    run: Path, name: str, image: Image.Image, boxes: np.ndarray, words: Sequence[str], weights: np.ndarray
) -> Path:
    """Write the figure `figures/<name>.png` of `attention_figure`.

    Raises:
        WorkbenchError: the shapes do not fit.
    """
    figure = attention_figure(image, boxes, words, weights)
    sentence = " ".join(words)
    return save_figure(figure, run, name, "Attention of words.", f"Attention from each word to the image: {sentence}")


def attention_figure(image: Image.Image, boxes: np.ndarray, words: Sequence[str], weights: np.ndarray) -> Any:
    """The image, then once more per word, with its regions coloured by their attention.

    Args:
        boxes: [regions, 4] x1, y1, x2, y2 in 0..1.
        weights: [words, regions].

    Raises:
        WorkbenchError: the shapes do not fit.
    """
    if weights.shape != (len(words), len(boxes)):
        raise WorkbenchError(
            f"attention weights have shape {weights.shape} for {len(words)} words and {len(boxes)} regions"
        )
    from matplotlib.figure import Figure

    pixels = np.asarray(image.convert("RGB"))
    columns = min(_COLUMNS, len(words) + 1)
    rows = -(-(len(words) + 1) // columns)
    figure = Figure(figsize=(2.2 * columns, 2.5 * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid:
        axes.set_axis_off()
    shown = [("", pixels), *((word, _lit(pixels, boxes, row)) for word, row in zip(words, weights, strict=True))]
    for axes, (word, coloured) in zip(grid, shown, strict=False):
        axes.imshow(coloured, interpolation="nearest" if max(image.size) <= 128 else "antialiased")
        axes.set_title(word, fontsize=12)
    return figure


def _rows(batch: Batch, streams: tuple[str, ...], stream: str) -> slice:
    """The range of a stream's rows in the joined streams."""
    before = sum(batch.streams[name].rows for name in streams[: streams.index(stream)])
    return slice(before, before + batch.streams[stream].rows)


def _pixels(begin: float, end: float, size: int) -> tuple[int, int]:
    """At least one pixel; rounded, so that neighbouring cells do not overlap."""
    first = min(round(float(begin) * size), size - 1)
    return first, max(round(float(end) * size), first + 1)


def _lit(pixels: np.ndarray, boxes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The image in pale grey where attention is least, in red where it is most; overlapping regions add up."""
    height, width = pixels.shape[:2]
    heat = np.zeros((height, width))
    for (x1, y1, x2, y2), weight in zip(boxes, weights, strict=True):
        top, bottom = _pixels(y1, y2, height)
        left, right = _pixels(x1, x2, width)
        heat[top:bottom, left:right] += weight
    span = heat.max() - heat.min()
    share = (heat - heat.min()) / span if span > 1e-9 else 0 * heat
    pale = _PALE * 255 + (1 - _PALE) * pixels.mean(-1, keepdims=True)
    strength = _STRONGEST * share[..., None]
    return ((1 - strength) * pale + strength * np.array(_RED)).astype(np.uint8)


NAME = "attention"


def draw_question(run: EvaluatedRun, corpus: Corpus) -> Path | None:
    """Draw the attention from each word of the corpus's first question to its image.

    None if the network does not let text attend to the image, or the run omits the image.
    """
    samples = next(sample_pass([corpus], size=1, unit=run.task.builder.unit, limit=1))
    sequence = run.task.sequences(samples)[0]
    if not sequence.length("image"):
        return None
    batch = collate([sequence]).to(next(run.network.parameters()).device)
    try:
        weights = attention_to_regions(run.network, batch, 0)
    except WorkbenchError:
        return None  # text does not attend to the image in this network
    text = batch.streams["text"].fields["input_ids"]
    special = torch.as_tensor(sequence.streams["text"]["special"]).numpy()
    words = [word for word, skip in zip(run.tokenizer.tokens(text.tolist()), special, strict=True) if not skip]
    image = sample_image(samples[0])
    cells, boxes = shown(sequence.streams["image"], run.task.builder.image.part, image.size)
    return draw_attention(run.folder, NAME, image, boxes, words, weights[~special][:, cells])


def shown(fields: Fields, part: ImageProcessor | None, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of an image stream that are regions of the image, and their boxes: [rows] bool, boxes [n, 4].

    A class token is not one of them: its box is the whole image, which would be coloured everywhere.

    Args:
        part: the component that built the rows; if it crops a square, the boxes are relative to the square.
        size: width and height of the image.
    """
    cells = ~np.asarray(fields.get("special", np.zeros(len(fields["boxes"]), np.bool_)))
    boxes = fields["boxes"][cells]
    return cells, part.square.in_image(boxes, *size) if isinstance(part, PatchesProcessor | PixelsProcessor) else boxes
