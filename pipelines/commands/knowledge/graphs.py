"""`prepare graph`: the size, the gaps and the entities of a graph."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import networkx
import numpy as np
import typer
from annotated_types import Ge, Le
from rich.table import Table

from kg.graph.drawing import draw_graph, write_graphml
from kg.graph.faults import faults, lacks
from kg.graph.store import GraphStore
from pipelines.commands.corpora.graph_options import corpus_graph
from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import place_of
from workbench.core.options.bounds import Count, Name
from workbench.core.terminal import Terminal
from workbench.runs.output_places import OutputFile

log = logging.getLogger(__name__)

COUNTS = ("entities", "relations", "triples")

Hops = Annotated[int, Ge(1), Le(100)]


def graph(
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    entity: Annotated[list[Name], typer.Argument(help="Ids of entities to show; none: the counts.")] = [],  # noqa: B006
    limit: Annotated[Count, typer.Option(help="Maximum number of triples shown per entity and direction.")] = 20,
    hops: Annotated[
        Hops, typer.Option(help="Maximum distance of the shown entities, in triples of either direction.")
    ] = 1,
    graphml: Annotated[
        OutputFile | None, typer.Option(help="Write the entities within --hops as GraphML, for networkx or Gephi.")
    ] = None,
    draw: Annotated[
        OutputFile | None, typer.Option(help="Draw the entities within --hops, as .svg, .png or .pdf.")
    ] = None,
    degrees: Annotated[
        Count | None, typer.Option(help="Show this many entities with the most triples instead.", show_default=False)
    ] = None,
    build: Annotated[
        bool, typer.Option("--build", help="First build the graph of a triples corpus that has none.")
    ] = False,
) -> None:
    """Show the size and the gaps of a graph, or the triples of some entities.

    --build builds the graph of a triples corpus, at a path or a URL, that was written without one or whose graph is
    damaged. It has the texts of the entities in the held-out splits next to the corpus, as one of `prepare triples`.

    Examples:

      workbench prepare graph corpora/codex-s

      workbench prepare graph corpora/codex-s Q90 Q64 --limit 10

      workbench prepare graph corpora/codex-s --degrees 20

      workbench prepare graph corpora/codex-s Q90 --hops 2 --graphml paris.graphml

      workbench prepare graph corpora/codex-s Q90 --limit 10 --draw paris.svg

      workbench prepare graph s3://bucket/codex-s --build
    """
    around = graphml or draw or hops > 1
    if not entity and around:
        raise WorkbenchError("--hops, --graphml and --draw start from entities; name their ids after the graph")
    if entity and degrees:
        raise WorkbenchError("--degrees counts the whole graph; remove the entities, or show them without --degrees")
    if build:
        place = place_of(graph)  # a URL, of a fetched corpus
        with corpus_graph(place):
            pass
        store = GraphStore.open(place)
    else:
        store = GraphStore.open(graph)
    console = Terminal()
    if not entity:
        console.print(_degrees(store, degrees) if degrees else _counts(store))
    if around:
        found = store.subgraph(entity, hops, limit)
        log.info("%d entities and %d triples within %d hops", len(found), found.number_of_edges(), hops)
        if draw:
            draw_graph(found, draw, entity)
        if graphml:
            write_graphml(found, graphml)
        if not (draw or graphml):
            console.print(_within(store, found))
        return
    for name in entity:
        console.print(_about(store, name, limit))


def _counts(store: GraphStore) -> Table:
    table = Table("", "", title=str(store.path), show_header=False)
    for name in COUNTS:
        table.add_row(name, f"{store.meta[name]:,}")
    for reported, count in (*faults(store).items(), *lacks(store).items()):
        table.add_row(reported, f"{count:,}")
    if store.num_entities:
        table.add_row("triples of an entity, the median", f"{np.median(store.degrees):,g}")
        most = int(store.degrees.argmax())
        table.add_row(f"triples of {store.label(store.ids[most])}, the most", f"{store.degrees[most]:,}")
    return table


def _degrees(store: GraphStore, most: int) -> Table:
    table = Table("entity", "id", title=f"Triples of an entity, in descending order ({store.path})")
    for column in ("triples", "as head", "as tail"):
        table.add_column(column, justify="right")
    for row in np.argsort(-store.degrees, kind="stable")[:most].tolist():
        entity, (out, into) = store.ids[row], store.degrees_of(row)
        table.add_row(store.label(entity), entity, f"{out + into:,}", f"{out:,}", f"{into:,}")
    return table


def _within(store: GraphStore, found: networkx.MultiDiGraph) -> Table:
    table = Table("head", "relation", "tail")
    for head, tail, relation in found.edges(keys=True):
        table.add_row(store.label(head), store.relation_label(relation), store.label(tail))
    return table


def _about(store: GraphStore, entity: str, limit: int) -> Table:
    out, into = store.degrees_of(store.row(entity))
    title = f"{store.label(entity)} ({entity}): {out:,} triples as head, {into:,} as tail"
    caption = "; ".join(part for part in (store.description(entity), ", ".join(store.aliases(entity))) if part)
    table = Table("head", "relation", "tail", title=title, caption=caption)
    outgoing, incoming = store.neighbours(entity), store.incoming(entity)
    for relation, tail in outgoing[:limit]:
        table.add_row(store.label(entity), store.relation_label(relation), store.label(tail))
    for relation, head in incoming[:limit]:
        table.add_row(store.label(head), store.relation_label(relation), store.label(entity))
    hidden = max(0, len(outgoing) - limit) + max(0, len(incoming) - limit)
    if hidden:
        table.add_row("...", f"{hidden:,} more", "...")
    return table
