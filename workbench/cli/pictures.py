"""Pictures of runs: `workbench show PICTURE RUN ...`. A picture is a file, `pictures/<name>.py` of a package, with a
function `draw` whose parameters are the command's options; the first line of the file is the line in the help."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

from workbench.cli.app import Commands, Entry, typer_app
from workbench.cli.app import call as call_app
from workbench.interop.files import check_place
from workbench.parts.building import SHIPPED
from workbench.parts.modules import is_module


def picture_entries() -> dict[str, Entry]:
    """The pictures that come with the workbench by name, found without importing them."""
    found: dict[str, Entry] = {}
    for package in SHIPPED:
        room = f"{package}.pictures"
        if is_module(room):
            place = importlib.import_module(room).__path__
            names = sorted(m.name for m in pkgutil.iter_modules(place) if not m.name.startswith("_"))
            found |= {name: Entry(f"{room}.{name}:draw", _first_line(Path(place[0]) / f"{name}.py")) for name in names}
    return found


def _first_line(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return told.partition("\n\n")[0].replace("\n", " ")


class ShowCommands(Commands):
    """`show TARGET`, and `show PICTURE RUN ...`; a corpus that is called like a picture is `./PICTURE`."""

    def __init__(self) -> None:
        super().__init__(picture_entries(), "")

    def run(self, arguments: list[str], called: str) -> None:
        if arguments and arguments[0] in self.entries:
            if arguments[1:] and not arguments[1].startswith("-"):
                check_place(Path(arguments[1]))  # before what draws is imported, which takes seconds
            super().run(arguments, called)
            return
        from workbench.cli.show import show

        call_app(typer_app(show), arguments, called)


command = ShowCommands()
