"""What the task perplexity is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import LikelihoodScoring
from workbench.options.bounds import Count


@dataclass(frozen=True, kw_only=True)
class PerplexityScoring(LikelihoodScoring):
    """Perplexity per token, and bits per byte and character, beside the frequencies of tokens alone (unigrams).

    A text of CORPUS is read whole, in windows of the length that RUN was trained on: each predicts all of its tokens
    anew, or with --stride N only N, from the others before them. Every token is predicted once, but for a text's first
    one where RUN's texts have none in front; its bytes don't count then. A network with a memory reads on from window
    to window. The end of a text is predicted too, where RUN's texts have one.

    What an encoder-decoder predicts is the target of its own objective, given what that leaves of the text; a model of
    captions the caption, given the image. There are no bits per byte then.

    A line for each text stands beside the result (.jsonl), with its own perplexity.

    Examples:

      workbench evaluate perplexity runs/gpt corpora/text-held-out --unigrams corpora/text

      workbench evaluate perplexity gpt2-folder corpora/text-held-out --stride 512
    """

    stride: Annotated[
        Count | None, typer.Option(help="Tokens that a window predicts anew; default: all that it has room for.")
    ] = None
