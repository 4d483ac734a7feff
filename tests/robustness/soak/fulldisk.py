"""A disk that is full at any byte, a real tmpfs: one message, nothing half-written, and with more room it continues."""

from __future__ import annotations

import contextlib
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.robustness.soak import preparing
from tests.robustness.soak.comparing import no_leftovers, same_content, same_run
from tests.robustness.soak.engine import SkippedError, Trial, require
from tests.robustness.soak.processes import end_all, run
from tests.robustness.soak.runs import NEEDS, Kind

PAGE = 4096
ROOM = 64 << 20
WRITING = {
    "export": "export run --as bert --output out/it",
    "encode": "encode run notes.txt --output out/it.safetensors",
    "report": "report run --output out/it.html",
}
"""Commands that read a run and write one thing."""


def trial(trial: Trial) -> None:
    """One command, on a disk that it fills at some time, or does not."""
    if trial.rng.random() < 0.5:
        pretraining(trial, Kind.drawn(trial.rng))
    else:
        writing(trial, preparing.drawn(trial) if trial.rng.random() < 0.7 else trial.rng.choice(list(WRITING)))


def pretraining(trial: Trial, kind: Kind) -> None:
    """A run folder on a small disk."""
    command = kind.command(trial.rng.randint(0, 2), trial.rng.choice([1, 2, 5]))
    needs = NEEDS[kind.recipe]
    reference = trial.world.reference(kind.command(0, 2), "run", lambda folder: trial.world.copy(folder, *needs))
    folder = trial.world.copy(trial.folder, *needs)
    trial.counts["pretrain"] += 1
    with small_disk(folder / "run", _size(trial, 2 * _bytes(reference.output))) as disk:
        _fills(trial, command, folder, "pretrain")
        _enlarge(disk)
        ended = run(command, folder, folder / "again.log")
        require(ended.code == 0, f"with more room, pretrain {ended}")
        no_leftovers(disk)
        same_run(disk, reference.output)


def writing(trial: Trial, name: str) -> None:
    """The output of another command on a small disk."""
    prepares = name in preparing.COMMANDS
    command = preparing.command_of(trial, name) if prepares else WRITING[name].split()
    needs = preparing.INPUTS if prepares else ("run", "corpora/text")

    def make(folder: Path) -> Path:
        (trial.world.copy(folder, *needs) / "out").mkdir(exist_ok=True)
        return folder

    reference = trial.world.reference(command, "out", make)
    folder = make(trial.folder)
    trial.counts[name] += 1
    with small_disk(folder / "out", _size(trial, _bytes(reference.output))) as disk:
        if _fills(trial, command, folder, name):  # what is there already, some commands refuse to make again
            _enlarge(disk)
            ended = run(command, folder, folder / "again.log")
            require(ended.code == 0, f"with more room, {name} {ended}")
        no_leftovers(disk)
        if prepares:
            same_content(disk, reference.output)


def _fills(trial: Trial, command: list[str], folder: Path, name: str) -> bool:
    """Whether the command fills the disk."""
    ended = run(command, folder, folder / "full.log")
    trial.counts["disks that were full"] += ended.code != 0
    said = ended.said.count("error:") == 1 and "Traceback" not in ended.said
    message = f"on a full disk (wanted: one message, exit code 1 or 2), {name} {ended}"
    require(ended.code == 0 or (not ended.hung and ended.code in (1, 2) and said), message)
    return ended.code != 0


def _size(trial: Trial, needed: int) -> int:
    """From one page to a little more than what is needed, small ones as often as large ones."""
    pages = math.exp(trial.rng.uniform(0, math.log(1.1 * needed / PAGE + 2)))
    return math.ceil(pages) * PAGE


def _bytes(folder: Path) -> int:
    """What the files of a folder take, in pages."""
    return sum(-(-p.stat().st_size // PAGE) * PAGE for p in folder.rglob("*") if p.is_file())


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A tmpfs at `place`.

    Raises:
        SkippedError: this user may not mount.
    """
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        end_all()
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _enlarge(disk: Path) -> None:
    _mount("-o", f"remount,size={ROOM}", str(disk))


def _mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise SkippedError("there is no program `mount`") from error
    if done.returncode:
        raise SkippedError(f"no permission to mount a tmpfs ({done.stderr.strip()}); run as root to try full disks")
