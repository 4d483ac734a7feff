"""The files that the documentation takes for granted, tiny, and a way to run its blocks quickly."""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from pipelines.demo.row_files import write_jsonl
from pipelines.demo.small_files import write_small_files
from tests.hub import served_hub
from tests.videos import tone, video
from workbench.cli.app import main
from workbench.interop.checkpoint_files import CONFIG, WEIGHTS
from workbench.interop.model_card import CARD

ROOT = Path(__file__).resolve().parents[2]
LONG = 100
"""Trainings of more steps are run with a few: what is tested of a page is that its commands run."""


def write_videos(folder: Path) -> None:
    """videos/ with videos.jsonl, sounds/ with spoken.jsonl."""
    videos, spoken = [], []
    for name in ("videos", "sounds"):
        (folder / name).mkdir()
    for n in range(12):
        (folder / "videos" / f"{n}.avi").write_bytes(video(n))
        (folder / "sounds" / f"{n}.wav").write_bytes(tone(300 + 20 * n, 0.6))
        captions = [f"it is number {n}", "and it brightens"]
        videos.append({"video": f"{n}.avi", "captions": captions, "times": [[0, 1.5], [1.5, 3]]})
        words = [{"word": "many", "start": 0, "end": 0.3}, {"word": "people", "start": 0.3, "end": 0.6}]
        labels = {"pitch": "high" if n > 5 else "low"}
        spoken.append({"sound": f"{n}.wav", "transcript": "many people", "words": words, "labels": labels})
    write_jsonl(folder / "videos.jsonl", videos)
    write_jsonl(folder / "spoken.jsonl", spoken)


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """What the commands import, once, in the process that they are forked from."""
    for name in (
        "pipelines.commands.app",
        "workbench.cli.training",
        "workbench.training.pretrain",
        "workbench.training.verify_resume",
        "workbench.cli.report",
        "kg.evaluation.tasks.entity_typing",
        "kg.evaluation.tasks.facts",
        "vision.evaluation.tasks.vqa",
        "vision.sequences.image_processors.patches",
        "vision.models.embeddings.patches",
        "pykeen.models",
        "transformers",
        "torch.utils.tensorboard",
        "torch._dynamo",
        "typer.rich_utils",
    ):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, all of this process's memory


@pytest.fixture(scope="session")
def raw_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    for write in (write_small_files, write_videos):
        write(folder)
    return folder


@pytest.fixture
def page_folder(raw_files: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Where a page is run: a fresh copy of the raw files; of those that the page itself has written, none. Its
    `workbench push` reaches a hub of this machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = Path(shutil.copytree(raw_files, tmp_path / "page"))
    text = request.node.callspec.params["page"].read_text("utf-8")
    if re.search("^python -m pipelines.demo small-files", text, re.MULTILINE):
        write_small_files(tmp_path / "own")
        for path in (tmp_path / "own").iterdir():
            shutil.rmtree(folder / path.name) if path.is_dir() else (folder / path.name).unlink()
    with served_hub() if "\nworkbench push" in text else nullcontext() as hub:
        yield folder
    assert hub is None or {CONFIG, WEIGHTS, CARD} <= {*hub.files}
    torch.set_num_threads(threads)


class Place:
    """The folder in which a page's reader is: that of the page, until a `cd`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


@pytest.fixture
def place(page_folder: Path) -> Place:
    return Place(page_folder)


Ran = tuple[int, str]


@pytest.fixture
def in_process(page_folder: Path, place: Place) -> Callable[[Callable[[], object]], Ran]:
    """Runs a function in a process forked from this one, where the reader is; its exit code and what it said.

    Starting Python and importing torch for every command would take most of the time.
    """

    def run(function: Callable[[], object]) -> Ran:
        output = page_folder.parent / "output.txt"
        process = multiprocessing.get_context("fork").Process(target=_child, args=(function, place.folder, output))
        process.start()
        process.join(300)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode or 0, output.read_text()

    return run


def _child(function: Callable[[], object], folder: Path, output: Path) -> None:
    os.chdir(folder)
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.path.insert(0, "")
    logging.getLogger().handlers.clear()
    os.sched_getaffinity = lambda _: {0}  # type: ignore[assignment]  # one core: nothing spawns processes
    torch.cuda.is_available = lambda: False
    code = 0
    try:
        function()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # at once: what pytest has set up is the parent's to end


@pytest.fixture
def command(in_process: Callable[[Callable[[], object]], Ran], place: Place) -> Callable[[str], Ran]:
    """Runs one shell command of a page: `workbench` quickly, everything else with bash."""

    def run(line: str) -> Ran:
        words = shlex.split(line)
        if words[0] == "cd":
            place.folder = place.folder / words[1]
            return int(not place.folder.is_dir()), f"cd to {place.folder}"
        if words[0] == "workbench" and not {"|", ">", "&&", ";"} & set(words):

            def call() -> None:
                sys.argv = _shortened(words)
                main()

            return in_process(call)
        if words[0] == "make":
            line, folder = f"make --dry-run {shlex.join(words[1:])}", ROOT
        else:
            folder = place.folder
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        return done.returncode, done.stdout

    return run


def _shortened(words: list[str]) -> list[str]:
    """A command with few steps of training, without warm-up, in place of more than `LONG`."""
    steps = next((word for word in words if word.startswith("train.max_steps=")), "=0")
    if int(steps.partition("=")[2]) <= LONG:
        return words
    return [*(word for word in words if word != steps), "train.max_steps=3", "train.lr_schedule.warmup_steps=0"]
