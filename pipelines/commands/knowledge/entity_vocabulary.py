"""`prepare entity-vocabulary`: the most frequently linked entities, as entity tokens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.commands import options
from pipelines.sources.files import decode, lines
from pipelines.sources.luke_entities import read_entities
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.options.bounds import Count, Place, Word
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.field_values import is_place
from workbench.corpora.schema.schema import fields_of, links_among
from workbench.runs.output_places import OutputFile

log = logging.getLogger(__name__)


def entity_vocabulary(
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    corpora: Annotated[
        list[Place] | None, typer.Argument(help="Folders of linked corpora.", show_default=False)
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(help="The entity_vocab.json (or .jsonl, .tsv) that LUKE's authors published, instead of corpora."),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="With --published: a file that maps titles to your ids, TITLE<tab>ID.")
    ] = None,
    language: Annotated[
        Word, typer.Option(help="With --published: language of the titles where there are several.")
    ] = "en",
    size: Annotated[Count, typer.Option(help="Most entities to keep, by frequency.")] = 500_000,
    min_count: Annotated[Count, typer.Option(help="Fewest links of an entity.")] = 1,
    limit: options.Limit = None,
) -> None:
    """Count the entities that are linked in corpora, and keep the frequent ones: the entity tokens of LUKE.

    Examples:

      workbench prepare entity-vocabulary corpora/wiki-linked --output entity-vocabulary.safetensors

      workbench prepare entity-vocabulary corpora/wiki-linked -o entities.safetensors --size 20000 --min-count 5

      workbench prepare entity-vocabulary --published luke/entity_vocab.json --keys titles.tsv -o entities.safetensors
    """
    if output.suffix != ".safetensors":
        raise WorkbenchError(
            f"--output {output}: an entity vocabulary is written to a .safetensors file; choose that suffix"
        )
    if published is not None and not corpora:
        _of_checkpoint(output, published, keys, language)
        return
    if published is not None or not corpora or keys is not None:
        raise WorkbenchError(
            "corpora and --published (with --keys) exclude each other; give linked corpora, or --published FILE"
        )
    opened = [Corpus.open(place) for place in corpora]
    from kg.sequences.entity_vocabulary import (
        save_entity_vocabulary,  # imports torch (seconds)
    )

    counts: Counter[str] = Counter()
    fields = {field.name for corpus in opened for field in links_among(fields_of(corpus.kind))}
    for sample in islice(chain.from_iterable(opened), limit):
        for field in fields:
            counts.update(entities_in(sample.get(field, ())))
    frequent = Counter({entity: count for entity, count in counts.items() if count >= min_count})
    if not frequent:
        raise WorkbenchError(
            f"no entity has {min_count} links in {', '.join(corpora)}; link the texts first (workbench prepare "
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


def _of_checkpoint(output: Path, published: Path, keys: Path | None, language: str) -> None:
    """The entities of a published vocabulary, in its rows: for its table of vectors (`model.init_from`)."""
    from kg.sequences.entity_vocabulary import SPECIAL, write_entity_vocabulary

    listed = read_entities(published, language)
    if tuple(title for title, _ in listed[: len(SPECIAL)]) != SPECIAL:
        found = ", ".join(title for title, _ in listed[: len(SPECIAL)])
        raise WorkbenchError(f"{published} begins with the rows {found}; allowed: {', '.join(SPECIAL)}, as LUKE's do")
    ids = {} if keys is None else dict(_key_rows(keys))
    taken, chosen = set[str](), []
    for title, _ in listed[len(SPECIAL) :]:
        entity = ids.get(title, title)
        chosen.append(title if entity in taken else entity)
        taken.add(chosen[-1])
    counts = dict(zip(chosen, (count for _, count in listed[len(SPECIAL) :]), strict=True))
    named = sum(title in ids for title, _ in listed)
    provenance = {"published": {str(published): sha256_of(published)}, "language": language, "named": named}
    write_entity_vocabulary(output, chosen, counts, provenance)
    note = f"; {named:,} of them have the ids of {keys}" if keys is not None else ", with their titles as ids"
    log.info("%s: %s entities in %s rows%s", output, f"{len(chosen):,}", f"{len(listed):,}", note)


def _key_rows(path: Path) -> Iterator[tuple[str, str]]:
    for number, raw in lines(path):
        title, _, entity = decode(raw, f"{path}:{number}").strip().partition("\t")
        if not title or not entity:
            raise WorkbenchError(f"{path}:{number}: expected TITLE<tab>ID")
        yield title, entity


def entities_in(value: Any) -> Iterator[str]:
    """The linked entities of a field (a text, a list or a mapping of texts); of several candidates the first."""
    if isinstance(value, Mapping):
        value = list(value.values())
    linked = {tuple(link[:2]): link[2] for link in reversed(value) if is_place(link)}
    yield from linked.values()
    for inner in value:
        if not is_place(inner):
            yield from entities_in(inner)
