"""The command `workbench export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from workbench.components.trust import allow
from workbench.core.options.bounds import ComponentName, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.interop.checkpoint_files import Also, check_checkpoint_folder, check_place, family_of
from workbench.runs.output_places import OutputFolder
from workbench.runs.stored_run import StoredFolder


def export(
    run: Annotated[StoredFolder, typer.Argument(help="The run, or a checkpoint: a folder, a URL or package:NAME.")],
    output: Annotated[OutputFolder, typer.Option("--output", "-o", help="The folder to write.")],
    family: Annotated[
        ComponentName,
        typer.Option("--as", help="The checkpoint family: bert, gpt2, llama, ... (workbench components family)."),
    ],
    network: WhichNetwork = None,
    stream: Annotated[
        Word | None, typer.Option(help="Export only this stream; no layer may let other streams into it.")
    ] = None,
    objective: Annotated[
        Word | None, typer.Option(help="The objective whose head is exported, where several heads are of one kind.")
    ] = None,
    also: Annotated[
        list[Also] | None,
        typer.Option(help="sentence-transformers or onnx: a library that the folder gets files for. Repeatable."),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Write the matrices of linear layers as int8, with a scale for each row.")
    ] = False,
    pool: Annotated[
        Word | None,
        typer.Option(
            help="The vectors of sentence-transformers: mean, summary, pooled, or an objective with vectors (itc)."
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a run's network as a checkpoint of Hugging Face or of an original code base.

    The folder holds config.json, model.safetensors, tokenizer.json and tokenizer_config.json.

    Examples:

      workbench export runs/bert --as bert --output exported/bert

      workbench export runs/uniter --as vision.uniter --output exported/uniter

      workbench export runs/two-encoders --stream text --as bert --output exported/text

      workbench export runs/bert --as bert --also sentence-transformers --output exported/sentences

      workbench export runs/sst2 --as bert --also onnx --output exported/sst2

      workbench export runs/sst2 --as bert --int8 --output exported/sst2-int8
    """
    check_checkpoint_folder(output, run)
    family = family_of(family)
    check_place(run)
    allow([family], Path.cwd(), f"the family {family!r}", trust=trust)
    from workbench.interop.checkpoint_writer import export as write
    from workbench.interop.run_or_checkpoint import load

    loaded = load(run, trust=trust)
    which = {"network": network, "stream": stream, "objective": objective}
    exported = write(loaded, output, family, **which, also=also or (), int8=int8, pool=pool, place=run)
    kind = exported.config.get("architectures", [family])[0]
    console = Terminal()
    console.print(f"{escape(str(output))}: {len(exported.tensors)} tensors of {escape(str(kind))}")
    for line in exported.forms:
        console.print(escape(line.replace("`", "")), highlight=False)
    for line in exported.left:
        console.print(f"left out, as {escape(family)} has no form for it: {escape(line)}", highlight=False)
