"""`prepare vectors`: train vectors of the entities of a graph, or import pretrained vectors."""

from __future__ import annotations

import logging
import statistics
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from kg.graph.store import GraphStore
from kg.vectors.options import ImportOptions, VectorOptions
from pipelines.sources.triple_lines import read_triples
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Device, Repeats
from workbench.core.terminal import Terminal
from workbench.runs.output_places import OutputFile

log = logging.getLogger(__name__)


def vectors(
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    options: VectorOptions,
    importing: ImportOptions,
    source: Annotated[
        Path | None, typer.Option("--from", help="Import these vectors instead of training.", show_default=False)
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="Triples to rank afterwards: head, relation, tail in columns separated by tabs.")
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="Triples in the same layout; training stops when their ranks improve no more.")
    ] = None,
    known: Annotated[
        list[Path], typer.Option(help="Other true triples, in the same layout, that filter the ranks. Repeatable.")
    ] = [],  # noqa: B006
    shuffled: Annotated[
        bool,
        typer.Option("--shuffled", help="Train on the graph with its tails exchanged: for the control shuffled-kg."),
    ] = False,
    permuted: Annotated[
        bool,
        typer.Option("--permuted", help="Train on the graph with its tails permuted: for the control permuted-kg."),
    ] = False,
    seeds: Annotated[
        Repeats,
        typer.Option(help="Number of trainings to compare, from --seed on; the first one's vectors are written."),
    ] = 1,
    device: Annotated[Device, typer.Option(help="auto uses a GPU where there is one.")] = "auto",
) -> None:
    """Train vectors of the entities and relations of a graph, or take them over, for the entity stream of a model.

    The model is one of pykeen's, by name. --valid ranks these triples every --check-every epochs and keeps the best
    weights. --held-out prints the filtered ranks of triples that the graph lacks (realistic ranks, both sides); with
    --seeds, their mean and deviation over several trainings. By convention all true triples filter the ranks: the
    graph's, the ranked ones, and with --known those of the other splits.
    --shuffled and --permuted train on false facts instead, drawn with the seed; kg.entity_table takes such vectors
    under these names. The command logs how well the vectors separate the true tails from the false ones.

    --from imports pretrained vectors of the graph's entities: a folder with entity2vec.vec (ERNIE-THU's kg_embed),
    OpenKE's JSON, .npy (DGL-KE, OpenKE), PyTorch-BigGraph's .tsv, word2vec's text or binary. Keys that begin with
    ENTITY/ (wikipedia2vec) are looked up among the graph's labels. --map-to maps the vectors linearly into the space of
    a model's words, fitted on the words in both; kg.word_or_entity takes such vectors.

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
        if options != VectorOptions() or shuffled or permuted or ranked:
            raise WorkbenchError("--from imports vectors unchanged: remove the options of training and ranking")
        _take_over(graph, source, output, importing)
        return
    if shuffled and permuted:
        raise WorkbenchError("--shuffled and --permuted: the vectors are trained on one graph; give one of the two")
    if importing != ImportOptions():
        raise WorkbenchError("--format, --ids, --keys and --map-to need --from: name the vectors to import")
    store = GraphStore.open(graph)
    import torch

    from kg.vectors.training import train_vectors

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if shuffled or permuted:
        store = store.under("shuffled-kg" if shuffled else "permuted-kg", options.seed)
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
    from kg.vectors.pretrained_vectors import import_vectors

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


def _ranks(found: list[dict[str, dict[str, float]]]) -> Table:
    """The ranks of one training, or the means of several with the deviations between them (of a sample: n - 1)."""
    of = f", mean ± deviation of {len(found)} seeds" if len(found) > 1 else ""
    columns = ("mrr", "hits@1", "hits@3", "hits@10")
    table = Table("predicted", "MRR", *columns[1:], "triples", title=f"Link prediction (filtered){of}")
    for side, numbers in found[0].items():
        shares = (_statistics([each[side][name] for each in found]) for name in columns)
        table.add_row(side, *shares, f"{numbers['examples']:,}")
    return table


def _statistics(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.3f} ± {statistics.stdev(values):.3f}" if len(values) > 1 else f"{mean:.3f}"
