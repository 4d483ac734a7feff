"""The command `workbench export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from workbench.interop.bert import write_folder
from workbench.models.adapting import merge
from workbench.options.command import Trust, WhichNetwork
from workbench.terminal import Terminal


def export(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    output: Annotated[Path, typer.Option(help="The folder to write.")],
    network: WhichNetwork = None,
    trust: Trust = False,
) -> None:
    """Write a run's network as a Hugging Face folder (config.json, model.safetensors, tokenizer.json).

    Example:

      workbench export runs/bert --output exported/bert
    """
    from workbench.runs.loading import load

    loaded = load(run, trust=trust)
    chosen = loaded.model.network_name(network)
    merge(loaded.model.network(chosen))
    write_folder(output, loaded.model.network(chosen), loaded.model.heads_of(chosen).state_dict())
    if loaded.tokenizer is not None:
        loaded.tokenizer.save(output / "tokenizer.json")
    Terminal().print(f"{escape(str(output))}: load it with transformers.AutoModel.from_pretrained")
