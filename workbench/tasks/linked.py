"""Whether what reads linked entities finds any that it knows, before the first step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from workbench.corpora.corpus import Corpus
from workbench.corpora.places import linked_entities
from workbench.corpora.record import BadRecordError
from workbench.corpora.schema import fields_of, links_among
from workbench.errors import WorkbenchError
from workbench.parts.build_context import named
from workbench.parts.controls import heeds
from workbench.sequences.entities import spaces_in
from workbench.sequences.protocols import Step
from workbench.tasks.fitting import readers_of
from workbench.tasks.task import Task

logger = logging.getLogger(__name__)
OVER = " over max_length"  # what the reasons say of what a step had no room for
MUCH = 0.1  # a smaller share of it is usual
OWN_SPANS = ("triples", "questions")  # units of builders that don't read the fields of linked entities


def check_links(tasks: Iterable[Task], control: str | None) -> None:
    """What reads linked entities needs texts with some: a step that brings in knowledge, or an objective whose policy
    masks them. One corpus of several may be without.

    Raises:
        WorkbenchError: no corpus of a task has any, or any that a step knows.
    """
    for task in tasks:
        places = list(task.spec.corpora)
        check_linked(task, places, control)
        readers = [reader for p in task.objectives for reader, part in readers_of(p) if part.reads_spans]
        _with_links(task, places, control, readers)


def check_linked(task: Task, places: Sequence[str], control: str | None) -> None:
    """As `check_links`, of one task with the corpora at `places`, be they its own or those it is evaluated on.

    Raises:
        WorkbenchError: the task has a step that reads linked entities, and none of the corpora has any that it knows.
    """
    steps = [step for step in task.steps if step.reads_spans]
    linked = _with_links(task, places, control, [f"the step {type(step).__name__}" for step in steps])
    _check_known(steps, linked)


def tell_no_room(task: Task, texts: int) -> None:
    """Warn where much of what the steps would bring in has no room beside the text, of so many texts just read."""
    used, dropped = task.take_used(), task.take_dropped()
    for reason, lost in dropped.items():
        what = reason.replace(OVER, "")  # behind it the stream may stand
        whole = lost + used.get(what, 0)
        if what != reason and lost >= MUCH * whole:
            logger.warning(
                "tasks.%s: of the first %d texts %d of %d %s (%.0f %%) have no room beside the text, and are left out: "
                "take shorter texts (--max-length), or a greater max_length of the step",
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
        or_without = ", or go without knowledge (control no-kg)" if heeds("no-kg", task.parts) else ""
        raise WorkbenchError(
            f"tasks.{task.name}: {readers[0]} reads linked entities, and {', '.join(without)} has none; link it "
            f"first (workbench prepare link){or_without}"
        )
    for place in without:
        logger.warning("tasks.%s: %s has no linked entities; its texts get no knowledge", task.name, place)
    return linked


def _is_linked(corpus: Corpus) -> bool:
    return any(corpus.manifest.fields.get(field.name) for field in links_among(fields_of(corpus.kind)))


def _check_known(steps: list[Step], corpora: list[Corpus]) -> None:
    """Of several steps, each with a graph of its own, one must know some: a corpus may be linked to one alone."""
    asked = [step for step in steps if step.known_entities() is not None]
    for step in asked:
        for corpus in corpora:
            _check_space(step, corpus)
    strange = [told for step in asked for corpus in corpora if (told := _strange(step, corpus))]
    if strange and len(strange) == len(asked) * len(corpora):
        raise WorkbenchError(
            f"{strange[0]}. Link its texts to the graph that this was made of: `workbench prepare link CORPUS --graph "
            "GRAPH --output LINKED`"
        )
    for told in strange:
        logger.warning("%s; its texts get no knowledge there", told)


def _check_space(step: Step, corpus: Corpus) -> None:
    """
    Raises:
        WorkbenchError: the corpus is linked to other graphs than the step's, and some of their ids are alike.
    """
    known = step.known_entities()
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
            f"{named(step)}: {corpus.place} is linked to the graph {', '.join(map(str, linked))}, and {known.place} is "
            f"of the graph {known.space}; ids such as {alike!r} are in both, and are other entities there. Link the "
            "texts to the graph that this was made of; or, if both graphs mean the same entities, prepare both with "
            "one `workbench prepare triples --namespace NAME`, and link and train vectors again"
        )


def _strange(step: Step, corpus: Corpus) -> str:
    """That a step knows none of the entities of a corpus, in words. The first that it knows ends the search; a corpus
    with strangers alone is read to its end."""
    known = step.known_entities()
    assert known is not None
    if any(entity in known.ids for entity in _entities(corpus)):
        return ""
    such = ", ".join(map(repr, islice(dict.fromkeys(_entities(corpus)), 3)))
    if not such:
        return f"{named(step)}: nothing is linked in {corpus.place}"
    return (
        f"{named(step)}: none of the entities that are linked in {corpus.place}, such as {such}, is in {known.place}, "
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
