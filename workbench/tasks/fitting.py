"""Whether the parts of a recipe fit each other and its data, found before the first step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.models.network import Network
from workbench.parts.build_context import named
from workbench.parts.building import find, options_of, short_names
from workbench.sequences.missing import how_to_prepare
from workbench.sequences.protocols import Policy
from workbench.sequences.segments import splits_at_sentence
from workbench.tasks.objective import Objective
from workbench.tasks.root import Root
from workbench.tasks.task import DEFAULT_NETWORK, Task, TaskObjective
from workbench.tasks.windows import texts_within

logger = logging.getLogger(__name__)


def check_fit(tasks: Iterable[Task], root: Root) -> None:
    """Sequences must fit the networks that read them; every task is told how far positions, ... may count.

    Raises:
        WorkbenchError: a sequence may be longer than the network has positions, or the images' patches or grid are not
            those of the embedding, or sequences have more pictures than it tells apart, or a step numbers entities by
            another file than their embedding.
    """
    for task in tasks:
        for name in dict.fromkeys(placed.network for placed in task.objectives):
            place = "model" if list(root.networks) == [DEFAULT_NETWORK] else f"model.{name}"
            _check_positions(task, root.network(name), place)
            _check_memory(task, root.network(name), place)
            _check_images(task, root.network(name), place)
            _check_entities(task, root.network(name), place)


def _check_positions(task: Task, network: Network, place: str) -> None:
    longest = getattr(task.builder, "max_length", 0)
    for stream, embedding in network.embeddings.items():
        positions = getattr(embedding, "max_positions", None) or 0
        if stream == "text" and 0 < positions < longest:  # the stream that max_length is of
            raise WorkbenchError(
                f"tasks.{task.name}.sequence.max_length = {longest} is more than the {positions} positions of the "
                f"network ({place}.streams.text.max_positions): shorten max_length or enlarge max_positions"
            )
        limits = task.limits.setdefault(stream, {})
        for name, limit in {"position_ids": positions, **getattr(embedding, "limits", {})}.items():
            if limit:
                limits[name] = min(limit, limits.get(name, limit))


def _check_memory(task: Task, network: Network, place: str) -> None:
    """Rows of the text before would have the positions of the text's own, if these are looked up in a table."""
    if not network.memory or task.spec.order != "continuous":
        return
    for name, embedding in network.embeddings.items():
        if getattr(embedding, "max_positions", None):
            raise WorkbenchError(
                f"{place}.memory = {network.memory}: what is remembered stands before position 0, where the table of "
                f"{place}.streams.{name} has none; set its max_positions to null, and give the layers relative "
                "positions (rotary, or a relation as relative or alibi)"
            )


def tell_unused_memory(tasks: Iterable[Task], root: Root) -> None:
    """Warn where texts are read on and nothing remembers them, or a network is to remember and none are."""
    continuous = [task.name for task in tasks if task.spec.order == "continuous"]
    remembering = [name for name in root.networks if root.network(name).memory]
    if continuous and not remembering:
        logger.warning(
            "tasks.%s: order: continuous, but no network has a `memory`: it changes the order alone", *continuous[:1]
        )
    if remembering and not continuous:
        logger.warning("network %s: its memory stays empty, as no task has order: continuous", remembering[0])


def _check_images(task: Task, network: Network, place: str) -> None:
    """What an image part says of its rows (`shape`: patch, grid, size), its embedding must say too; as many pictures
    as a sequence has it must tell apart (`pictures`)."""
    image = getattr(getattr(task.builder, "image", None), "part", None)
    given: Mapping[str, int] = getattr(image, "shape", {})
    taken: Mapping[str, int] = getattr(_embedding(network, "image"), "shape", {})
    for name in given.keys() & taken.keys():
        if given[name] != taken[name]:
            raise WorkbenchError(
                f"tasks.{task.name}.sequence.image: {name} = {given[name]}, but {place}.streams.image says "
                f"{name} = {taken[name]} (found {_listed(given)}, expected {_listed(taken)}); let them agree"
            )
    wanted = getattr(getattr(task.builder, "image", None), "pictures", 1)
    apart = getattr(_embedding(network, "image"), "pictures", 1)
    if image is not None and wanted > apart:
        raise WorkbenchError(
            f"tasks.{task.name}.sequence.media names {wanted} pictures, and the embedding {place}.streams.image tells "
            f"{apart} apart; give it pictures: {wanted} ({', '.join(_of_several())} take it)"
        )


