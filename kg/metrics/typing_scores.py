"""Entity typing: strict accuracy, loose macro and loose micro precision, recall and F1.

Definitions: Ling & Weld, "Fine-Grained Entity Recognition", AAAI 2012. Published scripts differ in three places, all
options here, and the result says which was used:

- `macro`: what the macro precision is divided by. `open_type` (Choi et al., ACL 2018, the data set's own script)
  divides by the examples with a non-empty prediction and the recall by the examples with a gold type; `ernie`
  (thunlp/ERNIE) divides both by all examples.
- `rule`: which types are predicted. `positive`: logit > 0, possibly none (Open Entity); `positive_or_top`: logit > 0
  or equal to the row's greatest, so at least one (FIGER).
- `gold`: which gold types are to be found. `all` of them: one that the model has no name for is missed; those of the
  `inventory`: others are left out, as where the nine general types of Choi et al. are read out of their whole set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.metrics.tallies import Tally

Macro = Literal["open_type", "ernie"]
Rule = Literal["positive", "positive_or_top"]
Gold = Literal["all", "inventory"]


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall, as shares; `f1` is 0 where both are."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclass(frozen=True)
class TypingScores:
    """The scores of one evaluation, with the conventions they follow and the counts behind them."""

    strict_accuracy: float
    loose_macro: PrecisionRecall
    loose_micro: PrecisionRecall
    examples: int
    without_prediction: int
    macro: Macro

    def numbers(self) -> dict[str, float]:
        """The scores of a result, by the names that metrics have (`loose_micro/f1`)."""
        found = {"strict_accuracy": self.strict_accuracy}
        for name, pair in (("loose_macro", self.loose_macro), ("loose_micro", self.loose_micro)):
            found |= {f"{name}/precision": pair.precision, f"{name}/recall": pair.recall, f"{name}/f1": pair.f1}
        return found


def predicted_types(logits: np.ndarray, rule: Rule = "positive") -> np.ndarray:
    """Logits [examples, types] -> bool [examples, types] by the rule."""
    logits = np.asarray(logits)
    chosen = logits > 0
    if rule == "positive_or_top":
        chosen = chosen | (logits == logits.max(axis=1, keepdims=True))
    return chosen


def typing_scores(
    predicted: np.ndarray, gold: np.ndarray, macro: Macro = "open_type", outside: np.ndarray | None = None
) -> TypingScores:
    """Scores of predicted against gold types, both bool [examples, types].

    Args:
        outside: how many gold types each example has next to these [examples]: they count as not found.

    Raises:
        ValueError: the two differ in shape, or there are no examples.
    """
    predicted, gold = np.asarray(predicted, bool), np.asarray(gold, bool)
    if predicted.shape != gold.shape or predicted.ndim != 2 or not len(gold):
        raise ValueError(
            f"predicted types {predicted.shape} and gold types {gold.shape} must both be [examples, types] with at "
            "least one example"
        )
    both = (predicted & gold).sum(1)
    unknown = np.zeros(len(gold), np.int64) if outside is None else np.asarray(outside)
    sizes, gold_sizes = predicted.sum(1), gold.sum(1) + unknown
    return TypingScores(
        strict_accuracy=float(((predicted == gold).all(1) & (unknown == 0)).mean()),
        loose_macro=PrecisionRecall(
            _mean_share(both, sizes, every=macro == "ernie"), _mean_share(both, gold_sizes, every=macro == "ernie")
        ),
        loose_micro=PrecisionRecall(_share(both.sum(), sizes.sum()), _share(both.sum(), gold_sizes.sum())),
        examples=len(gold),
        without_prediction=int((sizes == 0).sum()),
        macro=macro,
    )


def typing_tallies(
    predicted: np.ndarray, gold: np.ndarray, macro: Macro = "open_type", outside: np.ndarray | None = None
) -> dict[str, Tally]:
    """The tallies of each example for the numbers of `typing_scores`, with the same arguments."""
    both, sizes = (predicted & gold).sum(1), predicted.sum(1)
    unknown = np.zeros(len(gold), np.int64) if outside is None else np.asarray(outside)
    gold_sizes = gold.sum(1) + unknown
    every = macro == "ernie"
    macros = [
        np.stack([both / np.maximum(of, 1), np.ones(len(of)) if every else of > 0], axis=1)
        for of in (sizes, gold_sizes)
    ]
    return {
        "strict_accuracy": Tally.share((predicted == gold).all(1) & (unknown == 0)),
        "loose_macro/precision": Tally.of("mean", *(macros[0] * macros[0][:, 1:]).T),
        "loose_macro/recall": Tally.of("mean", *(macros[1] * macros[1][:, 1:]).T),
        "loose_macro/f1": Tally("f1_of_means", np.concatenate([each * each[:, 1:] for each in macros], axis=1)),
        "loose_micro/precision": Tally.of("share", both, sizes),
        "loose_micro/recall": Tally.of("share", both, gold_sizes),
        "loose_micro/f1": Tally.of("f1", both, sizes, gold_sizes),
    }


def _mean_share(parts: np.ndarray, wholes: np.ndarray, every: bool) -> float:
    """Mean of part / whole over the examples with a non-empty whole; divided by all examples with `every`."""
    some = wholes > 0
    total = (parts[some] / wholes[some]).sum()
    return _share(total, len(wholes) if every else some.sum())


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
