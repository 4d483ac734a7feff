"""`prepare entity-vocabulary`: the entities that are linked most often, as tokens of their own."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Annotated, Any

import typer

from pipelines.commands import options
from pipelines.commands.console import run
from pipelines.preparing.corpus_reader import all_samples
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema import fields_of, links_among
from workbench.corpora.values import is_place
from workbench.errors import WorkbenchError
from workbench.options.bounds import Count, Location
from workbench.options.command import command
from workbench.runs.outputs import OutputFile

log = logging.getLogger(__name__)


@command
def entity_vocabulary(
    corpora: Annotated[list[Location], typer.Argument(help="Folders of linked corpora.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    size: Annotated[Count, typer.Option(help="Entities, the most frequent ones.")] = 500_000,
    min_count: Annotated[Count, typer.Option(help="How often an entity must be linked.")] = 1,
    limit: options.Limit = None,
) -> None:
    """Count the entities that are linked in corpora, and keep the frequent ones: the entity tokens of LUKE.

    Examples:

      workbench prepare entity-vocabulary corpora/wiki-linked --output entity-vocabulary.safetensors

      workbench prepare entity-vocabulary corpora/wiki-linked -o entities.safetensors --size 20000 --min-count 5
    """
    if output.suffix != ".safetensors":
        raise WorkbenchError(f"a vocabulary of entities is a .safetensors file; {output} has another ending")
    opened = [Corpus.open(place) for place in corpora]
    from kg.sequences.entity_vocabulary import (
        save_entity_vocabulary,  # torch takes seconds, a missing corpus needs none
    )

    counts: Counter[str] = Counter()
    fields = {field.name for corpus in opened for field in links_among(fields_of(corpus.kind))}
    for sample in islice(chain.from_iterable(map(all_samples, opened)), limit):
        for field in fields:
            counts.update(entities_in(sample.get(field, ())))
    frequent = Counter({entity: count for entity, count in counts.items() if count >= min_count})
    if not frequent:
        raise WorkbenchError(
            f"no entity is linked {min_count} times in {', '.join(corpora)}; link the texts first (workbench prepare "
            "link), or lower --min-count"
        )
    provenance = {
        "size": size,
        "min_count": min_count,
        "limit": limit,
        "corpora": {str(corpus.place): corpus.identity for corpus in opened},
    }
    kept = save_entity_vocabulary(output, frequent, size, provenance)
    covered = sum(count for _, count in frequent.most_common(size)) / counts.total()
    log.info("%s: %s entities, %.1f %% of %s links", output, f"{kept:,}", 100 * covered, f"{counts.total():,}")


def entities_in(value: Any) -> Iterator[str]:
    """The entities of a field of links, whatever texts it is of (one, several, by name): of candidates the first."""
    if isinstance(value, Mapping):
        value = list(value.values())
    linked = {tuple(link[:2]): link[2] for link in reversed(value) if is_place(link)}
    yield from linked.values()
    for inner in value:
        if not is_place(inner):
            yield from entities_in(inner)


if __name__ == "__main__":
    run(entity_vocabulary)
