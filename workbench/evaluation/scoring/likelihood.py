"""Log-likelihoods of the tokens of texts: per batch, and summed up for whole texts.

With l_i = -log p of the i-th of N predicted tokens, in nats,

    loss                 sum l / N
    perplexity           exp(sum l / N)
    bits per byte        sum l / (log 2 * bytes of the texts in UTF-8); bits per character alike

Perplexity is per token, so it compares runs of one tokenizer alone; bits per byte and character compare any that keep
the text as it is (one that lower-cases predicts less than the bytes that are counted).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.models.kv_cache import KVCache
from workbench.pretraining.forward import read
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence

ROWS = 2048
"""Number of rows with scores of the whole vocabulary that are in memory at once."""


class PredictedTokens(NamedTuple):
    """Tokens of a text [tokens], and -log p of each in nats [tokens]; with a memory [tokens, 3] (`Reread`)."""

    key: str
    labels: np.ndarray
    nats: np.ndarray


@dataclass
class Cost:
    """The cost of texts: the number of predicted tokens, the sum of their nats, and the size of the texts."""

    tokens: int = 0
    nats: float = 0.0
    characters: int = 0
    bytes: int = 0

    def add(self, other: Cost) -> None:
        self.tokens += other.tokens
        self.nats += other.nats
        self.characters += other.characters
        self.bytes += other.bytes

    def numbers(self, name: str = "perplexity") -> dict[str, float]:
        """Perplexity under this name, loss, and bits by the size of the texts, where that is known.

        Raises:
            WorkbenchError: a probability was not a number, or 0.
        """
        loss = self.nats / self.tokens + 0.0  # of what is certain -log 1, which is -0
        if not math.isfinite(loss):
            raise WorkbenchError("the model's probabilities are not finite numbers; did the training diverge?")
        found = {name: math.exp(min(loss, 700.0)), "loss": loss}
        sizes = {"bits_per_byte": self.bytes, "bits_per_character": self.characters}
        return found | {unit: self.nats / math.log(2) / size + 0.0 for unit, size in sizes.items() if size}


Reread = Callable[[Tensor, Tensor, Tensor], Tensor]
"""States [rows, size], labels [rows] and their costs [rows] -> costs (`workbench.evaluation.scoring.token_memory`)."""


@torch.inference_mode()
def token_nats(
    run: EvaluatedRun, sequences: list[Sequence], cache: KVCache | None = None, reread: Reread | None = None
) -> tuple[list[np.ndarray], KVCache | None]:
    """-log p of the labels of each sequence [its labels], and the cache with what was read of it.

    The sequences have targets of the run's objective: `rows`, and of each the token that it predicts in `labels`.

    Args:
        reread: makes other costs of them.

    Raises:
        WorkbenchError: the objective's targets are none such.
    """
    name, network = run.objective.name, run.network
    wrong = next((s for s in sequences if not {"rows", "labels"} <= s.targets.get(name, {}).keys()), None)
    if wrong is not None:
        raise WorkbenchError(
            f"the objective {name!r} predicts no token by a row of its own (sequence {wrong.key!r}), so there is no "
            "probability of each token to add up; its held-out loss is in the run's metrics"
        )
    batch = collate(sequences).to(next(network.parameters()).device)
    found = read(network, batch, cache=cache)
    targets, head = batch.targets[name], run.head
    rows = found.states[batch.links[name]["rows"]][targets["rows"]]
    logits_of: Any = head.logits
    parts = [
        F.cross_entropy(logits_of(network, some).float(), labels, reduction="none")
        for some, labels in zip(rows.split(ROWS), targets["labels"].split(ROWS), strict=True)
    ]
    costs = torch.cat(parts).double() if parts else rows.new_zeros(0).double()
    nats = (costs if reread is None else reread(rows, targets["labels"], costs)).cpu().numpy()
    ends = np.cumsum([len(s.targets[name]["labels"]) for s in sequences])[:-1]
    return np.split(nats, ends), found.cache


def joined_predictions(parts: Iterable[PredictedTokens]) -> list[PredictedTokens]:
    """The predictions of each text, with its windows joined, in the order of the texts."""
    texts: dict[str, list[PredictedTokens]] = {}
    for part in parts:
        texts.setdefault(part.key, []).append(part)
    return [
        PredictedTokens(key, np.concatenate([p.labels for p in of]), np.concatenate([p.nats for p in of]))
        for key, of in texts.items()
    ]


def entropy(counts: Mapping[int, int]) -> float:
    """The entropy of token counts, in nats: the minimum loss without context."""
    values = np.array(list(counts.values()), float)
    shares = values / values.sum()
    return float(-(shares * np.log(shares)).sum())


def unigram_loss(counts: Mapping[int, int], known: Counter[int], vocab_size: int) -> float:
    """The mean of -log p of so many of each token, where p is a token's share of those `known`, one more of each."""
    total = known.total() + max(vocab_size, 1 + max(counts))
    nats = sum(count * math.log(total / (known[token] + 1)) for token, count in counts.items())
    return nats / sum(counts.values())
