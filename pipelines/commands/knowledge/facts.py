"""`prepare facts`: cloze sentences of the facts of a graph, for `evaluate facts`."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.sources.templates import read_templates
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Seed
from workbench.core.packages import extra

if TYPE_CHECKING:
    from kg.graph.store import GraphStore

log = logging.getLogger(__name__)
NAMED = 5
"""The most relations without a place in the graph that a message names."""


def facts(
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    templates: Annotated[
        Path, typer.Option(help="Sentences of relations: lines of RELATION<tab>TEMPLATE, or LAMA's file.")
    ],
    options: WritingOptions,
    triples: Annotated[
        Path | None, typer.Option(help="Facts to predict: head, relation, tail. Default: the graph's.")
    ] = None,
    known: Annotated[
        list[Path], typer.Option(help="A file of further true triples, in the same layout. Repeatable.")
    ] = [],  # noqa: B006
    candidates: Annotated[
        Literal["objects", "types"],
        typer.Option(help="Candidates of an object: the relation's objects, or all entities of their types."),
    ] = "objects",
    most: Annotated[Count | None, typer.Option(help="Maximum number of facts per relation, drawn with --seed.")] = None,
    seed: Seed = 0,
) -> None:
    """Turn the facts of a graph into cloze sentences with candidates for the object.

    A template such as "[X] was born in [Y] ." has one place for the subject and one for the object. Labels of the
    entities fill them. The new corpus has the candidates in its file candidates.json. Each record lists all true
    objects of the subject, which are not ranked against each other: `workbench evaluate facts RUN CORPUS` needs nothing
    else. Entities with the same label are one candidate. It counts as right if any of them is the object.

    Relations that the graph lacks are left out and counted, so LAMA's relations.jsonl can be given unchanged.

    --triples reads facts that a training graph lacks. Name the other splits of the graph with --known.

    Examples:

      workbench prepare facts corpora/codex-m --templates templates.tsv --output corpora/facts --most 1000

      workbench prepare facts corpora/codex-m --templates templates.tsv --triples codex-m/test.txt \
--known codex-m/valid.txt -o corpora/facts-test
    """
    with extra("kg"):
        from kg.evaluation.facts.clozes import CANDIDATES
        from kg.graph.store import GraphStore
        from pipelines.preparing.clozes import ClozeReader
    sentences = _templates(templates, GraphStore.open(graph))
    asked = None if triples is None else str(triples)
    reader = ClozeReader(str(graph), sentences, asked, tuple(map(str, known)), candidates, most, seed)
    if triples is not None and not reader.asked:
        named = ", ".join(relation for relation, _ in sentences)
        raise WorkbenchError(f"{triples} has no triple of a relation with a template ({named})")
    listed = reader.listed
    about = {"candidates": _counted(listed), "relations": [relation for relation, _ in sentences]}
    options.prepare(Conversion(reader), [templates, *([triples] if triples else []), *known], "text", about=about)
    options.add_file(CANDIDATES, json.dumps(listed, ensure_ascii=False, indent=1) + "\n")


def _counted(listed: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """The `about` fact of the candidates over all relations; logs the number of ambiguous spellings."""
    entities = [Counter(each["label"] for each in of) for of in listed.values()]
    spellings, shared = sum(map(len, entities)), sum(n > 1 for of in entities for n in of.values())
    if shared:
        log.warning(
            "%s of %s spellings of the objects are labels of several entities; each is one candidate, which counts "
            "as right if any of its entities is the object",
            f"{shared:,}",
            f"{spellings:,}",
        )
    return {"entities": sum(of.total() for of in entities), "spellings": spellings, "of several entities": shared}


def _templates(path: Path, store: GraphStore) -> tuple[tuple[str, str], ...]:
    """The sentence of each relation in the graph; the others are left out and logged.

    Raises:
        WorkbenchError: the graph has none of the relations, or a template lacks one of its two places.
    """
    with extra("kg"):
        from kg.evaluation.facts.clozes import check_template
    found = read_templates(path)
    for relation, template in found.items():
        check_template(template, f"{path}, relation {relation!r}")
    lacking = [relation for relation in found if store.relation_ids.find(relation) < 0]
    if len(lacking) == len(found):
        store.relation_row(lacking[0])  # names similar relations
    if lacking:
        named = ", ".join([*lacking[:NAMED], *(["..."] if lacking[NAMED:] else [])])
        log.warning(
            "%s of %s relations with a template are not in the graph, and left out: %s",
            *(f"{len(lacking):,}", f"{len(found):,}", named),
        )
    return tuple((relation, template) for relation, template in found.items() if relation not in lacking)
