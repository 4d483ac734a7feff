"""The commands `prepare vectors` and `prepare graph`: train entity vectors, look at a graph."""

from __future__ import annotations

import logging
import statistics
from pathlib import Path
from typing import Annotated

import networkx
import numpy as np
import typer
from annotated_types import Ge, Le
from rich.table import Table

from kg.graph.graphml import write_graphml
from kg.graph.store import GraphStore
from kg.vectors.options import ImportOptions, VectorOptions
from pipelines.sources.triple_lines import read_triples
from workbench.errors import WorkbenchError
from workbench.options.bounds import Count, Device, Name, Repeats
from workbench.options.command import command
from workbench.options.outputs import OutputFile
from workbench.terminal import Terminal

log = logging.getLogger(__name__)

COUNTS = {
    "entities": "entities",
    "relations": "relations",
    "triples": "triples",
    "duplicates": "triples that came again",
    "self_loops": "triples from an entity to itself",
    "labels": "entities with a label",
    "shared_labels": "entities whose label another has",
    "isolated": "entities in no triple",
    "unnamed_relations": "relations without a label",
}
"""The counts in a graph's `graph.json`, and what they are of."""

Hops = Annotated[int, Ge(1), Le(100)]
Graph = Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)]


@command
def vectors(
    graph: Graph,
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    options: VectorOptions,
    importing: ImportOptions,
    source: Annotated[
        Path | None, typer.Option("--from", help="Take these vectors over instead of training.", show_default=False)
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="Triples to rank afterwards: head, relation, tail in columns parted by tabs.")
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="Triples in the same layout; training ends when they rank no better.")
    ] = None,
    known: Annotated[
        list[Path], typer.Option(help="Other true triples, in the same layout, that filter the ranks. Repeatable.")
    ] = [],  # noqa: B006
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="Of the graph with its tails exchanged: for the control shuffled-kg.")
    ] = False,
    seeds: Annotated[
        Repeats, typer.Option(help="Trainings whose ranks are compared, from --seed on; the first one's are written.")
    ] = 1,
    device: Annotated[Device, typer.Option(help="auto takes a GPU where there is one.")] = "auto",
) -> None:
    """Train vectors of the entities and relations of a graph, or take them over, for the entity stream of a model.

    The model is one of pykeen's, by name. With --valid, it is ranked on these triples every --check-every epochs, and
    keeps the weights of the best time. With --held-out, prints the filtered ranks of triples that the graph does not
    have (realistic ranks, both sides), with --seeds their mean and deviation over several trainings. By convention all
    true triples filter: the graph's, the ranked ones, and with --known those of the other parts.
    --shuffled trains on false facts instead, drawn with the seed; kg.entity_table takes such vectors as `shuffled`.

    --from takes pretrained vectors over, those of the graph's entities: a folder with entity2vec.vec (ERNIE-THU's
    kg_embed), OpenKE's JSON, .npy (DGL-KE, OpenKE), PyTorch-BigGraph's .tsv, word2vec's text or binary. Keys that begin
    with ENTITY/ (wikipedia2vec) are looked for among the graph's labels. --map-to maps them linearly into the space of
    a model's words, by the words that both know; kg.word_or_entity takes such vectors.

    Examples:

      workbench prepare vectors corpora/codex-s --output corpora/codex-s/entities.safetensors

      workbench prepare vectors corpora/codex-s --shuffled --output corpora/codex-s/shuffled.safetensors

      workbench prepare vectors corpora/codex-s -o rotate.safetensors --model RotatE --valid codex-s/valid.txt \
        --held-out codex-s/test.txt --seeds 3

      workbench prepare vectors corpora/wikidata --from kg_embed --output corpora/wikidata/entities.safetensors

      workbench prepare vectors corpora/wikidata --from enwiki_300d.txt --map-to runs/bert -o mapped.safetensors
    """
    if source is not None:
        ranked = held_out or valid or known or seeds > 1
        if options != VectorOptions() or shuffled or ranked:
            raise WorkbenchError("--from takes vectors over as they are: leave out the options of training and ranking")
        _take_over(graph, source, output, importing)
        return
    if importing != ImportOptions():
        raise WorkbenchError("--format, --ids, --keys and --map-to are for --from: name the vectors to take over")
    import torch

    from kg.vectors.training import train_vectors

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    store = GraphStore.open(graph)
    if shuffled:
        store = store.shuffled(options.seed)
        log.info("of the shuffled graph, %.1f %% of the triples are still true", 100 * store.true_share)
    trained = train_vectors(
        store,
        output,
        options,
        device=device,
        held_out=list(read_triples(held_out)) if held_out else (),
        valid=list(read_triples(valid)) if valid else (),
        known=[triple for path in known for triple in read_triples(path)],
        seeds=seeds,
        progress=Terminal().is_terminal,
    )
    log.info("%s: %d vectors of size %d", output, *trained.vectors.shape)
    found = trained.provenance.get("link_prediction")
    if found is not None:
        Terminal().print(_ranks(list(trained.provenance.get("seeds", {"": found}).values())))


