"""Values of options that components and commands share; torch is not needed to read them."""

from typing import Literal

Way = Literal["margin", "choice"]
"""How `vision.objectives.ranking` compares the right pair with wrong ones."""
Ties = Literal["realistic", "pessimistic"]
"""How a competitor with the score of the right answer counts (`vision.metrics.retrieval_scores`)."""
