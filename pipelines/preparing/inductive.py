"""The inductive split of a graph: held-out entities are in no triple of training.

An entity's part depends on its id alone, so that each triple tells by itself where its two ends belong: no list of the
held-out entities is needed, whatever the size of the graph. A held-out head takes its triples with it, as in any split;
those that lead from an entity of training to a held-out one belong to neither, and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.preparing.splits import MAIN, part_of
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample

HELD_OUT_TAIL = "a triple of training whose tail is held out"


def part_of_entity(entity: str, splits: Mapping[str, float]) -> str:
    """The part of an entity: a split's name, or `""` for the corpus itself."""
    return part_of({"key": record_key(entity)}, splits)


def without_held_out(sample: Sample, splits: Mapping[str, float]) -> tuple[Sample, int]:
    """An entity's record without its triples to held-out entities, and how many these are; a held-out one keeps all."""
    if part_of_entity(str(sample["id"]), splits) != MAIN:
        return sample, 0
    kept = [fact for fact in sample["triples"] if part_of_entity(str(fact["tail"]), splits) == MAIN]
    return {**sample, "triples": kept}, len(sample["triples"]) - len(kept)
