"""A figure of an entity and its triples, drawn with an evaluation of facts for the subject of a fact."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.report.run import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)


Places = dict[str, tuple[float, float]]
MAX_NEIGHBOURS = 24
_CENTRE, _NEAR, _EDGE = "#2f5d8a", "#e9e4d8", "#9a958a"


def draw_neighbourhood(
    run: Path, name: str, centre: str, triples: Sequence[tuple[str, str, str]], labels: Mapping[str, str]
) -> Path:
    """Write the figure `figures/<name>.png`: an entity amid the triples it is in.

    Args:
        triples: (head, relation, tail) ids; those of the entity are drawn, at most 24 neighbours, in their order.
        labels: names of entities and relations; an id without one is shown as it is.

    Raises:
        WorkbenchError: the entity is in no triple.
    """
    import networkx as nx
    from matplotlib.figure import Figure

    graph = nx.MultiDiGraph()
    for head, relation, tail in triples:
        if centre in (head, tail) and (len(graph) <= MAX_NEIGHBOURS or {head, tail} <= set(graph)):
            graph.add_edge(head, tail, relation=relation)
    if centre not in graph:
        raise WorkbenchError(f"entity {centre!r} is in none of the {len(triples)} triples; nothing to draw")
    placed = _around(centre, graph)
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.margins(0.12, 0.1)
    others = [node for node in graph if node != centre]
    sizes = [2600 if node == centre else 90 for node in graph]
    nx.draw_networkx_edges(graph, placed, ax=axes, edge_color=_EDGE, width=0.9, arrowsize=9, node_size=sizes)
    nx.draw_networkx_nodes(graph, placed, nodelist=others, node_color=_NEAR, node_size=90, ax=axes)
    nx.draw_networkx_edge_labels(
        nx.Graph(graph),
        placed,
        _edge_labels(centre, graph.edges(data="relation"), labels),
        ax=axes,
        font_size=7,
        font_color="#5b6570",
        rotate=False,
        bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"},
    )
    _label_nodes(axes, placed, centre, labels)
    shown = labels.get(centre, centre)
    caption = f"{graph.number_of_edges()} triples around the linked entity {centre}."
    return save_figure(figure, run, name, f"Neighbourhood of {shown}.", caption)


def _around(centre: str, graph: Iterable[str]) -> Places:
    """The entity in the middle, its neighbours on an ellipse around it (two radii, so that many names fit)."""
    others = [node for node in graph if node != centre]
    places = {centre: (0.0, 0.0)}
    for i, node in enumerate(others):
        turn = 2 * math.pi * i / len(others) + math.pi / 2
        radius = 1.0 if i % 2 == 0 or len(others) <= 8 else 0.68
        places[node] = (1.35 * radius * math.cos(turn), radius * math.sin(turn))
    return places


def _edge_labels(
    centre: str, edges: Iterable[tuple[str, str, str]], labels: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """One label per neighbour: all relations between it and the entity, both ways."""
    between: dict[tuple[str, str], list[str]] = {}
    for head, tail, relation in edges:
        pair = (centre, tail if head == centre else head)
        between.setdefault(pair, []).append(labels.get(relation, relation))
    return {pair: ", ".join(dict.fromkeys(names)) for pair, names in between.items()}


def _label_nodes(axes: Axes, placed: Places, centre: str, labels: Mapping[str, str]) -> None:
    """The entity's name on a plate, the neighbours' names outside of the ellipse."""
    plate = {"boxstyle": "round,pad=0.5", "facecolor": _CENTRE, "edgecolor": "none"}
    for node, (x, y) in placed.items():
        middle = node == centre
        axes.annotate(
            labels.get(node, node),
            (x, y),
            xytext=(0, 0 if middle else 11 if y >= -1e-9 else -11),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=11 if middle else 9,
            fontweight="bold" if middle else "normal",
            color="white" if middle else "#1d2126",
            bbox=plate if middle else None,
        )


NAME = "neighbourhood"


def draw_subject(run: EvaluatedRun, subjects: list[str]) -> Path | None:
    """Draw the first of these entities that the graph of a transform holds. None if no transform has a graph."""
    store = next(
        (
            transform.graph
            for transform in run.task.transforms
            if isinstance(getattr(transform, "graph", None), GraphStore)
        ),
        None,
    )
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
