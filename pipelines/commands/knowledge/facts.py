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
from workbench.core.files.drafts import write_text
from workbench.core.options.bounds import Count, Seed
from workbench.core.packages import extra

if TYPE_CHECKING:
    from kg.graph.store import GraphStore

log = logging.getLogger(__name__)
NAMED = 5
"""So many relations are named that the graph lacks."""


def facts(
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    templates: Annotated[
        Path, typer.Option(help="A sentence for each relation: lines of RELATION<tab>TEMPLATE, LAMA's.")
    ],
    options: WritingOptions,
    triples: Annotated[
        Path | None, typer.Option(help="The facts to ask for, head, relation, tail; default: those of the graph.")
    ] = None,
    known: Annotated[list[Path], typer.Option(help="More triples that are true, in the same layout. Repeatable.")] = [],  # noqa: B006
    candidates: Annotated[
        Literal["objects", "types"],
        typer.Option(help="What an object is ranked among: the relation's objects, or all entities of their types."),
    ] = "objects",
    most: Annotated[Count | None, typer.Option(help="Facts of a relation at most, drawn with --seed.")] = None,
    seed: Seed = 0,
) -> None:
    """The facts of a graph as sentences with a slot where the object was, and the candidates for it.

    A template such as "[X] was born in [Y] ." has one place for the subject and one for the object; entities are spelt
    by their labels. The new corpus has the candidates in its file candidates.json, and in each record all objects that
    are true of the subject, which do not compete: `workbench evaluate facts RUN CORPUS` needs nothing else. Entities of
    one label are one candidate, which is right where one of them is.

    Relations that the graph lacks are left out and counted: LAMA's relations.jsonl can be given as it is.

    Facts that a graph for training lacks come from --triples; then the parts that it was split from are --known.

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
    write_text(options.output / CANDIDATES, json.dumps(listed, ensure_ascii=False, indent=1) + "\n")


def _counted(listed: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """What is noted of the candidates, over all relations; says how many spellings are ambiguous."""
    entities = [Counter(each["label"] for each in of) for of in listed.values()]
    spellings, shared = sum(map(len, entities)), sum(n > 1 for of in entities for n in of.values())
    if shared:
        log.warning(
            "%s of %s spellings of the objects are labels of several entities; each is one candidate, which is right "
            "where one of its entities is",
            f"{shared:,}",
            f"{spellings:,}",
        )
    return {"entities": sum(of.total() for of in entities), "spellings": spellings, "of several entities": shared}


def _templates(path: Path, store: GraphStore) -> tuple[tuple[str, str], ...]:
    """The sentence of each relation; those that the graph lacks are left out, which is told (it has no fact of them).

    Raises:
        WorkbenchError: the graph has none of the relations, or a template is without its two places.
    """
    with extra("kg"):
        from kg.evaluation.facts.clozes import check_template
    found = read_templates(path)
    for relation, template in found.items():
        check_template(template, f"{path}, relation {relation!r}")
    lacking = [relation for relation in found if store.relation_ids.find(relation) < 0]
    if len(lacking) == len(found):
        store.relation_row(lacking[0])  # says what is like it
    if lacking:
        named = ", ".join([*lacking[:NAMED], *(["..."] if lacking[NAMED:] else [])])
        log.warning(
            "%s of %s relations with a template are not in the graph, and left out: %s",
            *(f"{len(lacking):,}", f"{len(found):,}", named),
        )
    return tuple((relation, template) for relation, template in found.items() if relation not in lacking)
