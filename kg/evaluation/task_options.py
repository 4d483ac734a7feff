"""The command-line options of the tasks disambiguation, entity-typing, facts, link-prediction, linking,
relation-prediction, relations, supersenses and triple-classification. This module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kg.metrics.typing_scores import Gold, Macro, Rule
from kg.objectives._reading import Reading
from workbench.core.options.bounds import Count, Location, Name, Place, Question, Seed, Share, Word
from workbench.evaluation.options import BatchSize, Epochs, LearningRate, MeasuringOptions, Predicting, Scoring, Tuning
from workbench.evaluation.task_options import ClassifyScoring, LabelTuning, PairPredicting
from workbench.runs.stored_run import StoredFolder


@dataclass(frozen=True, kw_only=True)
class TripleScoring(Scoring):
    """Options of the evaluations that score triples of a graph."""

    run: Annotated[StoredFolder, typer.Argument(help="The run, or vectors of `prepare vectors`: a .safetensors file.")]
    corpus: Annotated[Place, typer.Argument(help="A triples corpus: the held-out triples.")]
    graph: Annotated[
        Location, typer.Option(help="The training graph: its entities, their texts and the known triples.")
    ]
    batch_size: Annotated[Count, typer.Option(help="Triples at once.")] = 256


@dataclass(frozen=True, kw_only=True)
class DisambiguationScoring(Scoring):
    """Rank the candidates of given mentions, compared with the scores of the linker that found the candidates.

    RUN has an objective kg.entity_linking. CORPUS marks the right candidate: `prepare link CORPUS --supervise
    --candidates N` writes it if the links are known. A mention without the right entity among its candidates is counted
    (NIL) and left out of the accuracy.

    Example:

      workbench evaluate disambiguation runs/knowbert corpora/wiki-candidates-held-out --stream wiki --task wiki
    """

    stream: Annotated[
        Word | None, typer.Option(help="Stream of the candidates if RUN links to several graphs; default: the first.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TypingTuning(Tuning):
    """Fine-tune a pretrained run for entity typing of a marked mention. The defaults are those of Open Entity.

    CORPUS holds texts with `mention` and `types`. The transforms that add knowledge (entity stream, sentence tree) are
    those of the run's pretraining. The controls no-kg, shuffled-kg and random-entities ablate this knowledge.

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
        Name | None,
        typer.Option(help="open-entity, a file, or names separated by commas; default: all types of CORPUS."),
    ] = None
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: each of its three groups has its own loss."),
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer if the positions or the transforms need it."),
    ] = None
    marker: Annotated[
        Name | None, typer.Option(help="Text around the mention; default: the first of 。 @ # * | / in the vocabulary.")
    ] = None
    read: Annotated[
        Reading,
        typer.Option(
            help="The vector that is classified: of the pooler, of [CLS], of the marker, of the entity token."
        ),
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
        Gold, typer.Option(help="Gold types that count: all, or those of the run's inventory (Open Entity's nine).")
    ] = "all"
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: adds the macro scores of its three groups."),
    ] = None
    probe: Annotated[bool, typer.Option(help="For runs with an entity stream: a linear probe on its vectors.")] = True


Normalisation = Literal["sum", "mean"]


@dataclass(frozen=True, kw_only=True)
class FactsScoring(Scoring):
    """Rank the object of each fact among all candidates, from a sentence with a slot where the object was.

    RUN has an MLM objective. CORPUS is written by `prepare facts` from a graph, or holds your own texts. A record has
    `mask_spans` (the object's characters) and, in `meta`, `relation`, `subject` and `object` (ids). Other true
    candidates are left out of the ranking (the filtered setting): those of `meta.known`, the objects of other sentences
    of the same subject and relation, and with --known every object in these graphs. Entities with the same label are
    one candidate.

    Examples:

      workbench evaluate facts runs/k-bert corpora/facts-test

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates candidates.json --known corpora/graph

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates candidates.json --control no-kg
    """

    candidates: Annotated[
        Path | None,
        typer.Option(
            help="JSON: relation -> [{id, label}], the candidates of its objects; default: CORPUS/candidates.json."
        ),
    ] = None
    known: Annotated[list[Location] | None, typer.Option(help="A graph whose facts are also true. Repeatable.")] = None
    frequencies: Annotated[
        Location | None,
        typer.Option(metavar="CORPUS", help="Split the scores by how often this corpus links a fact's subject."),
    ] = None
    task: Annotated[
        Word | None,
        typer.Option(help="The run's task that makes the sequences; default: the first task that masks tokens."),
    ] = None
    normalisation: Annotated[
        Normalisation,
        typer.Option(help="The score of a candidate: the sum or the mean of its tokens' log-probabilities."),
    ] = "sum"
    batch_size: Annotated[Count, typer.Option(help="Sentences at once.")] = 128

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their default. The candidates are left out: their content is an input."""
        return {name: value for name, value in super().chosen().items() if name != "candidates"}


@dataclass(frozen=True, kw_only=True)
class LinkScoring(TripleScoring):
    """Rank the tail of each triple among all entities of the graph, given head and relation, and its head likewise.

    Entities that form another known triple are left out (the filtered setting). Known triples are those of --graph, of
    CORPUS, and of every --known. Name all splits of your graph. Ranks are realistic: equal scores get the mean of
    their ranks.

    A run that reads a triple as a whole (KG-BERT) scores each candidate separately. --candidates ranks among N drawn
    entities, which is easier than among all entities. The result says so.

    Examples:

      workbench evaluate link-prediction entities.safetensors corpora/codex-test --graph corpora/codex --known \
