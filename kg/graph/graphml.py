"""A part of a graph as GraphML, which networkx, Gephi and Cytoscape read."""

from __future__ import annotations

from pathlib import Path

import networkx

from workbench.files.drafts import atomic


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
