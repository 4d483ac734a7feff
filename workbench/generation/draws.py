"""A token after the other: the most probable one, or one that is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, Generated


def draw(decoder: Decoder, decoding: Decoding, generators: Sequence[np.random.Generator]) -> list[Generated]:
    """A text for each prompt, of which each has its own generator: what is drawn does not depend on its company."""
    made = [Generated([], 0.0, False) for _ in generators]
    logits, going = decoder.begin(), list(range(len(made)))
    while True:
        texts = [made[i] for i in going]
        _add(texts, logits, _choose(logits, decoding, [generators[i] for i in going]), decoder.continuation.end)
        rows = [row for row, text in enumerate(texts) if not text.ended]
        if not rows or len(texts[rows[0]].tokens) == decoding.max_new_tokens:
            return made
        going = [going[row] for row in rows]
        logits = decoder.step([made[i].tokens[-1] for i in going], rows)


def _choose(logits: Tensor, decoding: Decoding, generators: list[np.random.Generator]) -> Tensor:
    """A token for each row [rows]."""
    if not decoding.sample:
        return _most_probable(logits)
    return drawn(distribution(logits, decoding), [rng.random() for rng in generators])


def _add(texts: list[Generated], logits: Tensor, chosen: Tensor, end: int | None) -> None:
    scores = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist()
    for text, token, score in zip(texts, chosen.tolist(), scores, strict=True):
        text.score += score
        text.ended = token == end
        if not text.ended:
            text.tokens.append(token)


def _most_probable(logits: Tensor) -> Tensor:
    """The first of the greatest logits of each row [rows]; on a CPU numpy finds it ten times faster than torch."""
    return torch.from_numpy(logits.numpy().argmax(-1)) if logits.device.type == "cpu" else logits.argmax(-1)


def distribution(logits: Tensor, decoding: Decoding) -> Tensor:
    """The probabilities [rows, vocab_size] that tokens are drawn with."""
    scores = logits.double()
    scores = (scores - scores.amax(-1, keepdim=True)) / decoding.temperature  # a division never makes +inf of them
    if decoding.top_k is not None and decoding.top_k < scores.shape[1]:
        least = scores.topk(decoding.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    probabilities = scores.softmax(-1)
    if decoding.top_p < 1:
        ordered, order = probabilities.sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        kept = torch.zeros_like(probabilities).scatter(1, order, ordered.masked_fill(before >= decoding.top_p, 0.0))
        probabilities = kept / kept.sum(-1, keepdim=True)
    return probabilities


def drawn(probabilities: Tensor, uniform: Sequence[float]) -> Tensor:
    """The token of each row [rows] in whose share of [0, 1) its number lies."""
    ends = probabilities.cumsum(-1)
    at = torch.tensor(uniform, dtype=ends.dtype, device=ends.device)[:, None] * ends[:, -1:]
    return torch.searchsorted(ends, at, right=True)[:, 0]
