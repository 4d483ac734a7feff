"""Whether tasks, networks and corpora of a recipe fit each other, found before the first step.

`check_fit`     sequences and the networks that read them: positions, memory, images, entities
`check_fields`  what builders, transforms, objectives and maskings read, and what the corpora have
`check_links`   what reads linked entities, and whether the corpora have any that it knows
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
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import linked_entities
from workbench.corpora.schema.schema import fields_of, links_among
from workbench.corpora.shards.record import BadRecordError
from workbench.models.network import Network
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import DEFAULT_NETWORK, Task, TaskObjective
from workbench.pretraining.window_lengths import texts_within
from workbench.sequences.entities import spaces_in
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.protocols import Masking, Transform
from workbench.sequences.segments import splits_at_sentence

logger = logging.getLogger(__name__)


def check_fit(tasks: Iterable[Task], root: PretrainingModel) -> None:
    """Sequences must fit the networks that read them; every task is told how far positions, ... may count.

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


def warn_unused_memory(tasks: Iterable[Task], root: PretrainingModel) -> None:
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
    """What an image part says of its rows (`shape`: patch, grid, size), its embedding must say too; as many images
    as a sequence has it must distinguish (`images`)."""
    image = getattr(getattr(task.builder, "image", None), "part", None)
    given: Mapping[str, int] = getattr(image, "shape", {})
    taken: Mapping[str, int] = getattr(_embedding(network, "image"), "shape", {})
    for name in given.keys() & taken.keys():
        if given[name] != taken[name]:
            raise WorkbenchError(
                f"tasks.{task.name}.sequence.image_processor: {name} = {given[name]}, but {place}.streams.image says "
                f"{name} = {taken[name]} (found {_listed(given)}, expected {_listed(taken)}); let them agree"
            )
    wanted = getattr(getattr(task.builder, "image", None), "images", 1)
    apart = getattr(_embedding(network, "image"), "images", 1)
    if image is not None and wanted > apart:
        raise WorkbenchError(
            f"tasks.{task.name}.sequence.media names {wanted} images, and the embedding {place}.streams.image tells "
            f"{apart} apart; give it images: {wanted} ({', '.join(_of_several())} take it)"
        )


def _of_several() -> list[str]:
    """The embeddings that tell images apart."""
    return [name for name in short_names("embedding") if "images" in options_of(find("embedding", name)).names]


def _check_entities(task: Task, network: Network, place: str) -> None:
    """Where a transform and an embedding go by other files, every mention would get the vector of another entity."""
    for transform in task.transforms:
        embedding: Any = None if transform.entity_stream is None else _embedding(network, transform.entity_stream)
        given = transform.known_entities()
        if embedding is None or given is None:
            continue
        if not hasattr(embedding, "known_entities"):
            logger.warning(
                "%s numbers the entities of %s, and the embedding %s.streams.%s does not say which entities its rows "
                "are (`known_entities`): whether they are the same, in the same order, was not checked",
                *(named(transform), given.place, place, transform.entity_stream),
            )
            continue
        taken = embedding.known_entities()
        if taken is not None and taken.space and given.space and not taken.space.same(given.space):
            raise WorkbenchError(
                f"{named(transform)} numbers the entities of the graph {given.space}, but the embedding "
                f"{place}.streams."
                f"{transform.entity_stream} has vectors of those of {taken.space}: the ids may be alike, the entities "
                f"are "
                "others. Name vectors of one graph in both"
            )
        if taken is not None and not taken.same(given):
            raise WorkbenchError(
                f"{named(transform)} numbers the entities of {given.place}, but the embedding {place}.streams."
                f"{transform.entity_stream} has the rows of {taken.place}, which are others, or in another order: each "
                "mention would get the vector of another entity. Name one file in both"
            )


def _embedding(network: Network, stream: str) -> nn.Module | None:
    return dict(network.embeddings.items()).get(stream)


def _listed(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in shape.items())


