"""`prepare triples`: a knowledge graph -> a triples corpus, and the graph store next to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pipelines.commands.corpora.graph_options import NAMESPACE, WORDS, GraphOptions
from pipelines.commands.options import ReadingOptions, ShardSize
from pipelines.preparing.corpus_reader import open_corpus
from pipelines.preparing.splits import Splits
from pipelines.readers.reader import RawReader
from pipelines.stages import Stage
from pipelines.stages.fact_filter import CLASSIFIED, EXACT, PAIR, WithoutFacts
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location, Place, Word
from workbench.core.packages import extra
from workbench.corpora.corpus import Corpus

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TripleReading(ReadingOptions):
    """Default number of records per shard: entities are short records."""

    shard_size: ShardSize = 20_000
    inductive: Annotated[
        bool, typer.Option("--inductive", help="With --split: held-out entities are in no triple of the corpus.")
    ] = False

    namespace: Annotated[
        Word | None,
        typer.Option(help="Namespace of the ids; graphs that share it share entities. Default: detected from the ids."),
    ] = None

    def splits(self) -> Splits:
        """
        Raises:
            WorkbenchError: an inductive split without shares of the entities.
        """
        splits = Splits.parse(self.split, self.own_split, inductive=self.inductive)
        if self.inductive and (self.own_split or not self.split):
            raise WorkbenchError(
                "--inductive holds out a share of the entities: add --split NAME=SHARE, and remove --own-split"
            )
        return splits

    def about(self, reader: RawReader) -> Mapping[str, Any]:
        noted: dict[str, Any] = {WORDS: True} if getattr(reader, "words", False) else {}
        if self.namespace is not None:
            noted[NAMESPACE] = self.namespace
        return {**super().about(reader), **noted}


def triples(
    options: TripleReading,
    graph_options: GraphOptions,
    entities: Annotated[
        list[Location], typer.Option(help="File with labels, aliases, descriptions by entity id.")
    ] = [],  # noqa: B006
    relations: Annotated[list[Location], typer.Option(help="File with labels by relation id.")] = [],  # noqa: B006
    types: Annotated[list[Location], typer.Option(help="File with the list of types by entity id.")] = [],  # noqa: B006
    type_names: Annotated[list[Location], typer.Option(help="File with labels by type id.")] = [],  # noqa: B006
    without: Annotated[
        list[Place],
        typer.Option(
            help="Linked test set; facts of its pairs (relations) or entities (tags, types) are left out. Repeatable."
        ),
    ] = [],  # noqa: B006
) -> None:
    """Convert a knowledge graph into a triples corpus with one record per entity. The format is detected.

    --split moves the triples of a held-out head to the split; the graph store lacks them, but keeps the entity's texts.
    --inductive also drops and counts the triples whose tail is held out, so that training has no triple of a held-out
    entity (evaluate link-prediction --unseen).
    In a folder with splits (CoDEx, OpenKE) the training triples are read; the others with --option part=valid.

    Examples:

      workbench prepare triples codex/codex-s --output corpora/codex-s

      workbench prepare triples wn18rr/train.txt --entities wn18rr/entities.jsonl -o corpora/wn18rr

      workbench prepare triples wikidata.nt.gz -o corpora/wikidata --split held-out=0.01

      workbench prepare triples codex/codex-s -o corpora/codex-unseen --split valid=0.05 --split test=0.1 --inductive

      workbench prepare triples codex/codex-m -o corpora/codex-clean --without corpora/fewrel-test
    """
    if options.part is not None and graph_options.strict:
        raise WorkbenchError(
            f"--strict checks the graph, and --part {options.part} has none; give it to `prepare join`"
        )
    stages = _without(without)
    options.read("triples", stages, entities=entities, relations=relations, types=types, type_names=type_names)
    for reason in (EXACT, PAIR, CLASSIFIED) if without else ():
        dropped = Corpus.open(options.output).manifest.dropped
        count = sum(lost for found, lost in dropped.items() if found.endswith(reason))
        log.info("left out, %s: %s", reason, f"{count:,}")
    if options.part is not None:
        log.info("part %s has no graph; `workbench prepare join` builds that of the joined corpus", options.part)
    else:
        graph_options.build(options.place_of())


def _without(places: Sequence[str]) -> list[Stage]:
    """The stage that drops the facts of the test sets (`--without`)."""
    if not places:
        return []
    with extra("kg"):
        return [WithoutFacts.of(map(open_corpus, places))]
