"""The whole command `workbench pretrain` against a padded loop with its own loading, both as processes of their own.

    python -m benchmarks.whole_run bert --length 128 --corpus books.jsonl
    python -m benchmarks.whole_run k-bert --length 512 --corpus books.jsonl
    python -m benchmarks.whole_run uniter --length 62 --padding max

Both sides read the same documents (paragraphs of `--corpus`, longer ones cut; without it made-up text), have the same
tokenizer and sizes (4 layers x 256, vocabulary 8,192), take 8 documents a step, load them in one worker, use two
threads, and log every 10 steps; `benchmarks.padded_loops` says what the peers are. They are watched from outside, in
the same way: a line of its log ends a side's window of ten steps, then it is stopped (SIGSTOP) and the other continues,
so that other work on the machine meets both. The first two windows of each are left out, and its speed is the median
over the rest, in real tokens (and regions, entities, branch tokens) per second. `CPU` is the processor time of all the
side's processes, which other work disturbs least; `others` is the share of the machine that others took meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.rounds import clock_of, medians
from benchmarks.whole_run_inputs import RECIPES, prepare
from workbench.runs.names import METRICS

LOG_EVERY, WORKERS, LEFT_OUT = 10, 1, 20
POLL = 0.01


@dataclass
class Window:
    """Ten steps of one side: real tokens, wall seconds, processor seconds of its processes and of all others."""

    tokens: float
    seconds: float
    own: float
    others: float


@dataclass
class Clock:
    """The clocks at one moment."""

    wall: float
    own: float
    machine: float

    @classmethod
    def of(cls, process: psutil.Process) -> Clock:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq
        return cls(clock_of(threads=2)(), cpu_seconds(process), busy)


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time of a process, its living children, and those that it has waited for."""
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Side:
    """A side's processes, which run only while they are waited for; its windows after the first `LEFT_OUT` steps."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str], messages: Path) -> None:
        self.command, self.log, self.messages = command, log, messages
        with messages.open("wb") as output:  # a session of its own: signals reach the loader's worker too
            self.started = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.process = psutil.Process(self.started.pid)
        self.read = 0
        self.windows: list[Window] = []
        self._signal(signal.SIGSTOP)

    def window(self) -> None:
        """Let it run until its log has a line more."""
        self._signal(signal.SIGCONT)
        before = Clock.of(self.process)
        while (line := self._line()) is None:
            if self.started.poll() is not None:
                said = self.messages.read_text()
                sys.exit(f"{shlex.join(self.command)}\nended with exit code {self.started.returncode}:\n{said}")
            time.sleep(POLL)
        now = Clock.of(self.process)
        self._signal(signal.SIGSTOP)
        if line["step"] > LEFT_OUT:
            own = now.own - before.own
            others = max(0.0, now.machine - before.machine - own)
            self.windows.append(Window(tokens_of(line), now.wall - before.wall, own, others))

    def end(self) -> None:
        """Nothing more is wanted of it."""
        if self.started.poll() is None:
            self._signal(signal.SIGKILL)
            self.started.wait()

    def _line(self) -> dict[str, Any] | None:
        text = self.log.read_text()[self.read :] if self.log.is_file() else ""
        line, newline, _ = text.partition("\n")
        if not newline:
            return None
        self.read += len(line) + 1
        return json.loads(line)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.started.pid, number)


def tokens_of(line: dict[str, Any]) -> float:
    """Real tokens of a window, from the workbench's metrics or the peer's line."""
    if "tokens" in line:
        return float(line["tokens"])
    return float(line["tokens_per_second"] * line["seconds_per_step"] * LOG_EVERY)


def sides(options: argparse.Namespace, folder: Path, recipe: Path) -> dict[str, tuple[list[str], Path]]:
    """By side: its command, and the log to watch."""
    run, progress = folder / "run", folder / "peer.jsonl"
    peer = [sys.executable, "-m", "benchmarks.padded_loops", options.recipe, str(folder), "--output", str(progress)]
    peer += ["--length", str(options.length), "--batch", str(options.batch), "--steps", str(options.steps)]
    peer += ["--log-every", str(LOG_EVERY), "--workers", str(WORKERS), "--padding", options.padding]
    peer += ["--vocabulary", options.vocabulary]
    ours = [sys.executable, "-m", "workbench", "pretrain", str(recipe), "--output", str(run)]
    return {"workbench": (ours, run / METRICS), "padded": (peer, progress)}


def report(options: argparse.Namespace, found: dict[str, list[Window]]) -> None:
    """The table, and the two ratios."""
    cores = psutil.cpu_count() or 1
    corpus = options.corpus.name if options.corpus else "made-up text"
    print(
        f"{options.recipe}, {corpus} cut at {options.length}, batch {options.batch}, padded to the {options.padding}, "
        f"vocabulary at {options.vocabulary} positions, {options.threads} threads, {options.steps} steps"
    )
    speed = medians({side: [w.tokens / w.seconds for w in windows] for side, windows in found.items()})
    cpu = medians({side: [1e3 * w.own / w.tokens for w in windows] for side, windows in found.items()})
    for side, windows in found.items():
        step = statistics.median(w.seconds for w in windows) / LOG_EVERY
        tokens = statistics.mean(w.tokens for w in windows) / LOG_EVERY
        others = sum(w.others for w in windows) / sum(w.seconds for w in windows) / cores
        print(
            f"  {side:10}{speed[side]:8,.0f} real tokens/s  {step * 1e3:7.0f} ms a step of {tokens:5.0f}  "
            f"CPU {cpu[side]:6.3f} ms a token  others {others:4.0%}"
        )
    print(f"  workbench / padded: {speed['workbench'] / speed['padded']:.2f} in speed, ", end="")
    print(f"{cpu['padded'] / cpu['workbench']:.2f} in processor time")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--corpus", type=Path, help="a text file, or JSON lines with `text`")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text, at most")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--padding", choices=["longest", "max"], default="longest", help="what the peer pads to")
    parser.add_argument("--vocabulary", choices=["all", "masked"], default="all", help="where the peer predicts words")
    options = parser.parse_args()
    if options.steps < LEFT_OUT + LOG_EVERY:
        parser.error(f"--steps: at least {LEFT_OUT + LOG_EVERY}, since the first {LEFT_OUT} are left out")
    return options


def main() -> None:
    options = arguments()
    train = {"max_steps": options.steps, "global_batch_size": options.batch, "micro_batch_size": options.batch}
    train |= {"lr": 1e-4, "num_workers": WORKERS, "log_every": LOG_EVERY}
    environment = {"TOKENIZERS_PARALLELISM": "false", **os.environ, "OMP_NUM_THREADS": str(options.threads)}
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        recipe = prepare(options.recipe, folder, options.corpus, options.length, train)
        running: dict[str, Side] = {}
        for name, (command, log) in sides(options, folder, recipe).items():
            running[name] = Side(command, log, environment, folder / f"{name}.txt")
            stack.callback(running[name].end)
        for _ in range(options.steps // LOG_EVERY):
            for side in running.values():
                side.window()
    report(options, {name: side.windows for name, side in running.items()})


if __name__ == "__main__":
    main()
