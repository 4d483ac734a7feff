"""Damage to every kind of file: its reader raises an error with a plain message, or returns the real content.

A trial is a process that makes many mutations, one after the other, each in a file that is put back afterwards.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import resource
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.robustness.soak.damage import damaged
from tests.robustness.soak.engine import FindingError, Trial, require
from tests.robustness.soak.processes import fork
from tests.robustness.soak.readers import SLOW, TARGETS, Target
from workbench.core.errors import WorkbenchError

MUTATIONS = 60
MEMORY = 4 << 30
"""Bytes that a reading may ask for beyond what the process has."""
SECONDS = 30
"""What no reading takes."""


def trial(trial: Trial) -> None:
    """Mutations of one target."""
    name = trial.rng.choice([*(n for n in TARGETS if n not in SLOW), trial.rng.choice(SLOW)])
    number = MUTATIONS // 6 if name in SLOW else MUTATIONS
    mutate(trial, name, number)


def mutate(trial: Trial, name: str, number: int) -> None:
    """So many mutations of the target.

    Raises:
        FindingError: some end in other errors or unnoticed; lists each kind once.
    """
    target, results = TARGETS[name], trial.folder / "mutations.jsonl"
    shutil.copytree(trial.world.prepare(target.place) / "corpora", trial.folder / "corpora")
    if target.place == "run":
        shutil.copytree(trial.world.folder / "run", trial.folder / "run")
    log = trial.folder / "output.log"
    ended = fork(lambda: _mutations(target, trial.folder, results, trial.rng, number), trial.folder, log).wait()
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    trial.counts["mutations"] += len(lines)
    trial.counts[f"mutations: {name}"] += len(lines)
    trial.counts.update(Counter(f"mutations that gave {line['kind']}" for line in lines))
    require(ended.code == 0 and not ended.hung, f"{name}, mutation {len(lines) + 1}: the process {ended}")
    wrong = [line for line in lines if line["wrong"]]
    if wrong:
        first = {line["wrong"]: f"{line['file']}, {line['damage']} ({line['number']})" for line in reversed(wrong)}
        raise FindingError(
            f"{name}, {len(wrong)} of {len(lines)}\n" + "\n".join(f"{at}: {what}" for what, at in first.items())
        )


def _mutations(target: Target, world: Path, results: Path, rng: random.Random, number: int) -> None:
    logging.disable(logging.CRITICAL)
    place = world / target.place
    files = sorted(p for p in (place.glob(target.files) if target.files else [place]) if p.is_file())
    wanted = target.read(world)
    soft = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (soft, soft))
    with results.open("a") as output:
        for n in range(number):
            file = rng.choice(files)
            whole = file.read_bytes()
            damage, data = damaged(whole, rng)
            _replace(file, data)
            kind, wrong = _reading(target, world, wanted)
            _replace(file, whole)
            what = {"number": n, "file": file.name, "damage": damage, "kind": kind, "wrong": wrong}
            output.write(json.dumps(what) + "\n")
            output.flush()


def _replace(file: Path, data: bytes) -> None:
    """As a new file: what is mapped of the old one stays as it is."""
    file.unlink()
    file.write_bytes(data)


def _reading(target: Target, world: Path, wanted: Any) -> tuple[str, str]:
    """What kind of end a reading had, and what is wrong with it."""
    try:
        with _limited():
            found = target.read(world)
    except WorkbenchError:
        return "an error for people", ""
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((frame for frame in reversed(frames) if _ours(frame.filename)), frames[-1])
        return "another error", f"{type(error).__name__} in {Path(own.filename).name}, {own.name}"
    if found == wanted:
        return "the same content", ""
    return "other content", "other content, and no error" if target.signed else ""


def _ours(file: str) -> bool:
    return (
        any(f"/{package}/" in file for package in ("workbench", "kg", "vision", "pipelines"))
        and "site-packages" not in file
    )


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """
    Raises:
        TimeoutError: after `SECONDS`.
    """

    def over(number: int, frame: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