def _take_over(graph: Path, source: Path, output: Path, options: ImportOptions) -> None:
    from kg.vectors.importing import import_vectors

    made = import_vectors(GraphStore.open(graph), source, output, options)
    counts, relations = made.provenance["entities"], made.provenance["relations"]
    log.info(
        "%s: vectors of size %d of %d entities (%d of the graph have none) and %d relations (%d have none)",
        output,
        counts["size"],
        counts["found"],
        counts["missing"],
        relations["found"],
        relations["missing"],
    )
    mapped = made.provenance.get("mapped")
    if mapped is not None:
        log.info(
            "mapped by %d words in common; the map explains %.1f %% of their variance",
            *(mapped["words"], 100 * mapped["explained"]),
        )


def graph(
    graph: Graph,
    entity: Annotated[list[Name], typer.Argument(help="Ids of entities to show; none: the counts.")] = [],  # noqa: B006
    limit: Annotated[Count, typer.Option(help="Triples of an entity to show, in each direction.")] = 20,
    hops: Annotated[
        Hops, typer.Option(help="Show all within so many triples of the entities, whatever their direction.")
    ] = 1,
    graphml: Annotated[
        OutputFile | None, typer.Option(help="Write what is within --hops as GraphML, for networkx or Gephi.")
    ] = None,
) -> None:
    """Show the size of a graph and what it lacks, or what it says about some entities.

    Examples:

      workbench prepare graph corpora/codex-s

      workbench prepare graph corpora/codex-s Q90 Q64 --limit 10

      workbench prepare graph corpora/codex-s Q90 --hops 2 --graphml paris.graphml
    """
    if not entity and (graphml or hops > 1):
        raise WorkbenchError("--hops and --graphml go out from entities; name the ids of some behind the graph")
    store = GraphStore.open(graph)
    console = Terminal()
    if not entity:
        console.print(_counts(store))
    if graphml or hops > 1:
        found = store.subgraph(entity, hops, limit)
        log.info("%d entities and %d triples within %d hops", len(found), found.number_of_edges(), hops)
        if graphml:
            write_graphml(found, graphml)
        else:
            console.print(_within(store, found))
        return
    for name in entity:
        console.print(_about(store, name, limit))


def _ranks(found: list[dict[str, dict[str, float]]]) -> Table:
    """The ranks of one training, or the means of several with the deviations between them (of a sample: n - 1)."""
    of = f", mean ± deviation of {len(found)} seeds" if len(found) > 1 else ""
    columns = ("mrr", "hits@1", "hits@3", "hits@10")
    table = Table("asked for", "MRR", *columns[1:], "triples", title=f"Link prediction (filtered){of}")
    for side, numbers in found[0].items():
        shares = (_spread([each[side][name] for each in found]) for name in columns)
        table.add_row(side, *shares, f"{numbers['examples']:,}")
    return table


def _spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.3f} ± {statistics.stdev(values):.3f}" if len(values) > 1 else f"{mean:.3f}"


def _counts(store: GraphStore) -> Table:
    table = Table("", "", title=str(store.path), show_header=False)
    for name, told in COUNTS.items():
        table.add_row(told, f"{store.meta[name]:,}")
    if store.num_entities:
        table.add_row("triples of an entity, the median", f"{np.median(store.degrees):,g}")
        most = int(store.degrees.argmax())
        table.add_row(f"triples of {store.label(store.ids[most])}, the most", f"{store.degrees[most]:,}")
    return table


def _within(store: GraphStore, found: networkx.MultiDiGraph) -> Table:
    table = Table("head", "relation", "tail")
    for head, tail, relation in found.edges(keys=True):
        table.add_row(store.label(head), store.relation_label(relation), store.label(tail))
    return table


def _about(store: GraphStore, entity: str, limit: int) -> Table:
    title = f"{store.label(entity)} ({entity})"
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
