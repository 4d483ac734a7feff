"""The command `workbench export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from workbench.interop.families import family_of
from workbench.interop.files import check_place, check_release_folder
from workbench.options.bounds import PartName, Word
from workbench.options.command import Trust, WhichNetwork
from workbench.parts.trust import allow
from workbench.terminal import Terminal


def export(
    run: Annotated[Path, typer.Argument(help="The run, or a release: a folder, package:NAME.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    family: Annotated[PartName, typer.Option("--as", help="The family of releases (workbench parts release).")],
    network: WhichNetwork = None,
    stream: Annotated[Word | None, typer.Option(help="Only this stream, where no layer lets others into it.")] = None,
    objective: Annotated[
        Word | None, typer.Option(help="Of several heads of one kind the one that leaves, by its objective's name.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a run's network as other people's code reads it (config.json, model.safetensors, tokenizer.json and
    tokenizer_config.json).

    Examples:

      workbench export runs/bert --as bert --output exported/bert

      workbench export runs/uniter --as vision.uniter --output exported/uniter

      workbench export runs/two-encoders --stream text --as bert --output exported/text
    """
    check_release_folder(output)
    family = family_of(family)
    check_place(run)
    allow([family], Path.cwd(), f"the family {family!r}", trust=trust)
    from workbench.interop.exporting import exported, one_of_a_kind, write_release
    from workbench.interop.opening import load
    from workbench.interop.reading import make_release
    from workbench.interop.release import Config
    from workbench.interop.special_ids import with_special_ids
    from workbench.interop.tokenizer_files import frame_of, write_tokenizer
    from workbench.models.adapting import merge
    from workbench.tasks.task import objectives_of, visibilities_of

    loaded = load(run, trust=trust)
    chosen = loaded.model.network_name(network)
    merge(loaded.model.network(chosen))
    recipe = loaded.recipe
    objectives = objectives_of(recipe, chosen)
    given = {"vocab_size": loaded.tokenizer.vocab_size} if loaded.tokenizer is not None else {}
    heads, objectives = one_of_a_kind(loaded.model.heads_of(chosen), objectives, objective, run)
    spec = recipe.all_networks[chosen]
    seen = visibilities_of(recipe, chosen)
    release = make_release(family)
    made = exported(family, loaded.model.network(chosen), spec, heads, objectives, stream, seen, **given)
    if loaded.tokenizer is not None:
        made = made._replace(config=with_special_ids(made.config, loaded.tokenizer, release.counts_padding))
    write_release(output, made)
    if loaded.tokenizer is not None:
        described = release.network(Config(made.config))
        write_tokenizer(output, loaded.tokenizer, described, frame_of(loaded, chosen), release.goes_on)
    kind = made.config.get("architectures", [family])[0]
    console = Terminal()
    console.print(f"{escape(str(output))}: {len(made.tensors)} tensors of {escape(str(kind))}")
    if made.left:
        console.print(f"left out, as {escape(family)} has no such heads: {escape(', '.join(made.left))}")
