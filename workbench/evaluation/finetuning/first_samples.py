"""Checks that a downstream task fits the network that it fine-tunes, on its first samples and before the training.

Another builder lacks the inputs that pretraining's builder added. Without these checks a stream that nothing fills, or
knowledge that nothing reads or that has no room, would be lost without an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set

import torch
from torch import Tensor, nn

from workbench.components.building import find, options_of
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.passes import sample_pass
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.checks import warn_no_room
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import GlobalBatchHead, LossOutput
from workbench.pretraining.task import Task, objective_name
from workbench.pretraining.window_lengths import window_of
from workbench.recipe.spec import Recipe, TaskSpec
from workbench.sequences.batch import MicroBatch
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
SAMPLES = 32


def check_tuning(
    base: Recipe,
    recipe: Recipe,
    *,
    sees: Iterable[str],
    without: Iterable[str],
    asks: Iterable[str] = (),
) -> None:
    """
    Args:
        base: the pretrained run's recipe.
        recipe: the one that fine-tunes it.
        sees: streams that the loss of the task's first objective must depend on.
        without: streams of the network that the user said stay empty.
        asks: fields of samples that hold the task's answers.

    Raises:
        WorkbenchError: a transform reads the answers, pretraining's builder read linked entities and the new one
            doesn't,
            nothing fills a stream of the network that pretraining's objectives did not make, or the loss does not
            depend on a stream that it must.
    """
    task = next(iter(tasks_of(recipe, _tokenizer(recipe)).values()))  # overrides may add others
    _check_unlabelled(task, {*asks})
    samples = _first_samples(task)
    sequences = task.sequences(samples)
    warn_no_room(task, len(samples))
    filled = _streams(sequences)
    if recipe.control is None:
        _check_builder(base, _first(recipe))
        _check_streams(base, recipe, filled | set(without) | _streams_of_objectives(base))
    seen = filled.intersection(sees)
    if seen:
        _check_sees(recipe, samples[:2], sorted(seen))
    for stream in {transform.entity_stream for transform in task.transforms} & filled:
        _warn_unread(recipe, task, samples, stream)


def depends(model: PretrainingModel, micro: MicroBatch, objective: str, stream: str) -> bool:
    """Whether the loss of an objective is computed from the embeddings of a stream, with whatever weights."""
    leaves: list[Tensor] = []

    def cut(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    hook = model.network(model.places[objective].network).embeddings[stream].register_forward_hook(cut)
    try:
        with torch.enable_grad():
            found = model(micro, [objective])[objective]
    finally:
        hook.remove()
    assert isinstance(found, LossOutput)
    return any(one is not None for one in torch.autograd.grad(found.loss, leaves, allow_unused=True))


def _check_builder(base: Recipe, spec: TaskSpec) -> None:
    tuned = find("builder", _name(spec))
    for task in base.tasks.values():
        if find("builder", _name(task)).reads_spans and not tuned.reads_spans:
            raise WorkbenchError(
                f"the run's builder {_name(task)!r} adds knowledge of the entities linked to the text, and "
                f"{_name(spec)!r} doesn't: fine-tuning would lose it. Add it with a transform, which fine-tuning "
                f"keeps, or "
                f"name a builder that adds it (sequence.builder=..., for example one derived from {_name(spec)!r})"
            )


def _check_streams(base: Recipe, recipe: Recipe, filled: set[str]) -> None:
    """Without a control, every stream of the network must be filled, or named in --without."""
    streams = next(iter(recipe.networks.values())).streams
    empty = streams.keys() - filled
    for lost in sorted(empty - _left_empty(base, empty) if empty else empty):
        before = ", ".join(dict.fromkeys(_name(task) for task in base.tasks.values()))
        raise WorkbenchError(
            f"the network reads the stream {lost!r}, and nothing fills it in fine-tuning: the builder "
            f"{_name(_first(recipe))!r} and its transforms don't (pretraining's builder: {before}). Name a builder or "
            f"transforms that fill it (tasks.{next(iter(recipe.tasks))}.sequence...), or pass --without {lost}"
        )


def _left_empty(base: Recipe, streams: Set[str]) -> set[str]:
    """Those of the streams that the run, which is fine-tuned itself, did not fill either. They are reported again.
    Empty if the run's corpora are not available."""
    try:
        tasks = tasks_of(base, _tokenizer(base)).values()
        return set(streams) - {name for task in tasks for name in _streams(task.sequences(_first_samples(task)))}
    except WorkbenchError:
        return set()


