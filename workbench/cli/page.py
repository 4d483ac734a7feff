"""The option `--markdown` of the commands that list something: all of it as its page of the documentation instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer
from typer.models import OptionInfo


def as_page(page: str, lines: Callable[[], Iterable[str]]) -> OptionInfo:
    """The option of the command that writes the page `docs/<page>` of these lines; with it the command does no more."""

    def write(wanted: bool) -> bool:
        if wanted:
            typer.echo("\n".join(lines()))
            raise typer.Exit
        return wanted

    option: OptionInfo = typer.Option(
        "--markdown", callback=write, is_eager=True, help=f"All of them as the page docs/{page}."
    )
    return option
