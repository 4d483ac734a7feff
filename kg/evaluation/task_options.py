"""What the evaluations over graphs are told on the command line; torch is not needed to read it.

What the task disambiguation is told on the command line; torch is not needed to read it.

What the task entity-typing is told on the command line; torch is not needed to read it.

What the task facts is told on the command line; torch is not needed to read it.

What the task link-prediction is told on the command line; torch is not needed to read it.

What the task linking is told on the command line; torch is not needed to read it.

What the task relation-prediction is told on the command line; torch is not needed to read it.

What the task relations is told on the command line; torch is not needed to read it.

What the task supersenses is told on the command line; torch is not needed to read it.

What the task triple-classification is told on the command line; torch is not needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kg.metrics.typing_scores import Gold, Macro, Rule
from kg.objectives._reading import Reading
from workbench.core.options.bounds import Count, Location, Name, Seed, Share, Word
from workbench.evaluation.options import BatchSize, Epochs, LearningRate, MeasuringOptions, Scoring, Tuning
from workbench.evaluation.task_options import ClassifyScoring, LabelTuning


@dataclass(frozen=True, kw_only=True)
class TripleScoring(Scoring):
    """What the evaluations over graphs are told."""

    run: Annotated[Path, typer.Argument(help="The run, or vectors of `prepare vectors`: a .safetensors file.")]
    corpus: Annotated[Location, typer.Argument(help="A triples corpus: the held-out triples.")]
    graph: Annotated[
        Location, typer.Option(help="The graph that was trained on: its entities, their texts, what is known.")
    ]
    batch_size: Annotated[Count, typer.Option(help="Triples at once.")] = 256


@dataclass(frozen=True, kw_only=True)
class DisambiguationScoring(Scoring):
    """Rank the candidates of mentions that are given, next to the scores of the linker that found them.

    RUN has an objective kg.entity_linking. CORPUS says which candidate is the right one: `prepare link CORPUS
    --supervise --candidates N` writes it where links are known. Mentions without the right one among their candidates
    are counted (NIL), and no part of the accuracy.

    Example:

      workbench evaluate disambiguation runs/knowbert corpora/wiki-candidates-held-out --stream wiki --task wiki
    """

    stream: Annotated[
        Word | None, typer.Option(help="Of the candidates, where a run links to several graphs; default: the first.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TypingTuning(Tuning):
    """Fine-tune a pretrained run for entity typing of a marked mention. The defaults are those of Open Entity.

    CORPUS holds texts with `mention` and `types`. The transforms that bring in knowledge (entity stream, sentence tree)
    are those of the run's pretraining; the controls no-kg, shuffled-kg and random-entities take it away.

    Examples:

      workbench finetune entity-typing runs/ernie corpora/ufet --types open-entity --output runs/ernie-typing

      workbench finetune entity-typing runs/ernie corpora/ufet --control random-entities -o runs/ernie-typing-random

      workbench finetune entity-typing runs/luke corpora/ufet --read entities

      workbench finetune entity-typing runs/ernie corpora/ufet --types types.txt --groups types.txt
    """

    epochs: Epochs = 10.0
    batch_size: BatchSize = 16
    lr: LearningRate = 2e-5
    types: Annotated[
        Name | None, typer.Option(help="open-entity, a file, or names with commas; default: all types of CORPUS.")
    ] = None
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: each of its three groups has its own loss."),
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer where the positions or the steps need it."),
    ] = None
    marker: Annotated[
        Name | None, typer.Option(help="Text around the mention; default: the first of 。 @ # * | / in the vocabulary.")
    ] = None
    read: Annotated[
        Reading,
        typer.Option(help="The pooler; the first row, [CLS], itself; the marker before the mention; its entity token."),
    ] = "pooled"


@dataclass(frozen=True, kw_only=True)
class TypingScoring(Scoring):
    """Strict accuracy, loose macro and loose micro scores of a typing run.

    CORPUS holds texts with `mention` and `types`.

    Examples:

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --macro ernie

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --control random-entities

      workbench evaluate entity-typing runs/ultra-fine corpora/ufet-dev --rule positive_or_top --groups types.txt
    """

    rule: Annotated[
        Rule, typer.Option(help="positive: logit > 0 (Open Entity); positive_or_top: at least one type (FIGER).")
    ] = "positive"
    macro: Annotated[Macro, typer.Option(help="Macro average: open_type (the data set's), ernie.")] = "open_type"
    gold: Annotated[
        Gold, typer.Option(help="Gold types to be found: all, or those of the run's inventory (Open Entity's nine).")
    ] = "all"
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: macro scores of its three groups, too."),
    ] = None
    probe: Annotated[bool, typer.Option(help="Next to an entity stream: a linear probe on its vectors alone.")] = True


Normalisation = Literal["sum", "mean"]


@dataclass(frozen=True, kw_only=True)
class FactsScoring(Scoring):
    """Rank the object of each fact among all candidates, from a sentence with a slot where the object was.

    RUN has an MLM objective. CORPUS is what `prepare facts` makes of a graph, or texts of one's own: a record has
    `mask_spans` (the object's characters) and, in `meta`, `relation`, `subject` and `object` (ids). Candidates that are
    true too don't compete: those that `meta.known` lists, the object of another sentence of the same subject and
    relation, and with --known every object that these graphs state. Entities of one label are one candidate.

    Examples:

      workbench evaluate facts runs/k-bert corpora/facts-test

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates candidates.json --known corpora/graph

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates candidates.json --control no-kg
    """

    candidates: Annotated[
        Path | None,
        typer.Option(
            help="JSON: relation -> [{id, label}], what an object is ranked among; default: CORPUS/candidates.json."
        ),
    ] = None
    known: Annotated[
        list[Location] | None, typer.Option(help="A graph whose facts are true too (several times: several).")
    ] = None
    task: Annotated[Word | None, typer.Option(help="Whose builder and steps; default: the first that masks.")] = None
    normalisation: Annotated[Normalisation, typer.Option(help="Of a candidate of several tokens.")] = "sum"
    batch_size: Annotated[Count, typer.Option(help="Sentences at once.")] = 128

    def chosen(self) -> dict[str, Any]:
        """The candidates stand by their content among what was read."""
        return {name: value for name, value in super().chosen().items() if name != "candidates"}


@dataclass(frozen=True, kw_only=True)
class LinkScoring(TripleScoring):
    """Rank the tail of each triple among all entities of the graph, given head and relation, and its head likewise.

    Entities that make another known triple don't compete (the filtered setting): those of --graph, of CORPUS, and of
    every --known. Name all splits of your graph. Ranks are realistic, so that equal scores get
    the middle of their places.

    A run that reads a triple as a whole (KG-BERT) scores one candidate after the other: --candidates ranks among
    so many that are drawn, which is easier than among all; the result says so.

    Examples:

      workbench evaluate link-prediction entities.safetensors corpora/codex-test --graph corpora/codex --known \
corpora/codex-valid

      workbench evaluate link-prediction runs/kg-bert corpora/codex-test --graph corpora/codex --known \
corpora/codex-valid --candidates 50
    """

    known: Annotated[
        list[Location] | None, typer.Option(help="A graph whose triples are true too (several times: several).")
    ] = None
    candidates: Annotated[
        Count | None, typer.Option(help="Rank among so many wrong entities, drawn for each question.")
    ] = None
    seed: Annotated[Seed, typer.Option(help="Of what is drawn.")] = 0
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Only triples with an entity that is in no triple of the graph.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class LinkingScoring(MeasuringOptions):
    """Compare a linker with the links of a corpus (`spans`): of given mentions, and with finding the mentions.

    Of given mentions the linker says the entity, or none (NIL); an entity that the linker does not know is NIL, and so
    is a `mention` without a link. With finding them, a link is right where both ends and the entity are. Next to the
    linker stands what each name means most often, whatever the text, and the first candidate of a corpus that has them.
    Of candidates (`prepare link --candidates N --supervise`) the one that is marked is right; mentions without such a
    one are left out, and counted. Texts that were linked with `prepare link --signs` are read without spaces, as they
    were then; --signs declares it for texts with third-party links.

    Examples:

      workbench evaluate linking corpora/wiki-linked --linker linkers/codex-m --min-score 0.3

      workbench evaluate linking corpora/kore50 --linker linkers/titles
    """

    run: Annotated[Path, typer.Option("--linker", help="A linker made by `prepare linker`.", show_default=False)]
    min_score: Annotated[Share, typer.Option(help="Least score of a link (0 to 1), also of a given mention.")] = 0.0
    same: Annotated[
        Path | None, typer.Option(help="Other ids of the same entities: lines CORPUS-ID<tab>LINKER-ID.")
    ] = None
    signs: Annotated[
        bool, typer.Option("--signs", help="Spaces are none: they part the signs of Chinese, as in tagging sets.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class RelationPredictionScoring(Scoring):
    """Rank the relation of each triple among all relations of the graph that RUN was trained on, given head and tail.

    CORPUS is a triples corpus: the held-out triples. Other relations that are known to hold between the two don't
    compete (the filtered setting): those of the run's graph, of CORPUS, and of every --known. Name all splits of your
    graph. Ranks are realistic, so that equal scores get the middle of their places.

    Next to the ranks stand those of the graph's most frequent relations, whatever the two are, and of the relations
    that the head, and the tail, have in the graph.

    Example:

      workbench evaluate relation-prediction runs/kg-bert-relations corpora/codex-test --known corpora/codex-valid
    """

    known: Annotated[
        list[Location] | None, typer.Option(help="A graph whose triples are true too (several times: several).")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RelationTuning(LabelTuning):
    """Fine-tune a pretrained run for relation classification between the head and the tail of a text.

    CORPUS holds texts with `marks` (head and tail) and the label `relation`, as `prepare text` makes of FewRel, TACRED
    and SemEval-2010 task 8, and of the sets published with ERNIE-THU. The transforms that bring in knowledge are those
    of pretraining.

    Examples:

      workbench finetune relations runs/ernie-thu corpora/fewrel-train --epochs 10 --seeds 3

      workbench finetune relations runs/luke corpora/fewrel-train --read entities
    """

    head: Annotated[Name, typer.Option(help="The token on both sides of the head.")] = "#"
    tail: Annotated[Name, typer.Option(help="The token on both sides of the tail.")] = "$"
    read: Annotated[
        Reading,
        typer.Option(help="The pooler; the first row, [CLS], itself; the markers of head and tail; their entities."),
    ] = "pooled"
    negative: Annotated[
        Name | None, typer.Option(help="The class of pairs without a relation: no_relation, NA, Other.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RelationScoring(ClassifyScoring):
    """Accuracy and macro F1 (FewRel); of a run with a --negative class also the scores without it: micro precision,
    recall and F1 (TACRED), and `relations_macro_f1`, a relation's directions taken together (SemEval-2010 task 8).

    Next to them stand the most frequent relation, what the mentions alone reveal (by their words, by their entities),
    and for a run that reads entity vectors a linear probe on those of the two.

    Examples:

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev --control no-kg
    """


@dataclass(frozen=True, kw_only=True)
class SupersenseScoring(Scoring):
    """How often the supersense of a hidden word is one that it may have, next to always the commonest one.

    RUN was pretrained with kg.supersense, CORPUS holds texts. Words are hidden as in pretraining. Of words with a
    single supersense the share is that of right answers; for others a lexicon cannot decide which one is meant.

    Example:

      workbench evaluate supersenses runs/sensebert corpora/text-held-out
    """


@dataclass(frozen=True, kw_only=True)
class TripleClassificationScoring(TripleScoring):
    """Tell true triples from false ones: a triple is true whose score is at least its relation's threshold.

    CORPUS has true triples, --negatives false ones. The thresholds are those that decide --valid and
    --valid-negatives best; a relation that these lack has that of all of them together.

    Example:

      workbench evaluate triple-classification runs/kg-bert corpora/test --negatives corpora/test-false --valid \
corpora/valid --valid-negatives corpora/valid-false --graph corpora/codex
    """

    negatives: Annotated[
        Location, typer.Option(help="A triples corpus of false triples, to be distinguished from CORPUS.")
    ]
    valid: Annotated[Location, typer.Option(help="True triples that the thresholds are chosen on.")]
    valid_negatives: Annotated[Location, typer.Option(help="False triples that the thresholds are chosen on.")]
    alongside: Annotated[
        list[Location] | None,
        typer.Option(help="Vectors to compare with: a .safetensors file (several times: several)."),
    ] = None