def check_fields(tasks: Iterable[Task]) -> None:
    """What the parts of a task read of every sample must be in its corpora.

    Raises:
        WorkbenchError: a corpus has no record with a field that the builder or a transform reads (`reads`), or no
            corpus has
            one that an objective (`Objective.reads`) or its masking strategy goes by, or a text of two sentences for
            one that cuts texts in two (`Objective.splits`).
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
    """An objective and its masking strategy, each with what it is called."""
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
            f"{reader} needs texts of two sentences or more, and none of those looked at in "
            f"{', '.join(corpus.place for corpus in texts)} has a second one in its 'text'. Prepare records of whole "
            f"documents, or pairs: {how_to_prepare('second')}"
        )


OVER_LENGTH = " over max_length"  # what the reasons say of what a transform had no room for
LARGE_SHARE = 0.1  # a smaller share of it is usual
OWN_SPANS = ("triples", "questions")  # units of builders that don't read the fields of linked entities


def check_links(tasks: Iterable[Task], control: str | None) -> None:
    """What reads linked entities needs texts with some: a transform that brings in knowledge, or an objective whose
    masking strategy masks them. One corpus of several may be without.

    Raises:
        WorkbenchError: no corpus of a task has any, or any that a transform knows.
    """
    for task in tasks:
        places = list(task.spec.corpora)
        check_linked_texts(task, places, control)
        readers = [reader for p in task.objectives for reader, part in readers_of(p) if part.reads_spans]
        _with_links(task, places, control, readers)


def check_linked_texts(task: Task, places: Sequence[str], control: str | None) -> None:
    """As `check_links`, of one task with the corpora at `places`, be they its own or those it is evaluated on.

    Raises:
        WorkbenchError: the task has a transform that reads linked entities, and none of the corpora has any that it
            knows.
    """
    transforms = [transform for transform in task.transforms if transform.reads_spans]
    linked = _with_links(task, places, control, [f"the {named(transform)}" for transform in transforms])
    _check_known(transforms, linked)


def warn_no_room(task: Task, texts: int) -> None:
    """Warn where much of what the transforms would bring in has no room next to the text, of so many texts just
    read."""
    used, dropped = task.take_used(), task.take_dropped()
    for reason, lost in dropped.items():
        what = reason.replace(OVER_LENGTH, "")  # behind it the stream may stand
        whole = lost + used.get(what, 0)
        if what != reason and lost >= LARGE_SHARE * whole:
            logger.warning(
                "tasks.%s: of the first %d texts %d of %d %s (%.0f %%) have no room next to the text, and are left "
                "out: "
                "take shorter texts (--max-length), or a greater max_length of the transform",
                *(task.name, texts, lost, whole, what, 100 * lost / whole),
            )


def _with_links(task: Task, places: Sequence[str], control: str | None, readers: list[str]) -> list[Corpus]:
    """The corpora that have linked entities, where anything reads these."""
    if not readers or control == "no-kg" or task.builder.unit in OWN_SPANS:
        return []
    corpora = [Corpus.open(place) for place in places]
    linked = [corpus for corpus in corpora if _is_linked(corpus)]
    without = [place for place, corpus in zip(places, corpora, strict=True) if corpus not in linked]
    if not linked:
        or_without = ", or go without knowledge (control no-kg)" if supports_control("no-kg", task.parts) else ""
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
    """Of several steps, each with a graph of its own, one must know some: a corpus may be linked to one alone."""
    asked = [transform for transform in transforms if transform.known_entities() is not None]
    for transform in asked:
        for corpus in corpora:
            _check_space(transform, corpus)
    strange = [reported for transform in asked for corpus in corpora if (reported := _strange(transform, corpus))]
    if strange and len(strange) == len(asked) * len(corpora):
        raise WorkbenchError(
            f"{strange[0]}. Link its texts to the graph that this was built from: `workbench prepare link CORPUS "
            f"--graph "
            "GRAPH --output LINKED`"
        )
    for reported in strange:
        logger.warning("%s; its texts get no knowledge there", reported)


def _check_space(transform: Transform, corpus: Corpus) -> None:
    """
    Raises:
        WorkbenchError: the corpus is linked to other graphs than the transform's, and some of their ids are alike.
    """
    known = transform.known_entities()
    assert known is not None
    linked = spaces_in(corpus.manifest.about)
    if not linked or known.space is None:
        what = corpus.place if not linked else known.place
        logger.info("%s does not say whose its entities' ids are: that they are the same was not checked", what)
        return
    if any(known.space.same(space) for space in linked):
        return
    alike = next((entity for entity in _entities(corpus) if entity in known.ids), None)
    if alike is not None:
        raise WorkbenchError(
            f"{named(transform)}: {corpus.place} is linked to the graph {', '.join(map(str, linked))}, and "
            f"{known.place} is "
            f"of the graph {known.space}; ids such as {alike!r} are in both, and are other entities there. Link the "
            "texts to the graph that this was built from; or, if both graphs mean the same entities, prepare both with "
            "one `workbench prepare triples --namespace NAME`, and link and train vectors again"
        )


def _strange(transform: Transform, corpus: Corpus) -> str:
    """That a transform knows none of the entities of a corpus, in words. The first that it knows ends the search; a
    corpus with strangers alone is read to its end."""
    known = transform.known_entities()
    assert known is not None
    if any(entity in known.ids for entity in _entities(corpus)):
        return ""
    such = ", ".join(map(repr, islice(dict.fromkeys(_entities(corpus)), 3)))
    if not such:
        return f"{named(transform)}: nothing is linked in {corpus.place}"
    return (
        f"{named(transform)}: none of the entities that are linked in {corpus.place}, such as {such}, is in "
        f"{known.place}, "
        f"whose ids are like {', '.join(map(repr, known.ids[:3]))}"
    )


def _entities(corpus: Corpus) -> Iterator[str]:
    """All that are linked in a corpus, in its order, as often as they are."""
    for shard, info in enumerate(corpus.shards):
        for record in range(info.records):
            try:
                yield from linked_entities(corpus.read(shard, record))
            except BadRecordError:
                continue  # whoever reads it says so
