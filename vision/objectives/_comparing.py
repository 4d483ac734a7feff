"""Interfaces of objectives for retrieval: vectors of separate texts and media, or a score of a joint pair."""

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


class MediaContrast(Objective):
    """An objective with a vector for each text and each medium; matching pairs have the highest products.

    `streams` are the compared ones, by side; `apart` says whether the objective itself hides them from each other.
    """

    streams: dict[str, str]
    apart: bool = False

    @classmethod
    def tuned(cls, stated: Spec) -> Spec | None:
        """The objective that fine-tuning for retrieval trains, from its form in a recipe; None: a new one."""
        return stated


class MediaContrastHead(GlobalBatchHead):
    """The head of a `MediaContrast`."""

    streams: dict[str, str]

    def vectors(self, read: NetworkOutput, stream: str) -> Tensor:
        """The vector of each sequence's rows of one of the streams [sequences, size], float32."""
        raise NotImplementedError(f"{type(self).__name__} must define vectors")


class Matching(Objective):
    """An objective with a score for a text and a medium that are read together."""

    @classmethod
    def tuned(cls, stated: Spec) -> Spec | None:
        """As in `MediaContrast`."""
        return stated


class MatchingHead(Head):
    """The head of a `Matching`."""

    def match(self, network: Network, states: States, batch: Batch) -> Tensor:
        """The matching score of text and medium of each pair [sequences], float32, higher is better."""
        raise NotImplementedError(f"{type(self).__name__} must define match")
