"""`workbench finetune entity-typing` and `workbench evaluate entity-typing`.

Zhang et al., "ERNIE", ACL 2019 (arXiv 1905.07129): the mention is marked in its text and its types are read off [CLS];
Open Entity is fine-tuned with lr 2e-5, batches of 16, 10 epochs (the release's readme).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from kg.evaluation.inventory import read_inventory, records
from kg.evaluation.probe import Typed, fit_best
from kg.evaluation.typing_metrics import Macro, Rule, TypingScores, predicted_types, typing_scores
from kg.objectives.types import Types, TypesHead
from kg.sequences.steps.entity_stream import EntityStream
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.finetuning import BatchSize, Epochs, LearningRate, Tuning
from workbench.evaluation.opening import Evaluated, open_run, result_path
from workbench.evaluation.passes import forward_pass, sample_pass
from workbench.evaluation.result import Result, corpus_input
from workbench.options.bounds import Count, Location, Name
from workbench.options.command import Trust, command
from workbench.recipe.spec import Control, SequenceSpec, Spec
from workbench.runs.folder import TOKENIZER, read_recipe
from workbench.sequences.builders.mention import Mention
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer

TASK = "entity-typing"
LENGTH = 128
MARKERS = ("。", "@", "#", "*", "|", "/")


@dataclass(frozen=True, kw_only=True)
class TypingTuning(Tuning):
    """Defaults of Open Entity."""

    epochs: Epochs = 10.0
    batch_size: BatchSize = 16
    lr: LearningRate = 2e-5


@command
def finetune(
    tuning: TypingTuning,
    types: Annotated[
        Name | None, typer.Option(help="open-entity, a file, or names with commas; default: all types of CORPUS.")
    ] = None,
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of the text; default: 128, or the model's positions if it has fewer.")
    ] = None,
    marker: Annotated[
        Name | None, typer.Option(help="Text around the mention; default: the first of 。 @ # * | / in the vocabulary.")
    ] = None,
    pooled: Annotated[bool, typer.Option(help="Read the pooler, or else [CLS] itself.")] = True,
) -> None:
    """Fine-tune a pretrained run to tell the types of a marked mention.

    CORPUS holds texts with `mention` and `types`. The steps that bring in knowledge (entity stream, sentence tree) are
    those of the run's pretraining; the controls no-kg, shuffled-kg and random-entities take it away.

    Examples:

      workbench finetune entity-typing runs/ernie corpora/ufet --types open-entity --output runs/ernie-typing

      workbench finetune entity-typing runs/ernie corpora/ufet --control random-entities -o runs/ernie-typing-random
    """
    inventory = read_inventory(types, Corpus.open(tuning.corpus))
    builder = {
        "builder": "mention",
        "max_length": max_length or _length(tuning.run),
        "marker": marker or _known_marker(tuning.run),
        "types": inventory,
    }
    recipe = tuning.recipe(
        TASK,
        SequenceSpec(builder, steps=_knowledge_steps(tuning.run)),
        {"objective": "kg.types", "num_types": len(inventory), "pooled": pooled},
        poolers=("text",) if pooled else (),
    )
    tuning.train(recipe)


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run that `finetune entity-typing` made.")],
    corpus: Annotated[Location, typer.Argument(help="Test set: texts with `mention` and `types`.")],
    rule: Annotated[
        Rule, typer.Option(help="positive: logit > 0 (Open Entity); positive_or_top: at least one type (FIGER).")
    ] = "positive",
    macro: Annotated[Macro, typer.Option(help="Macro average: open_type (the data set's), ernie.")] = "open_type",
    control: Annotated[
        Control | None, typer.Option(help="no-kg, shuffled-kg or random-entities, at test time.")
    ] = None,
    probe: Annotated[bool, typer.Option(help="Beside an entity stream: a linear probe on its vectors alone.")] = True,
    batch_size: Annotated[Count, typer.Option(help="Mentions at once.")] = 64,
    limit: Annotated[Count | None, typer.Option(help="Only the first mentions.")] = None,
    trust: Trust = False,
) -> None:
    """Strict accuracy, loose macro and loose micro scores of a typing run.

    Examples:

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --macro ernie

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --control random-entities
    """
    opened = Corpus.open(corpus)
    wanted = f"fine-tune it first: workbench finetune {TASK} {run} TRAINING-SET"
    evaluated = open_run(run, Types, wanted, control=control, trust=trust)
    evaluated.check_linked(opened)
    result = evaluate_types(evaluated, opened, rule, macro, batch_size=batch_size, limit=limit, probe=probe)
    result.control = control
    result.inputs = {"checkpoint": evaluated.checkpoint, "corpus": corpus_input(opened)}
    result.write(result_path(run, TASK, opened.name, control))
    result.show()


def evaluate_types(
    run: Evaluated,
    corpus: Corpus,
    rule: Rule = "positive",
    macro: Macro = "open_type",
    *,
    batch_size: int = 64,
    limit: int | None = None,
    probe: bool = True,
) -> Result:
    """The scores on a corpus, beside a linear probe on the entity vectors where the run has an entity stream.

    Raises:
        WorkbenchError: the corpus has no typed mentions.
    """
    names = _types(run)
    run.task.builder.take_dropped()
    found = _predictions(run, corpus, batch_size, limit)
    chosen = predicted_types(found.logits, rule)
    scores = typing_scores(chosen, found.gold, macro)
    outside = run.task.builder.take_dropped().get("type outside the inventory", 0)
    counts = {"mentions": scores.examples, "without prediction": scores.without_prediction, "types": len(names)}
    result = Result(
        task=TASK,
        numbers=numbers(scores),
        counts=counts | ({"gold types outside the inventory": outside} if outside else {}),
        inputs={},
        variant=f"rule {rule}, macro {macro}",
        examples=_examples(found, chosen, names),
    )
    entity = next((step for step in run.task.steps if isinstance(step, EntityStream)), None)
    if probe and entity is not None and entity.linked:
        result.baselines["linear probe on the entity vectors"] = _probed(run, entity, found, rule, macro)
    return result


def numbers(scores: TypingScores) -> dict[str, float]:
    """The scores of a result, by the names that metrics have (`loose_micro/f1`)."""
    found = {"strict_accuracy": scores.strict_accuracy}
    for name, pair in (("loose_macro", scores.loose_macro), ("loose_micro", scores.loose_micro)):
        found |= {f"{name}/precision": pair.precision, f"{name}/recall": pair.recall, f"{name}/f1": pair.f1}
    return found


@dataclass
class Predictions:
    """Samples with their `logits` and `gold` types [mentions, types]."""

    samples: list[Sample]
    logits: np.ndarray
    gold: np.ndarray


def _predictions(run: Evaluated, corpus: Corpus, batch_size: int, limit: int | None) -> Predictions:
    head = run.head
    assert isinstance(head, TypesHead)
    samples, logits, gold = [], [], []
    passed = sample_pass([corpus], size=batch_size, unit=None, limit=limit)
    for forward in forward_pass(run.network, run.task.sequences, passed):
        with torch.inference_mode():
            logits.append(head.logits(run.network, forward.states, forward.batch).float().cpu().numpy())
        gold.append(np.stack([sequence.meta["labels"] for sequence in forward.sequences]) > 0)
        samples += forward.samples
    return Predictions(samples, np.concatenate(logits), np.concatenate(gold))


def _probed(run: Evaluated, entity: EntityStream, test: Predictions, rule: Rule, macro: Macro) -> dict[str, float]:
    """The probe's scores, fitted to the run's own training set; its vectors are those the model gets."""
    names = {name: i for i, name in enumerate(_types(run))}
    trained = [sample for place in run.task.spec.corpora for sample in records(Corpus.open(place))]
    gold = np.zeros((len(trained), len(names)), bool)
    for row, sample in zip(gold, trained, strict=True):
        row[[names[name] for name in sample.get("types", ()) if name in names]] = True
    train = _typed(run, entity, trained, gold)
    fitted = fit_best(train, rule)
    held = _typed(run, entity, test.samples, test.gold)
    return numbers(typing_scores(predicted_types(fitted.logits(held.vectors), rule), test.gold, macro))


@torch.inference_mode()
def _typed(run: Evaluated, entity: EntityStream, samples: list[Sample], gold: np.ndarray) -> Typed:
    """The vector of the entity that is linked to exactly the mention."""
    entities = [mentioned(sample) for sample in samples]
    rows = torch.tensor([entity.rows.get(name, -1) + 1 for name in entities])
    device = next(run.network.parameters()).device
    vectors = run.network.embeddings["entity"]({"entity_ids": rows.to(device)}).float().cpu().numpy()
    return Typed(entities, vectors, gold)


def mentioned(sample: Sample) -> str:
    """The id of the entity that is linked to the sample's mention; empty where there is none."""
    place = tuple(sample["mention"])
    return next((str(span[2]) for span in sample.get("spans", ()) if tuple(span[:2]) == place), "")


