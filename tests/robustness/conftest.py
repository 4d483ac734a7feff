"""The command line in this process, in a temporary folder, with small inputs and a recipe that fits them."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from workbench.cli.app import main

NOTES = [f"The old river number {n} runs past a small town. People buy bread there." for n in range(40)]
RECIPE = """
vars: {corpus: corpora/text}
tokenizer: corpora/tokenizer.json
model:
  streams:
    text: {embedding: token, hidden_size: 16, max_positions: 64}
  layers:
    - {layer: self, stream: text, num_heads: 2, intermediate_size: 32}
tasks:
  text:
    corpora: ["${vars.corpus}"]
    sequence: {builder: document, max_length: 64}
    objectives: [{objective: mlm}]
train: {max_steps: 4, global_batch_size: 8, micro_batch_size: 4, lr: 1e-3, num_workers: 0, log_every: 1, save_every: 2}
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """One thread, and the logging as it was before each command configured it."""
    handlers, level, threads = logging.getLogger().handlers[:], logging.getLogger().level, torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, on a machine with one core (so that no process is spawned)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def workbench(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `workbench ARGUMENTS`."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["workbench", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def refused(workbench: Run) -> Callable[..., str]:
    """Runs a command that must end with exit code 2 (or another `code`) and one message; returns the message."""

    def run(*arguments: object, code: int = 2) -> str:
        ended = workbench(*arguments)
        said = ended.out + ended.err
        assert ended.code == code, said
        assert said.count("error:") == 1, said
        assert "Traceback" not in said
        message = ended.err[ended.err.index("error:") :].strip()
        assert len(message) < 1200
        return message

    return run


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`notes.txt`, `corpora/text` and `corpora/tokenizer.json`, made by the commands."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "notes.txt").write_text("\n\n".join(NOTES))
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("os.sched_getaffinity", lambda _: {0})
        for command in (
            "prepare text notes.txt --output corpora/text --shard-size 10",
            "prepare tokenizer corpora/text --output corpora/tokenizer.json --vocab-size 120",
        ):
            patch.setattr(sys, "argv", ["workbench", *command.split()])
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code
    return folder


@pytest.fixture
def world(prepared: Path, here: Path) -> Path:
    """The working directory with a fresh copy of `prepared` in it."""
    shutil.copytree(prepared, here, dirs_exist_ok=True)
    return here


@pytest.fixture
def lines(here: Path) -> Callable[..., Path]:
    """Writes JSON lines: `lines("docs.jsonl", {...}, {...})`."""

    def write(name: str, *rows: object) -> Path:
        (here / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return here / name

    return write
