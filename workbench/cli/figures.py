"""Figures of runs: `workbench show FIGURE RUN ...`. A figure is a file `figures/<name>.py` of a package with a function
`draw`. The function's parameters are the command's options; the first line of the file is its line in the help."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

from workbench.cli.app import Commands, Entry, typer_app
from workbench.cli.app import call as call_app
from workbench.components.building import SHIPPED
from workbench.components.trust import is_module
from workbench.core.files.urls import url_of
from workbench.interop.checkpoint_files import check_place


def figure_entries() -> dict[str, Entry]:
    """The figures of the workbench by name, found without importing them."""
    found: dict[str, Entry] = {}
    for package in SHIPPED:
        room = f"{package}.figures"
        if is_module(room):
            place = importlib.import_module(room).__path__
            names = sorted(m.name for m in pkgutil.iter_modules(place) if not m.name.startswith("_"))
            found |= {name: Entry(f"{room}.{name}:draw", _first_line(Path(place[0]) / f"{name}.py")) for name in names}
    return found


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


class ShowCommands(Commands):
    """The commands `show TARGET` and `show FIGURE RUN ...`. A corpus with a figure's name is `./NAME`."""

    def __init__(self) -> None:
        super().__init__(figure_entries(), "")

    def run(self, arguments: list[str], called: str) -> None:
        if arguments and arguments[0] in self.entries:
            plain = not any(argument.startswith("-") for argument in arguments)  # options are checked first
            if arguments[1:] and plain and url_of(arguments[1]) is None:
                check_place(Path(arguments[1]))  # before the figure is imported, which takes seconds
            super().run(arguments, called)
            return
        from workbench.cli.show import show

        call_app(typer_app(show), arguments, called)


command = ShowCommands()