def _types(run: Evaluated) -> list[str]:
    builder = run.task.builder
    if not isinstance(builder, Mention) or builder.types is None:
        raise WorkbenchError(f"{run.folder}: the typing task needs the builder `mention` with its inventory `types`")
    return list(builder.types)


def _knowledge_steps(run: Path) -> list[Spec]:
    """The steps of the first task of the run that has any."""
    tasks = read_recipe(run).tasks.values()
    return next((list(task.sequence.steps) for task in tasks if task.sequence.steps), [])


def _length(run: Path) -> int:
    """The tokens of a text: `LENGTH`, or as many as the run's network has positions."""
    streams = [network.streams.get("text", {}) for network in read_recipe(run).networks.values()]
    return min([LENGTH, *(text["max_positions"] for text in streams if text.get("max_positions"))])


def _known_marker(run: Path) -> str:
    """The first usual marker that is a token of the run's vocabulary."""
    if not (run / TOKENIZER).is_file():
        raise WorkbenchError(f"{run} has no tokenizer; entity typing needs a run on text")
    tokenizer = Tokenizer.load(run / TOKENIZER)
    for marker in MARKERS:
        ids = tokenizer.encode(marker).ids
        if len(ids) == 1 and not (tokenizer.has("unk") and ids[0] == tokenizer.id("unk")):
            return marker
    raise WorkbenchError(f"none of {' '.join(MARKERS)} is in the vocabulary of {run}; choose a token with --marker")


def _examples(found: Predictions, chosen: np.ndarray, names: list[str], count: int = 12) -> list[dict[str, Any]]:
    shown = []
    for sample, row in list(zip(found.samples, chosen, strict=True))[:count]:
        predicted = [names[i] for i in np.flatnonzero(row)]
        gold = [name for name in sample.get("types", ()) if name in names]
        shown.append({"text": sample["text"], "mention": sample["mention"], "types": gold, "predicted": predicted})
    return shown
