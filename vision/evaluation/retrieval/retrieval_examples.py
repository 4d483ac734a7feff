"""Examples of retrieval: captions with the images that they find, and captions that find theirs last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vision.evaluation.retrieval.pair_scores import ScoredPairs
from vision.metrics.retrieval_scores import rank_images
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.example_images import keep_image

EXAMPLES = 12
FIRST = 10
"""Number of candidates of a query in the predictions."""
BLOCK = 1024


def examples(found: ScoredPairs, owner: np.ndarray, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """Captions from all over the corpus, each with the image that it ranks first."""
    ranks = rank_images(found.scores, owner)
    texts = np.linspace(0, len(owner) - 1, min(EXAMPLES, len(owner))).astype(int)
    return [_example(found, corpus, run, text, ranks[text]) for text in texts.tolist()]


def failures(found: ScoredPairs, owner: np.ndarray, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """The captions that rank their image last, each of another image, with the image that they rank first."""
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


def query_lines(
    found: ScoredPairs, owner: np.ndarray, image_ranks: np.ndarray, text_ranks: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Every query as an item, the texts and then the images: its rank, and the first candidates with their scores."""
    keys = [shown.key for shown in found.shown]
    of_images: dict[int, list[str]] = {}
    for text, image in enumerate(owner.tolist()):
        of_images.setdefault(image, []).append(found.captions[text])
    everything = slice(0, None)
    for start in range(0, found.scores.texts, BLOCK):
        block = found.scores.block(slice(start, start + BLOCK), everything)
        for text, first in enumerate(_first(block, keys), start):
            own = keys[int(owner[text])]
            row = {"query": "text", "text": found.captions[text], "gold": own, "prediction": first[0][0]}
            yield {"key": own, **row, "rank": float(image_ranks[text]), "first": first}
    by_text = found.text_scores or found.scores
    for start in range(0, found.scores.images, BLOCK):
        block = by_text.block(everything, slice(start, start + BLOCK)).T
        for image, first in enumerate(_first(block, found.captions), start):
            own_texts: dict[str, Any] = {"query": "image", "gold": of_images.get(image, []), "prediction": first[0][0]}
            yield {"key": keys[image], **own_texts, "rank": float(text_ranks[image]), "first": first}


def _first(block: Tensor, names: list[str]) -> Iterator[list[tuple[str, float]]]:
    """The best candidates of each row by name, with their scores."""
    best = block.topk(min(FIRST, block.shape[1]), dim=1)
    for scores, places in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        yield [(names[place], score) for place, score in zip(places, scores, strict=True)]


def _example(found: ScoredPairs, corpus: Corpus, run: Path, text: int, rank: float) -> dict[str, Any]:
    row = torch.as_tensor(found.scores.block(slice(text, text + 1), slice(0, found.scores.images)))
    best = int(row.argmax())
    image = keep_image(run, _image(corpus, found, best))
    return {"caption": found.captions[text], "image": image, "key": found.shown[best].key, "rank": int(rank)}


def _image(corpus: Corpus, found: ScoredPairs, number: int) -> bytes:
    data: bytes = corpus[found.shown[number].record].get("image", b"")
    return data
