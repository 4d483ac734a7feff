"""The sub-commands of `workbench prepare`."""

from __future__ import annotations

import typer

from kg.commands import graph, vectors
from pipelines.image_text import image_text
from pipelines.link import link
from pipelines.linker import linker
from pipelines.regions import regions
from pipelines.text import text
from pipelines.tokenizer import tokenizer
from pipelines.triples import triples
from workbench.options import command

app = typer.Typer(
    name="prepare",
    help="Turn raw text, image-text or triples into a corpus; link entities, extract regions, train tokenizers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for function in (text, image_text, triples, tokenizer, graph, vectors, linker, link, regions):
    app.command()(command(function))
