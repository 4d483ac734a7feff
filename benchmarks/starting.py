"""The processor time of commands that do little: starting, refusing, and a run of one step.

    python -m benchmarks.starting [--rounds 3] [--old CHECKOUT]

Every command is a process of its own, in a folder with a small corpus. Commands alternate, and with `--old` those of
another checkout of the workbench do, too.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.rounds import medians

ROOT = Path(__file__).resolve().parents[1]
WORKBENCH = [sys.executable, "-m", "workbench"]
SMALL = ("train.max_steps=1", "train.lr_schedule.warmup_steps=0")
COMMANDS = {
    "python -c 'import torch'": [sys.executable, "-c", "import torch"],
    "workbench --help": [*WORKBENCH, "--help"],
    "pretrain --help": [*WORKBENCH, "pretrain", "--help"],
    "pretrain, tokenizer is missing": [*WORKBENCH, "pretrain", "tiny-text", "tokenizer=gone.json", *SMALL],
    "pretrain, warm-up is too long": [
        *WORKBENCH,
        "pretrain",
        "tiny-text",
        SMALL[0],
        "train.lr_schedule.warmup_steps=9",
    ],
    "pretrain, no held-out corpora": [*WORKBENCH, "pretrain", "tiny-text", "train.evaluate_every=1", *SMALL],
    "pretrain, one step": [*WORKBENCH, "pretrain", "tiny-text", *SMALL, "--output", "RUN"],
}
PREPARED = (
    "-m pipelines.demo small-files",
    "-m workbench prepare text notes.txt --output corpora/text --split held-out=0.1",
    "-m workbench prepare tokenizer corpora/text --output corpora/tokenizer.json",
)


def seconds(command: list[str], folder: Path, checkout: Path) -> float:
    """The processor seconds of a process and its children, without the wait for other processes."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):  # 2: a refusal
        sys.exit(f"{shlex.join(command)} ended with {process.returncode}:\n{(folder / 'output').read_text()}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--old", type=Path)
    options = parser.parse_args()
    sides = {"seconds": ROOT} | ({"old": options.old.resolve()} if options.old else {})
    times: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for line in PREPARED:
            seconds([sys.executable, *line.split()], folder, ROOT)
        for number in range(options.rounds):
            for what, command in COMMANDS.items():
                for side, checkout in sides.items():
                    arguments = [part.replace("RUN", f"run-{side}-{number}") for part in command]
                    times.setdefault((what, side), []).append(seconds(arguments, folder, checkout))
    found = medians(times)
    print("| command |", " | ".join(sides), "|\n|---|" + "---|" * len(sides))
    for what in COMMANDS:
        print(f"| {what} |", " | ".join(f"{found[what, side]:.2f}" for side in sides), "|")


if __name__ == "__main__":
    main()