def _of_several() -> list[str]:
    """The embeddings that tell pictures apart."""
    return [name for name in short_names("embedding") if "pictures" in options_of(find("embedding", name)).names]


def _check_entities(task: Task, network: Network, place: str) -> None:
    """Where a step and an embedding go by other files, every mention would get the vector of another entity."""
    for step in task.steps:
        embedding: Any = None if step.entity_stream is None else _embedding(network, step.entity_stream)
        given = step.known_entities()
        if embedding is None or given is None:
            continue
        if not hasattr(embedding, "known_entities"):
            logger.warning(
                "%s numbers the entities of %s, and the embedding %s.streams.%s does not say which entities its rows "
                "are (`known_entities`): whether they are the same, in the same order, was not checked",
                *(named(step), given.place, place, step.entity_stream),
            )
            continue
        taken = embedding.known_entities()
        if taken is not None and taken.space and given.space and not taken.space.same(given.space):
            raise WorkbenchError(
                f"{named(step)} numbers the entities of the graph {given.space}, but the embedding {place}.streams."
                f"{step.entity_stream} has vectors of those of {taken.space}: the ids may be alike, the entities are "
                "others. Name vectors of one graph in both"
            )
        if taken is not None and not taken.same(given):
            raise WorkbenchError(
                f"{named(step)} numbers the entities of {given.place}, but the embedding {place}.streams."
                f"{step.entity_stream} has the rows of {taken.place}, which are others, or in another order: each "
                "mention would get the vector of another entity. Name one file in both"
            )


def _embedding(network: Network, stream: str) -> nn.Module | None:
    return dict(network.embeddings.items()).get(stream)


def _listed(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in shape.items())


def check_fields(tasks: Iterable[Task]) -> None:
    """What the parts of a task read of every sample must be in its corpora.

    Raises:
        WorkbenchError: a corpus has no record with a field that the builder or a step reads (`reads`), or no corpus has
            one that an objective (`Objective.reads`) or its policy goes by, or a text of two sentences for one that
            cuts texts in two (`Objective.splits`).
    """
    for task in tasks:
        corpora = [Corpus.open(place) for place in task.spec.corpora]
        for field in getattr(task.builder, "reads", ()):
            for corpus in corpora:
                _check_field(f"tasks.{task.name}.sequence.builder", field, [corpus])
        for i, step in enumerate(task.steps):
            for field in {*getattr(step, "reads", ())} - {*getattr(task.builder, "gives", ())}:
                for corpus in corpora:
                    _check_field(f"tasks.{task.name}.sequence.steps[{i}]", field, [corpus])
        for placed in task.objectives:
            for reader, part in readers_of(placed):
                for field in part.reads:
                    _check_field(f"tasks.{task.name}: {reader}", field, corpora)
            if getattr(placed.objective, "splits", False):
                _check_sentences(f"tasks.{task.name}: the objective {placed.name}", corpora)


def readers_of(placed: TaskObjective) -> list[tuple[str, Objective | Policy]]:
    """An objective and its policy, each with what it is called."""
    objective, name = placed.objective, f"the objective {placed.name}"
    policy = objective.policy
    return [(name, objective), *([] if policy is None else [(f"{name}, by its policy,", policy)])]


def _check_field(reader: str, field: str, corpora: Sequence[Corpus]) -> None:
    if any(corpus.manifest.fields.get(field) for corpus in corpora):
        return
    found = "; ".join(f"{corpus.place} (it has {', '.join(corpus.manifest.fields)})" for corpus in corpora)
    raise WorkbenchError(
        f"{reader} reads {field!r}, which no record has in {found}. Prepare it: {how_to_prepare(field)}"
    )


def _check_sentences(reader: str, corpora: Sequence[Corpus]) -> None:
    texts = [corpus for corpus in corpora if corpus.kind == "text"]
    if any(corpus.manifest.fields.get("second") for corpus in texts):
        return
    if texts and not any(splits_at_sentence(text) for corpus in texts for text in texts_within(corpus)):
        raise WorkbenchError(
            f"{reader} needs texts of two sentences or more, and none of those looked at in "
            f"{', '.join(corpus.place for corpus in texts)} has a second one in its 'text'. Prepare records of whole "
            f"documents, or pairs: {how_to_prepare('second')}"
        )
