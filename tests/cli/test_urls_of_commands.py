"""Every place that a command or a function of the API takes: a URL is honoured, or refused by name before any work."""

from __future__ import annotations

import inspect
import itertools
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.cli.app import Commands, app, call, typer_app
from workbench.cli.evaluation import TaskCommands
from workbench.cli.show import show
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic, check_writable, draft_folder
from workbench.core.files.lock import locked
from workbench.core.files.urls import LOCAL_ONLY, WRITTEN, local_path, url_of
from workbench.core.options.bounds import Location, Means
from workbench.core.options.command import options_of, spelling
from workbench.core.options.path_options import READ, is_path, remote
from workbench.core.options.values import check
from workbench.evaluation.task_modules import options_of_task

URL, SHORTENED = "memory://nothing-there/x", "memory:/"
OTHER = "https://example.org/x"
"""Of a protocol by which nothing is written."""
PLACES = {"a path or URL", WRITTEN, LOCAL_ONLY}
REQUIRED = {"family": "bert", "vectors": "fasttext", "over": "train.lr=1e-4..1e-2"}


def functions(commands: Commands, called: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command below a group with the function that has its options."""
    for name, entry in commands.entries.items():
        if isinstance(commands, TaskCommands):
            options = options_of_task(entry.path, commands.which)
            assert options is not None
            yield f"{called} {name}", commands.command_of(lambda: None, options)
            continue
        target = commands.target(called, name)
        if isinstance(target, Commands):
            yield from functions(target, f"{called} {name}")
            if name == "show":
                yield f"{called} {name}", show
        else:
            yield f"{called} {name}", target


def meanings(hint: Any) -> set[str]:
    """What the texts of an annotation mean."""
    if isinstance(hint, Means):
        return {hint.words}
    return set().union(*map(meanings, typing.get_args(hint)))


def is_place(parameter: Parameter) -> bool:
    return is_path(parameter.annotation) or bool(PLACES & meanings(parameter.annotation))


def takes_urls(hint: Any) -> bool:
    return (remote(hint) or READ).opened is not None if is_path(hint) else LOCAL_ONLY not in meanings(hint)


def words(parameter: Parameter, value: str) -> list[str]:
    name = spelling(parameter.name, parameter.annotation)
    return [name, value] if name.startswith("--") else [value]


def command_line(parameters: Mapping[str, Parameter], option: str) -> list[str]:
    """A call with a URL as the option; the other places that it needs are missing files."""
    arguments: list[str] = []
    for name, each in parameters.items():
        if name == option:
            arguments += words(each, URL)
        elif each.default is Parameter.empty:
            arguments += words(each, "missing" if is_place(each) else REQUIRED.get(name, "x"))
    return arguments


def wrong_answers(called: str, function: Callable[..., Any]) -> Iterator[str]:
    """The places of a command that get another answer to a URL than they should."""
    parameters = {parameter.name: parameter for parameter in options_of(function)}
    for option in filter(lambda name: is_place(parameters[name]), parameters):
        hint = parameters[option].annotation
        message, code = "", 0
        try:
            call(typer_app(function), command_line(parameters, option), called)
        except WorkbenchError as error:
            message, code = str(error), error.exit_code
        except SystemExit as ended:
            code = int(ended.code or 0)
        named = all(word in message for word in (spelling(option, hint), URL, LOCAL_ONLY))
        wrote = os.listdir()
        if code != 2 or wrote or SHORTENED in message.replace(URL, "") or not (named or takes_urls(hint)):
            yield f"{called} {spelling(option, hint)}: exit {code}, wrote {wrote}, {message!r}"


def test_url_is_honoured_or_refused_by_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where URLs are honoured, this one is missing, or other places are: no command gets as far as its work."""
    monkeypatch.chdir(tmp_path)
    commands = dict(functions(app, "workbench"))
    assert len(commands) > 75
    assert sum(is_place(each) for function in commands.values() for each in options_of(function)) > 225
    assert [wrong for each, function in commands.items() for wrong in wrong_answers(each, function)] == []


READS = {"anchors", "graph", "known", "lexicon", "linker", "vectors", "vocabulary", "weights", "senses", "images"}


def test_what_commands_read_may_be_at_a_url() -> None:
    """And what they write is marked, so that it is not taken for an input, whose copy would be in the cache."""
    commands = dict(functions(app, "workbench"))
    options = [(called, each) for called, function in commands.items() for each in options_of(function)]
    places = [(called, each) for called, each in options if is_place(each)]
    refused = {(called, spelling(o.name, o.annotation)) for called, o in places if not takes_urls(o.annotation)}
    assert refused == {
        ("workbench check", "--output"),
        ("workbench components", "--recipe"),
        ("workbench prepare join", "--output"),
        ("workbench prepare join", "PARTS"),
        ("workbench pretrain", "RECIPE"),
        ("workbench recipes", "--from"),
        ("workbench recipes", "[RECIPE]"),
        ("workbench sweep", "--output"),
        ("workbench sweep", "RECIPE"),
        ("workbench verify-resume", "--output"),
        ("workbench verify-resume", "RECIPE"),
    }
    assert {each.name for _, each in places} > READS
    outputs = [(called, each) for called, each in places if spelling(each.name, each.annotation) == "--output"]
    assert len(outputs) > 50
    assert [name for name, each in outputs if is_path(each.annotation) and remote(each.annotation) is None] == []


API = {
    "load": {"place": URL},
    "load_recipe": {"name": URL},
    "create_model": {"recipe": "tiny-text", "tokenizer": URL},
    "open_corpus": {"place": URL},
    "open_run": {"folder": URL},
    "prepare": {"command": "text", "inputs": "x", "output": OTHER},
    "prepare_text": {"inputs": "x", "output": OTHER},
    "prepare_image_text": {"inputs": "x", "output": OTHER},
    "prepare_triples": {"inputs": "x", "output": OTHER},
    "link": {"corpus": "x", "output": OTHER},
    "pretrain": {"recipe": "tiny-text", "output": OTHER},
    "finetune": {"run": URL, "task": "classify", "corpus": "x"},
    "evaluate": {"run": URL, "task": "classify", "corpus": "x"},
    "write_report": {"runs": URL},
    "compare": {"sides": URL},
    "verify_resume": {"recipe": "tiny-text", "output": OTHER},
}
FURTHER = [
    ("create_model", {"recipe": URL}),
    ("finetune", {"run": "x", "task": "classify", "corpus": "x", "output": OTHER}),
    ("write_report", {"runs": "x", "output": OTHER}),
    ("write_report", {"runs": "x", "opening": URL}),
    ("link", {"corpus": URL, "output": "x"}),
    ("prepare_text", {"inputs": URL, "output": "x"}),
]


def test_all_functions_are_tried() -> None:
    taking = {
        name
        for name in workbench.__all__
        if inspect.isfunction(function := getattr(workbench, name)) and inspect.signature(function).parameters
    }
    assert taking == set(API)


@pytest.mark.parametrize(("name", "values"), [*API.items(), *FURTHER])
@pytest.mark.parametrize("kind", [str, Path])
def test_url_in_python_is_honoured_or_refused(
    name: str, values: dict[str, str], kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also as a path object, which has lost a slash."""
    monkeypatch.chdir(tmp_path)
    given = {key: kind(value) if value in (URL, OTHER) else value for key, value in values.items()}
    sides = [given.pop("sides"), "x"] if "sides" in given else []
    with pytest.raises(WorkbenchError) as refused:
        getattr(workbench, name)(*sides, **given)
    message = str(refused.value)
    assert URL in message or OTHER in message
    assert SHORTENED not in message.replace(URL, "")
    assert not os.listdir(tmp_path)


def test_which_texts_are_urls() -> None:
    assert url_of("s3://bucket/x") == url_of(Path("s3://bucket/x")) == url_of("s3:/bucket/x") == "s3://bucket/x"
    for place in ("unknown://x", Path("unknown://x")):
        with pytest.raises(WorkbenchError, match="URLs of unknown:// are not opened; allowed: http, https"):
            url_of(place)
    for path in ("runs/x", "/runs/s3", "package:name", "file:///tmp/x", "c:/x", "a:b", "s3:"):
        assert url_of(path) is None
    assert local_path("file:///tmp/x") == local_path(Path("file:///tmp/x")) == Path("/tmp/x")
    assert check(Location, "file:///tmp/x", "place") == "file:///tmp/x"


@pytest.mark.parametrize("path", [Path("s3://bucket/x"), Path("/tmp/s3:/bucket/x"), Path("runs/hf:/x/y")])
def test_nothing_is_created_below_a_folder_with_the_name_of_a_protocol(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ways: list[Callable[[], Any]] = [
        lambda: atomic(path).__enter__(),
        lambda: draft_folder(path),
        lambda: check_writable(path),
        lambda: locked(path).__enter__(),
    ]
    for way in itertools.chain(ways):
        with pytest.raises(WorkbenchError, match="allowed here: a path on this machine, not a URL"):
            way()
    assert not os.listdir(tmp_path)


def test_cache_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", "s3://bucket/cache")
    with pytest.raises(WorkbenchError, match=r"WORKBENCH_CACHE = 's3://bucket/cache' is a URL"):
        workbench.open_corpus("memory://nothing-there/x")
