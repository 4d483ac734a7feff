"""`--markdown` of the commands that list something: the page and nothing else; without it the list."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from workbench.cli.app import typer_app
from workbench.cli.parts import list_parts
from workbench.cli.recipes import list_recipes
from workbench.cli.tasks import list_tasks


@pytest.mark.parametrize("listing", [list_parts, list_recipes, list_tasks])
def test_the_page_stands_in_for_the_list(listing: Callable[..., None]) -> None:
    page, listed = (CliRunner().invoke(typer_app(listing), arguments) for arguments in (["--markdown"], []))
    assert page.exit_code == listed.exit_code == 0
    assert page.output.startswith("# ")
    assert not listed.output.startswith("#")
    assert len(listed.output) > 100
