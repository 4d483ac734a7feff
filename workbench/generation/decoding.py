"""How tokens are chosen, as the user says it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal

import typer
from annotated_types import Ge, Le

from workbench.errors import WorkbenchError
from workbench.options.bounds import Count, Number, Positive, Seed, SomeShare

Beams = Annotated[int, Ge(1), Le(1024)]
Penalty = Annotated[Number, Ge(-10), Le(10)]
EarlyStopping = Literal["false", "true", "never"]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The most probable token each time, several beams, or draws.

    Attributes:
        length_penalty: a beam's score is its log-probability / (number of tokens, the end included) ** length_penalty:
            above 0 it favours long texts, below 0 short ones.
        early_stopping: when a prompt is done: `true`: as soon as there are `beams` texts that have ended; `false`: when
            no running beam, if it ended now, would be better than the worst of these; `never`: when none could become
            better, taking the length that would suit it best.
        top_k, top_p: draw among the most probable `top_k` tokens, and of these among the fewest that together have the
            probability `top_p` (nucleus sampling, arXiv:1904.09751).

    Raises:
        WorkbenchError: options of another way to choose than the one that is asked for.
    """

    max_new_tokens: Annotated[Count, typer.Option(help="At most so many tokens.")] = 64
    beams: Annotated[Beams, typer.Option(help="Texts that are followed at once.")] = 1
    length_penalty: Annotated[Penalty, typer.Option(help="With --beams: above 0 favours long texts.")] = 1.0
    early_stopping: Annotated[EarlyStopping, typer.Option(help="With --beams: when a search is done.")] = "false"
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens.")] = False
    temperature: Annotated[Positive, typer.Option(help="With --sample: divides the logits.")] = 1.0
    top_k: Annotated[Count | None, typer.Option(help="With --sample: only so many tokens.")] = None
    top_p: Annotated[SomeShare, typer.Option(help="With --sample: only tokens of this probability together.")] = 1.0
    seed: Annotated[Seed, typer.Option(help="With --sample.")] = 0

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
class Generated:
    """What a prompt was continued with.

    Attributes:
        tokens: their ids, without the one that ends the text.
        score: sum of the tokens' log-probabilities, the end's included; of beams after the length penalty.
        ended: whether the text has ended; it was cut at `max_new_tokens` otherwise.
    """

    tokens: list[int]
    score: float
    ended: bool
