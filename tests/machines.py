"""The suite as other machines would run it: `make test-machines`.

A processor's kernels decide the last bits of every sum, its cores the order of others, and a busy neighbour the time
that everything takes. No test may depend on them. Each pair of settings (kernels of torch, instruction set of oneDNN,
threads) occurs in some run; the last run has a neighbour that keeps every core busy.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

OLD = {"MKL_CBWR": "COMPATIBLE"}  # MKL's kernels for processors without AVX


@dataclass(frozen=True)
class Machine:
    """A setting of the environment; None leaves what the machine itself has."""

    kernels: str | None
    onednn: str | None
    threads: int
    busy: bool = False

    def __str__(self) -> str:
        busy = ", next to busy processes" if self.busy else ""
        return f"torch {self.kernels or 'own'}, oneDNN {self.onednn or 'own'}, {self.threads} threads{busy}"

    def environment(self) -> dict[str, str]:
        wanted = {"OMP_NUM_THREADS": str(self.threads)}
        if self.kernels:
            wanted["ATEN_CPU_CAPABILITY"] = self.kernels
        if self.kernels == "default":
            wanted |= OLD
        if self.onednn:
            wanted["ONEDNN_MAX_CPU_ISA"] = self.onednn
        return {**os.environ, **wanted}


MACHINES = (
    Machine("default", "AVX2", 1),
    Machine("default", None, 2),
    Machine("avx2", "AVX2", 2),
    Machine("avx2", None, 1),
    Machine(None, "AVX2", 1),
    Machine(None, None, 2),
    Machine(None, None, 1, busy=True),
)


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments on every machine; 1 if any run failed."""
    lines, failed = [], False
    for machine in MACHINES:
        print(f"\n== {machine}", flush=True)
        started = time.monotonic()
        neighbours = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
        for process in neighbours if machine.busy else ():
            process.start()
        code, closing = _pytest(arguments, machine.environment())
        for process in neighbours if machine.busy else ():
            process.kill()
        failed |= code != 0
        lines.append(f"{'passed' if code == 0 else 'FAILED'}  {machine}: {closing}, {time.monotonic() - started:.0f} s")
    print("\n" + "\n".join(lines))
    return int(failed)


def _pytest(arguments: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The exit code of the suite and its closing line; what it prints continues to the terminal."""
    command = [sys.executable, "-m", "pytest", *arguments]
    closing = "no closing line"
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if re.search(r"\d+ (passed|failed|error)", line):
                closing = re.sub(r" in [\d.:s ()]+", "", line.strip("= \n"))
    return process.returncode, closing


def _spin() -> None:
    while True:
        sum(range(10_000))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
