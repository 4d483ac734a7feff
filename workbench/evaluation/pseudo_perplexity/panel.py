"""What a report shows of pseudo-perplexity: the first tokens of texts, by what they have cost."""

from __future__ import annotations

from workbench.report.examples import example_panel
from workbench.report.run import Run
from workbench.report.surprise import surprising


def predicted(run: Run) -> str | None:
    """Texts with the bits of each token, masked alone."""
    return example_panel(run, "pseudo-perplexity", "What masked tokens cost", surprising)