corpora/codex-valid

      workbench evaluate link-prediction runs/kg-bert corpora/codex-test --graph corpora/codex --known \
corpora/codex-valid --candidates 50
    """

    known: Annotated[list[Location] | None, typer.Option(help="A graph whose triples are also true. Repeatable.")] = (
        None
    )
    candidates: Annotated[Count | None, typer.Option(help="Rank among N wrong entities, drawn for each question.")] = (
        None
    )
    seed: Annotated[Seed, typer.Option(help="Seed of the drawn candidates.")] = 0
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Only triples with an entity that is in no triple of the graph.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class LinkingScoring(MeasuringOptions):
    """Compare a linker with the links of a corpus (`spans`): for given mentions, and with mention detection.

    For a given mention the linker predicts the entity, or none (NIL). An entity that the linker does not know is NIL,
    and so is a `mention` without a link. With mention detection a link is right if both ends and the entity are right.
    The baselines are the most frequent entity of each name, and the first candidate if the corpus has candidates. Of
    candidates (`prepare link --candidates N --supervise`) the marked one is right. Mentions without a marked candidate
    are left out and counted. Texts that were linked with `prepare link --signs` are read without spaces, as they were
    then. --signs declares it for texts with third-party links.

    Examples:

      workbench evaluate linking corpora/wiki-linked --linker linkers/codex-m --min-score 0.3

      workbench evaluate linking corpora/kore50 --linker linkers/titles
    """

    run: Annotated[Path, typer.Option("--linker", help="A linker from `prepare linker`.", show_default=False)]
    min_score: Annotated[Share, typer.Option(help="Minimum score of a link (0 to 1), also of a given mention.")] = 0.0
    same: Annotated[
        Path | None, typer.Option(help="File that maps ids of the corpus to the linker's: CORPUS-ID<tab>LINKER-ID.")
    ] = None
    signs: Annotated[
        bool, typer.Option("--signs", help="Ignore spaces: they separate Chinese characters, as in tagging data sets.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class RelationPredictionScoring(Scoring):
    """Rank the relation of each triple among all relations of the graph that RUN was trained on, given head and tail.

    CORPUS is a triples corpus: the held-out triples. Other known relations of the same head and tail are left out (the
    filtered setting). Known triples are those of the run's graph, of CORPUS, and of every --known. Name all splits of
    your graph. Ranks are realistic: equal scores get the mean of their ranks.

    The baselines rank the relations by their frequency in the graph, in the triples of the head, and in the triples of
    the tail.

    Example:

      workbench evaluate relation-prediction runs/kg-bert-relations corpora/codex-test --known corpora/codex-valid
    """

    known: Annotated[list[Location] | None, typer.Option(help="A graph whose triples are also true. Repeatable.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class RelationTuning(LabelTuning):
    """Fine-tune a pretrained run for relation classification between the head and the tail of a text.

    CORPUS holds texts with `marks` (head and tail) and the label `relation`. `prepare text` writes them from FewRel,
    TACRED, SemEval-2010 task 8, and the data sets published with ERNIE-THU. The transforms that add knowledge are those
    of the run's pretraining.

    Examples:

      workbench finetune relations runs/ernie-thu corpora/fewrel-train --epochs 10 --seeds 3

      workbench finetune relations runs/luke corpora/fewrel-train --read entities
    """

    head: Annotated[Name, typer.Option(help="The token on both sides of the head.")] = "#"
    tail: Annotated[Name, typer.Option(help="The token on both sides of the tail.")] = "$"
    read: Annotated[
        Reading,
        typer.Option(help="The vectors that are classified: of the pooler, of [CLS], of the markers, of the entities."),
    ] = "pooled"
    negative: Annotated[
        Name | None, typer.Option(help="The class of pairs without a relation: no_relation, NA, Other.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RelationScoring(ClassifyScoring):
    """Accuracy and macro F1 (FewRel), and scores without the negative class.

    A run with a --negative class also has micro precision, recall and F1 without it (TACRED), and `relations_macro_f1`
    with both directions of a relation as one class (SemEval-2010 task 8).

    The baselines are the most frequent relation, and a prediction from the two mentions without the text around them
    (from their words, from their entities). A run that reads entity vectors is also compared with a linear probe on the
    vectors of the two entities.

    Examples:

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev --control no-kg
    """


@dataclass(frozen=True, kw_only=True)
class SupersenseScoring(Scoring):
    """Share of masked words with an allowed predicted supersense, compared with the most frequent supersense.

    RUN was pretrained with kg.supersense, CORPUS holds texts. Words are masked as in pretraining. For words with a
    single supersense this share is the accuracy. For other words a lexicon cannot decide which supersense is meant.

    Example:

      workbench evaluate supersenses runs/sensebert corpora/text-held-out
    """


@dataclass(frozen=True, kw_only=True)
class TripleClassificationScoring(TripleScoring):
    """Classify triples as true or false: a triple is true if its score is at least the threshold of its relation.

    CORPUS has true triples, --negatives false ones. The thresholds separate --valid from --valid-negatives best. A
    relation without validation triples has the threshold of all validation triples.

    Example:

      workbench evaluate triple-classification runs/kg-bert corpora/test --negatives corpora/test-false --valid \
