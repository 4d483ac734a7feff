"""What retrieval asks of an objective: vectors of texts and media by themselves, or a score of a pair that was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workbench.pretraining.forward import NetworkOutput, States
from workbench.pretraining.objective import GlobalBatchHead, Head, Objective
from workbench.recipe.spec import Spec
from workbench.sequences.batch import Batch

if TYPE_CHECKING:
    from workbench.models.network import Network

SIDES = ("text", "image")  # of a pair; the second one's rows may be those of a video as well


class Contrast(Objective):
    """Each text and each medium has a vector of its own; what belongs together has the highest products.

    `streams` are those that are compared, by side; `apart` says whether it keeps them from seeing each other itself.
    """

    streams: dict[str, str]
    apart: bool = False

    @classmethod
    def tuned(cls, stated: Spec) -> Spec | None:
        """What fine-tuning for retrieval trains of an objective that a recipe states so; None: a new one."""
        return stated


class ContrastHead(GlobalBatchHead):
    """The head of a `Contrast`."""

    streams: dict[str, str]

    def vectors(self, read: NetworkOutput, stream: str) -> Tensor:
        """The vector of each sequence's rows of one of the streams [sequences, size], float32."""
        raise NotImplementedError(f"{type(self).__name__} must define vectors")


class Matching(Objective):
    """A text and a medium that were read together have a score."""

    @classmethod
    def tuned(cls, stated: Spec) -> Spec | None:
        """As of `Contrast`."""
        return stated


class MatchingHead(Head):
    """The head of a `Matching`."""

    def match(self, network: Network, states: States, batch: Batch) -> Tensor:
        """How well text and medium of each pair belong together [sequences], float32: the higher, the better."""
        raise NotImplementedError(f"{type(self).__name__} must define match")
