"""Captions with the images that they find, and those that find theirs last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from vision.evaluation.retrieval.scores import Scored
from vision.metrics.retrieval import rank_images
from workbench.corpora.corpus import Corpus
from workbench.evaluation.examples import keep_image
from workbench.evaluation.passes import record_at

EXAMPLES = 12


def examples(found: Scored, owner: np.ndarray, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """Captions from all over the corpus with the image that each finds first."""
    ranks = rank_images(found.scores, owner)
    texts = np.linspace(0, len(owner) - 1, min(EXAMPLES, len(owner))).astype(int)
    return [_example(found, corpus, run, text, ranks[text]) for text in texts.tolist()]


def failures(found: Scored, owner: np.ndarray, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """The captions whose image stands at the last places, each of another image, with what stands before it."""
    ranks, shown = rank_images(found.scores, owner), dict[int, int]()
    for text in np.argsort(-ranks, kind="stable").tolist():
        if ranks[text] > 1 and len(shown) < EXAMPLES:
            shown.setdefault(int(owner[text]), text)
    return [
        {
            **_example(found, corpus, run, text, ranks[text]),
            "right": keep_image(run, _image(corpus, found, image)),
            "right_key": found.shown[image].key,
        }
        for image, text in shown.items()
    ]


def _example(found: Scored, corpus: Corpus, run: Path, text: int, rank: float) -> dict[str, Any]:
    row = torch.as_tensor(found.scores.block(slice(text, text + 1), slice(0, found.scores.images)))
    best = int(row.argmax())
    image = keep_image(run, _image(corpus, found, best))
    return {"caption": found.captions[text], "image": image, "key": found.shown[best].key, "rank": int(rank)}


def _image(corpus: Corpus, found: Scored, number: int) -> bytes:
    data: bytes = record_at(corpus, found.shown[number].record).get("image", b"")
    return data
