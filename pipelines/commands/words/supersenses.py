"""`prepare supersenses`: the possible supersenses of a vocabulary's tokens, from a graph of senses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import with_urls
from workbench.core.options.bounds import Place
from workbench.core.packages import extra
from workbench.runs.output_places import OutputFile
from workbench.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)
LEXICOGRAPHERS = ("noun.", "verb.", "adj.", "adv.")
"""Prefixes of WordNet's classes."""


def supersenses(
    graph: Annotated[Path, typer.Argument(help="A triples corpus of WordNet, or its graph store.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .json.", show_default=False)],
    tokenizer: Annotated[Place, typer.Option(help="The tokenizer of the recipe.", show_default=False)],
) -> None:
    """Find the classes of the senses of each token that is a word, for kg.supersense and kg.sense_token (SenseBERT).

    The classes are the types of the graph's entities: WordNet's 45 lexicographer classes. A word has the classes of all
    its synsets. Words of up to 3 letters, stop words and subwords have none.

    Example:

      workbench prepare supersenses corpora/wordnet --tokenizer tokenizer.json --output supersenses.json
    """
    if output.suffix != ".json":
        raise WorkbenchError(f"--output {output}: supersenses are written to a .json file; choose that suffix")
    with extra("kg"):
        from kg.graph.store import GraphStore
        from kg.lexicons.supersense_table import find_supersenses, save_supersenses
    store, cut = GraphStore.open(graph), Tokenizer.load(tokenizer)
    found = find_supersenses(store, cut)
    provenance = {"graph": {"path": with_urls(str(store.path)), "identity": store.identity}}
    if not any(name.startswith(LEXICOGRAPHERS) for name in found.classes):
        log.warning(
            "%s: its types, such as %s, are no supersenses (noun.animal, verb.motion), but serve as the classes: "
            "is it a graph of senses? WordNet's folder `dict` is one (workbench prepare triples dict --output CORPUS)",
            *(store.path, ", ".join(map(repr, found.classes[:3]))),
        )
    save_supersenses(output, found, cut.identity, provenance)
    senses = found.allowed.sum(1)
    log.info(
        "%s: %d classes; %s of %s tokens have some, %s of them one alone",
        output,
        len(found.classes),
        f"{(senses > 0).sum():,}",
        f"{len(senses):,}",
        f"{(senses == 1).sum():,}",
    )
