"""What the task pseudo-perplexity is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.evaluation.options import LikelihoodScoring


@dataclass(frozen=True, kw_only=True)
class PseudoPerplexityScoring(LikelihoodScoring):
    """Pseudo-perplexity per token, and bits per byte and character, beside the frequencies of tokens alone (unigrams).

    RUN has an objective of masked tokens (mlm). Every token of CORPUS is masked in turn, and predicted from the others
    of its sequence: the text, or the part of it that RUN's length takes. That is a pass for each token: say --limit.

    A line for each text stands beside the result (.jsonl).

    Example:

      workbench evaluate pseudo-perplexity runs/bert corpora/text-held-out --limit 100 --unigrams corpora/text
    """
