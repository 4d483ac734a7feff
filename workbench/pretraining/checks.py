"""Checks that tasks, networks and corpora of a recipe fit each other, made before the first step.

`check_fit`     sequences and the networks that read them: positions, memory, images, entities
`check_fields`  the fields that builders, transforms, objectives and maskings read, and those of the corpora
`check_links`   components that read linked entities, and whether the corpora have any that they know
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import nn

from workbench.components.build_context import named
from workbench.components.building import find, options_of, short_names
from workbench.components.controls import supports_control
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import linked_entities
from workbench.corpora.schema.schema import fields_of, links_among
from workbench.corpora.shards.record import BadRecordError
from workbench.models.layers.joint import JointLayer
from workbench.models.network import Network
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import DEFAULT_NETWORK, Task, TaskObjective
from workbench.pretraining.window_lengths import texts_within
from workbench.sequences.entities import spaces_in
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.protocols import Masking, Transform
from workbench.sequences.segments import splits_at_sentence
from workbench.sequences.transforms.before import BeforeTransform

logger = logging.getLogger(__name__)


def check_fit(tasks: Iterable[Task], root: PretrainingModel) -> None:
    """Check that sequences fit the networks that read them. Every task gets the limits of its positions and other
    fields.

    Raises:
        WorkbenchError: a sequence may be longer than the network has positions, or the images' patches or grid are not
            those of the embedding, or sequences have more images than it distinguishes, or a transform numbers entities
            by another file than their embedding.
    """
    for task in tasks:
        for name in dict.fromkeys(placed.network for placed in task.objectives):
            place = "model" if list(root.networks) == [DEFAULT_NETWORK] else f"model.{name}"
            _check_positions(task, root.network(name), place)
            _check_memory(task, root.network(name), place)
            _check_images(task, root.network(name), place)
            _check_entities(task, root.network(name), place)
            _warn_equal_positions(task, root.network(name), place)


def _check_positions(task: Task, network: Network, place: str) -> None:
    longest = getattr(task.builder, "max_length", 0)
    for stream, embedding in network.embeddings.items():
        positions = getattr(embedding, "max_positions", None) or 0
        if stream == "text" and 0 < positions < longest:  # max_length is that of the text stream
            raise WorkbenchError(
                f"tasks.{task.name}.sequence.max_length = {longest} is more than the {positions} positions of the "
                f"network ({place}.streams.text.max_positions): shorten max_length or enlarge max_positions"
            )
        limits = task.limits.setdefault(stream, {})
        for name, limit in {"position_ids": positions, **getattr(embedding, "limits", {})}.items():
            if limit:
                limits[name] = min(limit, limits.get(name, limit))


def _check_memory(task: Task, network: Network, place: str) -> None:
    """Check the positions of a network with memory. In a table, rows of earlier texts would share those of the text."""
    if not network.memory or task.spec.order != "continuous":
        return
    for name, embedding in network.embeddings.items():
        if getattr(embedding, "max_positions", None):
            raise WorkbenchError(
                f"{place}.memory = {network.memory}: remembered rows are before position 0, where the table of "
                f"{place}.streams.{name} has no row. Set its max_positions to null, and give the layers relative "
                "positions (rotary, or a score bias such as relative or alibi)"
            )


def _warn_equal_positions(task: Task, network: Network, place: str) -> None:
    """Warn of streams that joint layers with rotary positions read as one sequence, where each counts from 0."""
    image: Any = getattr(task.builder, "image", None)
    made = {"text", *(getattr(transform, "stream", "") for transform in task.transforms)}
    made |= {image.stream} if image is not None and image.part is not None else set()
    orders = [{*each.streams} for each in task.transforms if isinstance(each, BeforeTransform)]
    layers: list[Any] = list(network.layers)
    for number, layer in enumerate(layers):
        joined = [name for name in layer.streams if name in made] if isinstance(layer, JointLayer) else []
        if len(joined) < 2 or layer.attention.attention.rotary is None or any(o >= {*joined} for o in orders):
            continue
        logger.warning(
            "tasks.%s: %s.layers[%d] reads the streams %s as one sequence with rotary positions, and each of them "
            "counts its positions from 0; put them one after another: the transform before with streams: [%s]",
            *(task.name, place, number, " and ".join(joined), ", ".join([*(n for n in joined if n != "text"), "text"])),
        )
        return


def warn_unused_memory(tasks: Iterable[Task], root: PretrainingModel) -> None:
    """Warn where texts are read on and no network has a memory, or a network has one and no texts are read on."""
    continuous = [task.name for task in tasks if task.spec.order == "continuous"]
    remembering = [name for name in root.networks if root.network(name).memory]
    if continuous and not remembering:
        logger.warning(
            "tasks.%s: order: continuous, but no network has a `memory`: it only changes the order", *continuous[:1]
        )
    if remembering and not continuous:
        logger.warning("network %s: its memory stays empty, as no task has order: continuous", remembering[0])


def _check_images(task: Task, network: Network, place: str) -> None:
    """Check that an image processor and its embedding agree on the rows (`shape`: patch, grid, size), and that the
    embedding distinguishes as many images as a sequence has (`images`)."""
    image = getattr(getattr(task.builder, "image", None), "part", None)
    given: Mapping[str, int] = getattr(image, "shape", {})
    taken: Mapping[str, int] = getattr(_embedding(network, "image"), "shape", {})
    for name in given.keys() & taken.keys():
        if given[name] != taken[name]:
            raise WorkbenchError(
                f"tasks.{task.name}.sequence.image_processor: {name} = {given[name]}, but {place}.streams.image has "
                f"{name} = {taken[name]} (found {_listed(given)}, expected {_listed(taken)}); use the same values"
            )
    wanted = getattr(getattr(task.builder, "image", None), "images", 1)
    apart = getattr(_embedding(network, "image"), "images", 1)
    if image is not None and wanted > apart:
        raise WorkbenchError(
            f"tasks.{task.name}.sequence.media names {wanted} images, and the embedding {place}.streams.image "
            f"distinguishes {apart}; set images: {wanted} ({', '.join(_of_several())} have this option)"
        )


def _of_several() -> list[str]:
    """The embeddings that distinguish several images."""
    return [name for name in short_names("embedding") if "images" in options_of(find("embedding", name)).names]


def _check_entities(task: Task, network: Network, place: str) -> None:
    """Check that a transform and an embedding use the same file. Otherwise a mention would get another entity's
    vector."""
    for transform in task.transforms:
        embedding: Any = None if transform.entity_stream is None else _embedding(network, transform.entity_stream)
        given = transform.known_entities()
        if embedding is None or given is None:
            continue
        if not hasattr(embedding, "known_entities"):
            logger.warning(
                "%s numbers the entities of %s, and the embedding %s.streams.%s does not report the entities of its "
                "rows (`known_entities`). It was not checked that they are the same, in the same order",
                *(named(transform), given.place, place, transform.entity_stream),
            )
            continue
        taken = embedding.known_entities()
        if taken is not None and taken.space and given.space and not taken.space.same(given.space):
            raise WorkbenchError(
                f"{named(transform)} numbers the entities of the graph {given.space}, but the embedding "
                f"{place}.streams.{transform.entity_stream} has vectors of those of {taken.space}: equal ids are "
                "different entities there. Name vectors of one graph in both"
            )
        if taken is not None and not taken.same(given):
            raise WorkbenchError(
                f"{named(transform)} numbers the entities of {given.place}, but the embedding {place}.streams."
                f"{transform.entity_stream} has the rows of {taken.place}, which are others, or in another order. A "
                "mention would get the vector of another entity. Name one file in both"
            )


def _embedding(network: Network, stream: str) -> nn.Module | None:
    return dict(network.embeddings.items()).get(stream)


def _listed(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in shape.items())


def check_fields(tasks: Iterable[Task]) -> None:
    """Check that the corpora have the fields that the components of a task read.

    Raises:
        WorkbenchError: a corpus has no record with a field that the builder or a transform reads (`reads`). Or no
            corpus has a field that an objective (`Objective.reads`) or its masking strategy reads. Or no corpus has a
            text of two sentences, for an objective that splits texts (`Objective.splits`).
    """
    for task in tasks:
        corpora = [Corpus.open(place) for place in task.spec.corpora]
        for wanted in getattr(task.builder, "reads", ()):
            for corpus in corpora:
                _check_field(f"tasks.{task.name}.sequence.builder", wanted, [corpus])
        for i, transform in enumerate(task.transforms):
            for wanted in {*getattr(transform, "reads", ())} - {*getattr(task.builder, "provides", ())}:
                for corpus in corpora:
                    _check_field(f"tasks.{task.name}.sequence.transforms[{i}]", wanted, [corpus])
        for placed in task.objectives:
            for reader, part in readers_of(placed):
                for wanted in part.reads:
                    _check_field(f"tasks.{task.name}: {reader}", wanted, corpora)
            if getattr(placed.objective, "splits", False):
                _check_sentences(f"tasks.{task.name}: the objective {placed.name}", corpora)


def readers_of(placed: TaskObjective) -> list[tuple[str, Objective | Masking]]:
    """An objective and its masking strategy, each with its name for messages."""
    objective, name = placed.objective, f"the objective {placed.name}"
    masking = objective.masking
    return [(name, objective), *([] if masking is None else [(f"{name}, by its masking strategy,", masking)])]


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
            f"{reader} needs texts of two sentences or more. None of the texts that were read in "
            f"{', '.join(corpus.place for corpus in texts)} has a second one in its 'text'. Prepare records of whole "
            f"documents, or pairs: {how_to_prepare('second')}"
        )


OVER_LENGTH = " over max_length"  # in the reasons for what a transform left out
UNKNOWN = "entities "  # the beginning of the reasons for entities that a transform does not know
LARGE_SHARE = 0.1  # a smaller share is usual
OWN_SPANS = ("triples", "questions")  # units of builders that don't read the fields of linked entities


def check_links(tasks: Iterable[Task], control: str | None) -> None:
    """Check that texts have linked entities where a component reads them: a transform that adds knowledge, or an
    objective whose masking strategy masks entities. One corpus of several may be without.

    Raises:
        WorkbenchError: no corpus of a task has any, or any that a transform knows.
    """
    for task in tasks:
        places = list(task.spec.corpora)
        check_linked_texts(task, places, control)
        readers = [reader for p in task.objectives for reader, part in readers_of(p) if part.reads_spans]
        _with_links(task, places, control, readers)


def check_linked_texts(task: Task, places: Sequence[str], control: str | None) -> None:
    """Check as `check_links` one task with the corpora at `places`: its own, or those of an evaluation.

    Raises:
        WorkbenchError: the task has a transform that reads linked entities, and none of the corpora has any that it
            knows.
    """
    transforms = [transform for transform in task.transforms if transform.reads_spans]
    readers = [f"the transform {KINDS['transform'].name(type(transform))}" for transform in transforms]
    linked = _with_links(task, places, control, readers)
    _check_known(transforms, linked)


def warn_no_room(task: Task, texts: int) -> None:
    """Warn where a large share of the knowledge of the transforms has no room next to the text, of the texts just
    read, and where the transforms do not know most of the linked entities."""
    used, dropped = task.take_used(), task.take_dropped()
    for reason, lost in dropped.items():
        what = reason.replace(OVER_LENGTH, "")  # the name of the stream may follow it
        whole = lost + used.get(what, 0)
        if what != reason and lost >= LARGE_SHARE * whole:
            logger.warning(
                "tasks.%s: of the first %d texts %d of %d %s (%.0f %%) have no room next to the text, and are left "
                "out: use shorter texts (--max-length), or a greater max_length of the transform",
                *(task.name, texts, lost, whole, what, 100 * lost / whole),
            )
        whole = sum(dropped.values()) + used.get("mentions", 0)
        if reason.startswith(UNKNOWN) and 2 * lost > whole:
            logger.warning(
                "tasks.%s: in the first %d texts %d of %d linked entities (%.0f %%) bring no knowledge (%s). Link the "
                "texts to the graph of the run, or train with the control no-kg",
                *(task.name, texts, lost, whole, 100 * lost / whole, reason),
            )


def _with_links(task: Task, places: Sequence[str], control: str | None, readers: list[str]) -> list[Corpus]:
    """The corpora that have linked entities, where a component reads them."""
    if not readers or control == "no-kg" or task.builder.unit in OWN_SPANS:
        return []
    corpora = [Corpus.open(place) for place in places]
    linked = [corpus for corpus in corpora if _is_linked(corpus)]
    without = [place for place, corpus in zip(places, corpora, strict=True) if corpus not in linked]
    if not linked:
        or_without = (
            ", or train without knowledge (control no-kg)" if supports_control("no-kg", task.components) else ""
        )
        raise WorkbenchError(
            f"tasks.{task.name}: {readers[0]} reads linked entities, and {', '.join(without)} has none; link it "
            f"first (workbench prepare link){or_without}"
        )
    for place in without:
        logger.warning("tasks.%s: %s has no linked entities; its texts get no knowledge", task.name, place)
    return linked


def _is_linked(corpus: Corpus) -> bool:
    return any(corpus.manifest.fields.get(field.name) for field in links_among(fields_of(corpus.kind)))


def _check_known(transforms: list[Transform], corpora: list[Corpus]) -> None:
    """Check that one of several transforms knows some entities: a corpus may be linked to one of their graphs alone."""
    asked = [transform for transform in transforms if transform.known_entities() is not None]
    for transform in asked:
        for corpus in corpora:
            _check_space(transform, corpus)
    unmatched = [
        reported for transform in asked for corpus in corpora if (reported := _unmatched_entities(transform, corpus))
    ]
    if unmatched and len(unmatched) == len(asked) * len(corpora):
        raise WorkbenchError(
            f"{unmatched[0]}. Link its texts to the graph that this was built from: `workbench prepare link CORPUS "
            "--graph GRAPH --output LINKED`"
        )
    for reported in unmatched:
        logger.warning("%s; its texts get no knowledge there", reported)


def _check_space(transform: Transform, corpus: Corpus) -> None:
    """Check that a corpus and a transform use the ids of one graph.

    Raises:
        WorkbenchError: the corpus is linked to other graphs than the transform's, and some of their ids are alike.
    """
    known = transform.known_entities()
    assert known is not None
    linked = spaces_in(corpus.manifest.about)
    if not linked or known.space is None:
        what = corpus.place if not linked else known.place
        logger.info("%s does not report the graph of its entity ids: it was not checked that they are the same", what)
        return
    if any(known.space.same(space) for space in linked):
        return
    alike = next((entity for entity in _entities(corpus) if entity in known.ids), None)
    if alike is not None:
        raise WorkbenchError(
            f"{named(transform)}: {corpus.place} is linked to the graph {', '.join(map(str, linked))}, and "
            f"{known.place} is of the graph {known.space}; ids such as {alike!r} are in both, and are other entities "
            "there. Link the texts to the graph that this was built from. If both graphs mean the same entities, "
            "prepare both with one `workbench prepare triples --namespace NAME`, and link and train vectors again"
        )


def _unmatched_entities(transform: Transform, corpus: Corpus) -> str:
    """A message where a transform knows none of the entities of a corpus, otherwise "". The first known entity ends the
    search; a corpus of unknown entities alone is read to its end."""
    known = transform.known_entities()
    assert known is not None
    if any(entity in known.ids for entity in _entities(corpus)):
        return ""
    such = ", ".join(map(repr, islice(dict.fromkeys(_entities(corpus)), 3)))
    if not such:
        return f"{named(transform)}: {corpus.place} has no linked entities"
    return (
        f"{named(transform)}: none of the entities that are linked in {corpus.place}, such as {such}, is in "
        f"{known.place}, whose ids are like {', '.join(map(repr, known.ids[:3]))}"
    )


def _entities(corpus: Corpus) -> Iterator[str]:
    """All linked entities of a corpus, in its order, with repetitions."""
    for shard, info in enumerate(corpus.shards):
        for record in range(info.records):
            try:
                yield from linked_entities(corpus.read(shard, record))
            except BadRecordError:
                continue  # the reader reports it
