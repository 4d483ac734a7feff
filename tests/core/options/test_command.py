"""Options that commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import ComponentName, Count, Positive
from workbench.core.options.command import call_from_python, command, options_from_python


@dataclass(frozen=True, kw_only=True)
class Shared:
    corpus: Annotated[Path, typer.Argument()]
    lr: Annotated[Positive, typer.Option(help="Peak.")] = 0.5
    tags: Annotated[list[str], typer.Option("--tag")] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Slower(Shared):
    lr: Annotated[Positive, typer.Option(help="Peak.")] = 0.25


@command
def example(shared: Slower, own: Annotated[int, typer.Option(help="Its own.")] = 3) -> tuple[Slower, int]:
    """What it does."""
    typer.echo(f"{shared.corpus} {shared.lr} {shared.tags} {own}")
    return shared, own


def call(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(example)
    result = CliRunner().invoke(app, arguments)
    return result.output


def test_fields_are_options_with_the_subclass_defaults() -> None:
    assert call("corpora/a").strip() == "corpora/a 0.25 [] 3"
    assert (
        call("corpora/a", "--lr", "2", "--tag", "x", "--tag", "y", "--own", "4").strip() == "corpora/a 2.0 ['x', 'y'] 4"
    )


def test_help_shows_both_and_required_fields_are_required() -> None:
    shown = call("--help")
    assert all(text in shown for text in ("What it does.", "--lr", "Peak.", "--own", "Its own."))
    assert "Missing argument" in call()


def test_from_python_by_keyword_each_call_with_lists_of_its_own() -> None:
    first, _ = example(corpus=Path("a"))
    second, own = example(corpus=Path("b"), own=7)
    assert (first.corpus, first.lr, own) == (Path("a"), 0.25, 7)
    assert first.tags is not second.tags


def test_a_value_out_of_bounds_is_refused_by_the_name_that_the_user_typed() -> None:
    with pytest.raises(WorkbenchError, match=r"^--lr = nan; allowed: a number above 0, at most 1e\+06$"):
        example(corpus=Path("a"), lr=float("nan"))


def test_an_option_of_another_name_is_refused_by_the_name_that_the_user_typed() -> None:
    def act(family: Annotated[ComponentName, typer.Option("--as", "-a")]) -> str:
        return family

    with pytest.raises(WorkbenchError, match=r"^--as = ''; allowed: the name of a component"):
        command(act)(family="")


def test_an_option_that_may_be_left_out_is_not_offered_null() -> None:
    def act(top_k: Annotated[Count | None, typer.Option()] = None) -> int | None:
        return top_k

    called = command(act)
    assert (called(top_k=3), called(top_k=None)) == (3, None)
    with pytest.raises(WorkbenchError, match=r"^--top-k = 0; allowed: a whole number from 1, at most [0-9,]+$"):
        called(top_k=0)


def test_help_keeps_what_stands_in_brackets() -> None:
    def act(lr: Annotated[Positive, typer.Option()] = 0.5) -> None:
        """Do it.

        Example: act tasks.text.corpora=[corpora/notes]
        """

    app = typer.Typer(rich_markup_mode="rich")
    app.command()(command(act))
    assert "corpora=[corpora/notes]" in CliRunner().invoke(app, ["--help"]).output


def test_python_gives_text_for_paths_one_for_a_list_and_mappings_for_assignments() -> None:
    shared, own = call_from_python(example, corpus="a", tags="x", own=1)
    assert (shared.corpus, shared.tags, own) == (Path("a"), ["x"], 1)
    assert options_from_python(Slower, corpus=Path("a"), tags={"held-out": 0.1, "name": "b c"}) == Slower(
        corpus=Path("a"), tags=["held-out=0.1", "name=b c"]
    )
    with pytest.raises(WorkbenchError, match=r"unknown option 'tag'\. Did you mean 'tags'"):
        call_from_python(example, corpus="a", tag="x")
    with pytest.raises(WorkbenchError, match=r"^lr = -1; allowed"):
        call_from_python(example, corpus="a", lr=-1)
    with pytest.raises(WorkbenchError, match="corpus"):
        call_from_python(example)
