"""What the task generate is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.evaluation.options import Tuning
from workbench.evaluation.writing import WritingScoring
from workbench.metrics.texts import Splitting
from workbench.options.bounds import Count, Word

if TYPE_CHECKING:
    from workbench.evaluation.generation import Generator
    from workbench.runs.loading import Loaded


@dataclass(frozen=True, kw_only=True)
class GenerateTuning(Tuning):
    """Fine-tune a pretrained run to write a text of a text: a translation, a summary, an answer.

    CORPUS holds texts with what is to be written in `second`, or `translations`, of which --source is read and
    --target is written. RUN is one that can go on with a text: T5, BART, MASS, a prefix language model, GPT. It goes on
    by the objective that it was pretrained with.

    Examples:

      workbench finetune generate runs/bart corpora/news --held-out corpora/news-dev

      workbench finetune generate runs/t5 corpora/multi30k --source en --target de --lr 1e-3
    """

    source: Annotated[Word | None, typer.Option(help="The language that is read, of `translations`.")] = None
    target: Annotated[Word | None, typer.Option(help="The language that is written, of `translations`.")] = None
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens that are read; default: 512, or the model's positions if fewer.")
    ] = None
    max_target_length: Annotated[
        Count | None, typer.Option(help="Tokens that are written; default: 128, or the positions if fewer.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class GenerateScoring(WritingScoring):
    """BLEU, chrF and ROUGE of what a run writes, from 0 to 100, beside those of the text that it reads.

    CORPUS holds texts as those that RUN was fine-tuned on (`finetune generate`). sacrebleu and rouge-score compute the
    scores; the result has their signatures. What was written stands beside the result, a line of JSON for each text
    (.jsonl).

    Examples:

      workbench evaluate generate runs/bart-generate corpora/news-test --beams 4 --length-penalty 2

      workbench evaluate generate runs/t5-generate corpora/multi30k-test --lowercase
    """

    tokenize: Annotated[Splitting, typer.Option(help="How BLEU splits texts.")] = "13a"
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Without regard to case.")] = False

    def generator(self, loaded: Loaded) -> Generator:
        """How texts are written by a run whose tasks are of `text_to_text`."""
        from workbench.evaluation.generation import Generator

        longest = min(task.builder.max_target_length for task in loaded.transforms.values()) - 1  # without the end
        return Generator(loaded, self.decoding(longest), self.network, objective=self.objective)
