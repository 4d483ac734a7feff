"""The options of decoding, and the choice of tokens.

Tokens are chosen one after the other: the most probable one, or a random draw. `Spelling` turns token ids into text,
also those of an objective's own tokens (T5's sentinels).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from annotated_types import Ge, Le

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Number, Positive, Seed, SomeShare
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # options are checked without torch, which takes seconds to import
    from torch import Tensor

    from workbench.generation.decoder import Decoder

Beams = Annotated[int, Ge(1), Le(1024)]
Penalty = Annotated[Number, Ge(-10), Le(10)]
EarlyStopping = Literal["false", "true", "never"]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The options of decoding: the most probable token each time, several beams, or draws.

    Attributes:
        length_penalty: a beam's score is its log-probability / (number of tokens, the end included) ** length_penalty:
            above 0 it favours long texts, below 0 short ones.
        early_stopping: the condition that ends the search of a prompt. `true`: `beams` texts have ended. `false`: no
            running beam, if it ended now, would be better than the worst of these. `never`: no running beam could
            become better with the length that suits it best.
        top_k, top_p: draw among the most probable `top_k` tokens, and of these among the fewest that together have the
            probability `top_p` (nucleus sampling, arXiv:1904.09751).

    Raises:
        WorkbenchError: options of another decoding method than the chosen one.
    """

    max_new_tokens: Annotated[Count, typer.Option(help="Maximum number of generated tokens.")] = 64
    beams: Annotated[Beams, typer.Option(help="Number of beams; 1 is greedy decoding.")] = 1
    length_penalty: Annotated[Penalty, typer.Option(help="With --beams: a value above 0 favours long texts.")] = 1.0
    early_stopping: Annotated[EarlyStopping, typer.Option(help="With --beams: the condition that ends a search.")] = (
        "false"
    )
    sample: Annotated[bool, typer.Option("--sample", help="Draw each token at random.")] = False
    temperature: Annotated[Positive, typer.Option(help="With --sample: the logits are divided by this.")] = 1.0
    top_k: Annotated[Count | None, typer.Option(help="With --sample: draw among this many most probable tokens.")] = (
        None
    )
    top_p: Annotated[
        SomeShare, typer.Option(help="With --sample: draw among the most probable tokens with this total probability.")
    ] = 1.0
    seed: Annotated[Seed, typer.Option(help="With --sample: seed of the draws.")] = 0

    def __post_init__(self) -> None:
        if self.sample and self.beams > 1:
            raise WorkbenchError(f"--sample draws one text, and --beams is {self.beams}; leave one of them out")
        for asked, needed, names in (
            (self.sample, "--sample", ("temperature", "top_k", "top_p", "seed")),
            (self.beams > 1, "--beams of at least 2", ("length_penalty", "early_stopping")),
        ):
            said = [name for name in names if name in self.chosen()]
            if said and not asked:
                raise WorkbenchError(f"--{said[0].replace('_', '-')} needs {needed}; add it, or leave this option out")

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their default."""
        named = {f.name: (getattr(self, f.name), f.default) for f in fields(self) if f.default is not MISSING}
        return {name: value for name, (value, default) in named.items() if value != default}


@dataclass
class GeneratedText:
    """The continuation of a prompt.

    Attributes:
        tokens: their ids, without the one that ends the text.
        score: sum of the tokens' log-probabilities, the end's included; of beams after the length penalty.
        ended: whether the text has ended; it was cut at `max_new_tokens` otherwise.
    """

    tokens: list[int]
    score: float
    ended: bool


def draw(decoder: Decoder, decoding: Decoding, generators: Sequence[np.random.Generator]) -> list[GeneratedText]:
    """A text for each prompt, each with its own generator: a draw does not depend on the other prompts."""
    made = [GeneratedText([], 0.0, False) for _ in generators]
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


def _add(texts: list[GeneratedText], logits: Tensor, chosen: Tensor, end: int | None) -> None:
    scores = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist()
    for text, token, score in zip(texts, chosen.tolist(), scores, strict=True):
        text.score += score
        text.ended = token == end
        if not text.ended:
            text.tokens.append(token)


def _most_probable(logits: Tensor) -> Tensor:
    """The first of the greatest logits of each row [rows]; on a CPU numpy finds it ten times faster than torch."""
    import torch

    return torch.from_numpy(logits.numpy().argmax(-1)) if logits.device.type == "cpu" else logits.argmax(-1)


def distribution(logits: Tensor, decoding: Decoding) -> Tensor:
    """The probabilities [rows, vocab_size] with which tokens are drawn."""
    scores = logits.double()
    scores = (scores - scores.amax(-1, keepdim=True)) / decoding.temperature  # a division never makes +inf of them
    if decoding.top_k is not None and decoding.top_k < scores.shape[1]:
        least = scores.topk(decoding.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    probabilities = scores.softmax(-1)
    if decoding.top_p < 1:
        ordered, order = probabilities.sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        kept = probabilities.new_zeros(probabilities.shape)
        kept = kept.scatter(1, order, ordered.masked_fill(before >= decoding.top_p, 0.0))
        probabilities = kept / kept.sum(-1, keepdim=True)
    return probabilities


def drawn(probabilities: Tensor, uniform: Sequence[float]) -> Tensor:
    """The token of each row [rows] in whose share of [0, 1) its number lies."""
    import torch

    ends = probabilities.cumsum(-1)
    at = torch.tensor(uniform, dtype=ends.dtype, device=ends.device)[:, None] * ends[:, -1:]
    return torch.searchsorted(ends, at, right=True)[:, 0]


class Spelling:
    """A tokenizer's strings, and names of ids (`Objective.own_tokens`), also where the tokenizer has these not."""

    def __init__(self, tokenizer: Tokenizer, names: Mapping[int, str]) -> None:
        self.tokenizer, self.names = tokenizer, names

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string for each id."""
        listed = [int(i) for i in ids]
        spelt = zip(listed, self.tokenizer.tokens(listed), strict=True)
        return [self.names.get(i, token) for i, token in spelt]

    def text(self, ids: Iterable[int]) -> str:
        """The text of ids without special tokens, the objective's own tokens among its words."""
        listed = [int(i) for i in ids]
        if not self.names.keys() & set(listed):
            return self.tokenizer.decode(listed)
        pieces = []
        for name, run in groupby(listed, self.names.get):
            alike = list(run)
            pieces += [self.tokenizer.decode(alike).strip()] if name is None else [name] * len(alike)
        return " ".join(filter(None, pieces))
