"""The command-line options of the tasks perplexity and pseudo-perplexity. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.core.options.bounds import Count, Place, Positive, SomeShare
from workbench.evaluation.options import LikelihoodScoring


@dataclass(frozen=True, kw_only=True)
class PerplexityScoring(LikelihoodScoring):
    """Perplexity per token, bits per byte and bits per character, compared with a unigram baseline.

    A text of CORPUS is read whole, in windows of the length that RUN was trained on. Each window predicts all of its
    tokens, or with --stride N only its last N from the tokens before them. Every token is predicted once. A text's
    first token is not predicted if RUN's texts have no token in front of it, and then its bytes don't count. A network
    with a memory keeps it from window to window. The end of a text is predicted too if RUN's texts have an end token.

    An encoder-decoder predicts the target of its own objective from the rest of the text. A captioning model predicts
    the caption from the image. These have no bits per byte.

    With --memory the probabilities are mixed with those of the tokens that came after similar states in another corpus
    (kNN-LM). The network alone, and a memory whose tokens are permuted, are among the baselines.

    One line for each text, with its own perplexity, is next to the result (.jsonl).

    Examples:

      workbench evaluate perplexity runs/gpt corpora/text-held-out --unigrams corpora/text

      workbench evaluate perplexity runs/gpt corpora/text-held-out --memory corpora/text

      workbench evaluate perplexity gpt2-folder corpora/text-held-out --stride 512
    """

    stride: Annotated[
        Count | None, typer.Option(help="New tokens that each window predicts; default: all tokens of the window.")
    ] = None
    memory: Annotated[
        Place | None, typer.Option(metavar="CORPUS", help="Texts whose states and next tokens are remembered (kNN-LM).")
    ] = None
    neighbours: Annotated[Count, typer.Option(help="Remembered states that a prediction reads.")] = 64
    memory_share: Annotated[SomeShare, typer.Option(help="Share of the memory's probability.")] = 0.25
    memory_temperature: Annotated[Positive, typer.Option(help="Divisor of the squared distances of states.")] = 1.0


@dataclass(frozen=True, kw_only=True)
class PseudoPerplexityScoring(LikelihoodScoring):
    """Pseudo-perplexity per token, bits per byte and bits per character, compared with a unigram baseline.

    RUN has an objective of masked tokens (mlm). Every token of CORPUS is masked in turn, and predicted from the other
    tokens of its sequence. The sequence is the text, cut to RUN's length. Each token needs one pass of the network, so
    set --limit.

    One line for each text is next to the result (.jsonl).

    Example:

      workbench evaluate pseudo-perplexity runs/bert corpora/text-held-out --limit 100 --unigrams corpora/text
    """
