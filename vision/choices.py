"""Choices that parts take and commands offer; torch is not needed to read them."""

from typing import Literal

Way = Literal["margin", "choice"]
"""How `vision.objectives.ranking` has the right image and caption win."""
Ties = Literal["realistic", "pessimistic"]
"""What a competitor with the score of the right answer counts (`vision.metrics.retrieval_scores`)."""
