"""Where the words of a text attend in its image: the weights, and the picture of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from workbench.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.report.run import save_picture
from workbench.sequences.batch import Batch

_COLUMNS = 4


def attention_to_regions(network: Network, batch: Batch, sequence: int, layers: int | None = None) -> np.ndarray:
    """How much each text row attends to each image row of one sequence: [text rows, image rows], rows sum to 1.

    The mean over heads and over the last `layers` layers (default: all) in which text reads the image.

    Raises:
        WorkbenchError: no layer lets the text attend to the image.
    """
    context = Context(batch, keep_attention=True)
    training = network.training
    network.eval()
    with torch.no_grad():
        network(batch, context)
    network.train(training)
    found = [
        weights.mean(0)[_rows(batch, queries, "text", sequence)][:, _rows(batch, keys, "image", sequence)]
        for queries, keys, weights in context.attention
        if "text" in queries and "image" in keys
    ]
    if not found:
        raise WorkbenchError("no layer of this network lets text attend to the image (a joint, co or cross layer does)")
    chosen = torch.stack(found[-layers:] if layers else found).float().mean(0)
    return (chosen / chosen.sum(1, keepdim=True).clamp_min(1e-12)).cpu().numpy()


def draw_attention(
    run: Path, name: str, image: Image.Image, boxes: np.ndarray, words: Sequence[str], weights: np.ndarray
) -> Path:
    """Write the picture `pictures/<name>.png`: the image once per word, its regions lit by their attention.

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
    columns = min(_COLUMNS, len(words))
    rows = -(-len(words) // columns)
    figure = Figure(figsize=(2.2 * columns, 2.5 * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid:
        axes.set_axis_off()
    for axes, word, row in zip(grid, words, weights, strict=False):
        axes.imshow(_lit(pixels, boxes, row), interpolation="nearest" if max(image.size) <= 128 else "antialiased")
        axes.set_title(word, fontsize=11)
    sentence = " ".join(words)
    return save_picture(figure, run, name, "Where words look.", f"Attention from each word to the image: {sentence}")


def _rows(batch: Batch, streams: tuple[str, ...], stream: str, sequence: int) -> slice:
    """Where the rows of one sequence of one stream are among the rows of the joined streams (torch.cat order)."""
    before = sum(batch.streams[name].rows for name in streams[: streams.index(stream)])
    lengths = batch.streams[stream].lengths
    start = before + sum(lengths[:sequence])
    return slice(start, start + lengths[sequence])


def _pixels(begin: float, end: float, size: int) -> tuple[int, int]:
    """At least one pixel; rounded, so that neighbouring cells share none."""
    first = min(round(float(begin) * size), size - 1)
    return first, max(round(float(end) * size), first + 1)


def _lit(pixels: np.ndarray, boxes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pixels darkened where no attention goes; overlapping regions add up."""
    height, width = pixels.shape[:2]
    heat = np.zeros((height, width))
    for (x1, y1, x2, y2), weight in zip(boxes, weights, strict=True):
        top, bottom = _pixels(y1, y2, height)
        left, right = _pixels(x1, x2, width)
        heat[top:bottom, left:right] += weight
    share = heat / heat.max() if heat.max() > 0 else heat
    return (pixels * (0.18 + 0.82 * share[..., None])).astype(np.uint8)
