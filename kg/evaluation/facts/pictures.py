"""The picture beside an evaluation of facts: the subject of a fact amid what the graph says of it."""

from __future__ import annotations

import logging
from pathlib import Path

from kg.evaluation.facts.neighbourhood import draw_neighbourhood
from kg.graph.store import GraphStore
from workbench.evaluation.opening import Evaluated

logger = logging.getLogger(__name__)
NAME = "neighbourhood"


def draw_subject(run: Evaluated, subjects: list[str]) -> Path | None:
    """Draw the first of these entities that the graph of the run's steps knows; None where no step has a graph."""
    store = next((step.graph for step in run.task.steps if isinstance(getattr(step, "graph", None), GraphStore)), None)
    if store is None:
        return None
    for subject in subjects:
        triples = [(subject, relation, tail) for relation, tail in store.neighbours(subject)]
        triples += [(head, relation, subject) for relation, head in store.incoming(subject)]
        if triples:
            names = {name for triple in triples for name in triple}
            return draw_neighbourhood(run.folder, NAME, subject, triples, {name: store.label(name) for name in names})
    logger.info("no neighbourhood drawn: the graph knows none of %d subjects", len(subjects))
    return None