corpora/valid --valid-negatives corpora/valid-false --graph corpora/codex
    """

    negatives: Annotated[
        Place, typer.Option(help="A triples corpus of false triples, to be distinguished from those of CORPUS.")
    ]
    valid: Annotated[Place, typer.Option(help="True triples for the choice of the thresholds.")]
    valid_negatives: Annotated[Place, typer.Option(help="False triples for the choice of the thresholds.")]
    alongside: Annotated[
        list[Location] | None,
        typer.Option(help="Vectors to compare with: a .safetensors file. Repeatable."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TypingPredicting(Predicting):
    """The types of a mention in each text, with the probability of every type.

    The mention is --mention, whose first place in the text is read, or the `mention` of a record.

    Example:

      workbench predict entity-typing runs/ernie-typing "Oslo lies by a fjord." --mention Oslo
    """

    mention: Annotated[Question | None, typer.Option(help="The words that are typed, in each text.")] = None
    rule: Annotated[
        Rule, typer.Option(help="positive: logit > 0 (Open Entity); positive_or_top: at least one type (FIGER).")
    ] = "positive"


@dataclass(frozen=True, kw_only=True)
class RelationPredicting(PairPredicting):
    """The relation between two mentions of each text, with the probability of every relation.

    The mentions are --head and --tail, whose first places in the text are read, or the `marks` of a record.

    Example:

      workbench predict relations runs/ernie-fewrel "Oslo lies in Norway." --head Oslo --tail Norway
    """

    head: Annotated[Question | None, typer.Option(help="The words of the first mention.")] = None
    tail: Annotated[Question | None, typer.Option(help="The words of the second mention.")] = None


@dataclass(frozen=True, kw_only=True)
class LinkPredicting(Predicting):
    """The entities that complete each triple, the most likely first.

    INPUT is a question of three parts, separated by commas or tabs, one of which is `?`: the id of an entity, that of a
    relation, that of an entity. A text file has one in each line. RUN scores triples, or is a file of vectors.
    `known` says that the graph states the triple.

    Examples:

      workbench predict link-prediction entities.safetensors "Q585, P17, ?" --graph corpora/codex

      workbench predict link-prediction runs/kg-bert questions.tsv --graph corpora/codex --best 3
    """

    graph: Annotated[Location, typer.Option(help="The graph whose entities are ranked.")]
    best: Annotated[Count, typer.Option(help="Number of entities for each question.")] = 10
