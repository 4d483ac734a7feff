"""The picture beside an evaluation of visual questions: where the words of a question look."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from vision.evaluation.vqa.attention import attention_to_regions, draw_attention
from vision.images.decoding import sample_image
from vision.sequences.images.patches import Patches
from vision.sequences.images.pixels import Pixels
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.passes import sample_pass
from workbench.sequences.batch import collate
from workbench.sequences.protocols import Image
from workbench.sequences.sequence import Fields

NAME = "attention"


def draw_question(run: Evaluated, corpus: Corpus) -> Path | None:
    """Draw the attention from each word of the corpus's first question to its image.

    None where the network does not let text attend to the image, or the run leaves the image out.
    """
    samples = next(sample_pass([corpus], size=1, unit=run.task.builder.unit, limit=1))
    sequence = run.task.sequences(samples)[0]
    if not sequence.length("image"):
        return None
    batch = collate([sequence]).to(next(run.network.parameters()).device)
    try:
        weights = attention_to_regions(run.network, batch, 0)
    except WorkbenchError:
        return None  # the streams of this network do not mix
    text = batch.streams["text"].fields["input_ids"]
    special = torch.as_tensor(sequence.streams["text"]["special"]).numpy()
    words = [word for word, skip in zip(run.tokenizer.tokens(text.tolist()), special, strict=True) if not skip]
    image = sample_image(samples[0])
    cells, boxes = shown(sequence.streams["image"], run.task.builder.image.part, image.size)
    return draw_attention(run.folder, NAME, image, boxes, words, weights[~special][:, cells])


def shown(fields: Fields, part: Image | None, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of an image stream are stretches of the image, and where they are in it: [rows] bool, boxes [n, 4].

    A class token is none of them: its box is the whole image, which would be lit everywhere.

    Args:
        part: what made the rows; the boxes of one that looks at a square are those of the square.
        size: width and height of the image.
    """
    cells = ~np.asarray(fields.get("special", np.zeros(len(fields["boxes"]), np.bool_)))
    boxes = fields["boxes"][cells]
    return cells, part.square.in_image(boxes, *size) if isinstance(part, Patches | Pixels) else boxes
