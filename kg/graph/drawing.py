"""A subgraph as a figure, or as GraphML, which networkx, Gephi and Cytoscape read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import networkx

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST = 150
"""Entities that can be distinguished in a figure."""
SUFFIXES = (".svg", ".png", ".pdf")
NAME, RELATION = 28, 24  # characters of a label that are shown
CENTRE, OTHER, EDGE = "#2b6cb0", "#9db8d2", "#aab2bb"


def draw_graph(found: networkx.MultiDiGraph, path: Path, centres: Collection[str] = ()) -> None:
    """Draw what `GraphStore.subgraph` found, `centres` in a stronger colour.

    Raises:
        WorkbenchError: another suffix than .svg, .png or .pdf, or more entities than a figure can show.
    """
    if path.suffix not in SUFFIXES:
        raise WorkbenchError(f"{path} is no format of figures; name a file that ends in {', '.join(SUFFIXES)}")
    if len(found) > MOST:
        raise WorkbenchError(
            f"{len(found):,} entities are too many for a figure ({MOST} at most); take fewer --hops or a smaller "
            "--limit, or write --graphml for a program that lays out large graphs"
        )
    from matplotlib.figure import Figure

    places = networkx.spring_layout(networkx.Graph(found), k=1.8 / len(found) ** 0.5, iterations=300, seed=0)
    side = 4.0 + len(found) ** 0.5
    figure = Figure(figsize=(1.5 * side, side), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.margins(0.1)
    colours = [CENTRE if node in centres else OTHER for node in found]
    networkx.draw_networkx_nodes(found, places, ax=axes, node_color=colours, node_size=120)
    networkx.draw_networkx_edges(found, places, ax=axes, edge_color=EDGE, arrowsize=10, node_size=120)
    _draw_texts(found, places, axes)
    with atomic(path) as file:
        figure.savefig(
            file, format=path.suffix[1:], dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None
        )


def _draw_texts(found: networkx.MultiDiGraph, places: Mapping[str, tuple[float, float]], axes: Axes) -> None:
    """Names of entities above them, and on each line those of all relations between its ends."""
    between: dict[tuple[str, str], dict[str, None]] = {}
    for head, tail, label in found.edges(data="label"):
        pair = (tail, head) if (tail, head) in between else (head, tail)
        between.setdefault(pair, {})[shorten(label, RELATION, placeholder="…")] = None
    networkx.draw_networkx_edge_labels(
        networkx.Graph(found),
        places,
        {pair: "\n".join(labels) for pair, labels in between.items()},
        ax=axes,
        font_size=6,
        font_color="#5b6570",
        rotate=False,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )
    for node, label in found.nodes(data="label"):
        axes.annotate(
            shorten(label, NAME, placeholder="…"),
            places[node],
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            parse_math=False,
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )


def write_graphml(found: networkx.MultiDiGraph, path: Path) -> None:
    """Write what `GraphStore.subgraph` found: nodes with `label`, numbered edges with `relation` and `label`.

    Characters that XML cannot hold are left out.
    """
    graph = networkx.MultiDiGraph()
    for node, data in found.nodes(data=True):
        graph.add_node(_clean(node), label=_clean(data["label"]))
    for number, (head, tail, relation, data) in enumerate(found.edges(keys=True, data=True)):
        names = {"relation": _clean(relation), "label": _clean(data["label"])}
        graph.add_edge(_clean(head), _clean(tail), key=str(number), **names)
    with atomic(path) as file:
        networkx.write_graphml(graph, file)


def _clean(text: str) -> str:
    return "".join(c for c in text if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff"))