def _streams_of_objectives(base: Recipe) -> set[str]:
    """The streams that the objectives of a recipe add themselves. Other objectives don't need them."""
    made: set[str] = set()
    for spec in (spec for task in base.tasks.values() for spec in task.objectives):
        objective = find("objective", str(spec["objective"]))
        stated = {**options_of(objective).defaults, **spec}
        made |= {str(stated[option]) for option in objective.makes}
    return made


def _check_unlabelled(task: Task, asked: set[str]) -> None:
    """Raises WorkbenchError if a transform puts the answers of the task into the sequences."""
    for number, transform in enumerate(task.transforms):
        for answers in sorted(asked.intersection(getattr(transform, "reads", ()))):
            raise WorkbenchError(
                f"tasks.{task.name}.sequence.transforms[{number}] reads {answers!r}, which this task asks for: the "
                f"network "
                f"would read the answers. Remove it (tasks.{task.name}.sequence.transforms), or pass a --control that "
                f"it supports"
            )


def _first_samples(task: Task) -> list[Sample]:
    corpora = [Corpus.open(place) for place in task.spec.corpora]
    window = window_of(task, corpora)
    return next(sample_pass(corpora, size=SAMPLES, unit=task.builder.unit, window=window, limit=SAMPLES))


def _streams(sequences: list[Sequence]) -> set[str]:
    return {name for sequence in sequences for name in sequence.streams}


def _check_sees(recipe: Recipe, samples: list[Sample], streams: list[str]) -> None:
    tokenizer = _tokenizer(recipe)
    tasks = tasks_of(recipe, tokenizer)
    model = make_model(recipe, tasks, tokenizer).eval()
    task = next(iter(tasks.values()))
    micro, objective = task.evaluating().micro_batch(samples, ()), objective_name(task.spec.objectives[0])
    for stream in streams:
        if not depends(model, micro, objective, stream):
            raise WorkbenchError(
                f"the objective {objective!r} would be trained blind: no layer of the run's network lets the rows that "
                f"its head reads see {stream!r}. Take a run whose layers mix the streams (joint, co, cross), or a head "
                f"that reads {stream!r} itself (finetune vqa --read fused); to train blind on purpose, pass --control"
            )


def _warn_unread(recipe: Recipe, task: Task, samples: list[Sample], stream: str) -> None:
    """Warn where no row that the head reads depends on the entities of a stream, with whatever weights.

    Their embeddings are not numbers here (NaN), and so is the loss of a head within their reach.
    """
    placed, tokenizer, found = task.objectives[0], _tokenizer(recipe), list[Tensor]()
    model = make_model(recipe, tasks_of(recipe, tokenizer), tokenizer).eval()
    embeddings = model.network(placed.network).embeddings
    if isinstance(model.heads[placed.name], GlobalBatchHead) or stream not in embeddings:
        return
    try:
        micro = task.evaluating().micro_batch(samples, ())
    except WorkbenchError:  # the run checks its corpora first, and says more
        return
    if not micro.counts.get(placed.name):
        return

    def spoil(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        found.append(output.any(-1, keepdim=True))  # the zero vector is no entity
        return output.masked_fill(found[-1], torch.nan)

    hook = embeddings[stream].register_forward_hook(spoil)
    try:
        with torch.inference_mode():
            output = model(micro, [placed.name])[placed.name]
    finally:
        hook.remove()
    assert isinstance(output, LossOutput)
    if any(map(torch.any, found)) and not bool(output.loss.isnan()):
        logger.warning(
            "tasks.%s: no row that the objective %s reads depends on the stream %s, so its entities change no "
            "prediction. Hang them on the rows that are read (kg.entity_stream: `link: marker`, finetune: `--read "
            "markers`), or put a layer behind the last one that fuses them",
            *(task.name, placed.name, stream),
        )


def _tokenizer(recipe: Recipe) -> Tokenizer | None:
    return None if recipe.tokenizer is None else Tokenizer.load(recipe.tokenizer)


def _first(recipe: Recipe) -> TaskSpec:
    return next(iter(recipe.tasks.values()))


def _name(task: TaskSpec) -> str:
    builder = task.sequence.builder
    return builder if isinstance(builder, str) else str(builder["builder"])
