"""What an owner of one GPU runs in ten minutes: are the results right on this card, and is it used well?

    python -m benchmarks.gpu_check --output check
    python -m benchmarks.gpu_check --output check --parts kernels recipes --seconds 120

Nothing is downloaded: corpora are made in the folder. The page `gpu-check.md` opens with a sentence: is the card
correct, fast and fed? It has for each section whether it passed, with numbers, and `gpu-check.json` has the same
numbers, to be attached to a report. The exit code is 1 when a check failed, 2 when the check could not begin, 3 when
none failed and some had no time. A section that raises is reported as failed, and the others continue. The peers of the
section `speed` need the packages of the extra `test` (transformers, open_clip_torch).
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import torch

from benchmarks.gpu import compiling, kernels, loader, recipes, resume, speed, waits
from benchmarks.gpu.corpora import prepare_random, prepare_small
from benchmarks.gpu.page import VERDICTS, facts, passed, write
from benchmarks.gpu.record import Part, Record, Setting, chosen, run_parts
from workbench.core.errors import WorkbenchError, message
from workbench.core.processes.malloc import grow_segments

SECONDS = 600.0
SMALL, RANDOM = {"recipes", "resume"}, {"speed", "waits", "idle", "loader", "compile"}
"""The parts that read each of the two sets of corpora."""
PARTS = (
    Part("kernels", "attention kernels next to the dense one on the CPU", kernels.run, 190),
    Part("recipes", "ten recipes, twenty steps on the card next to the CPU", recipes.run, 140),
    Part("speed", "base-size throughput next to Hugging Face and open_clip", speed.run, 130),
    Part("waits", "host waits of a base-size step", waits.run_waits, 20),
    Part("idle", "idle share of the card in base-size steps", waits.run_idle, 20),
    Part("loader", "the loader alone next to the card alone", loader.run, 40),
    Part("resume", "verify-resume", resume.run, 35),
    Part("compile", "time to the first step, graphs over fifty ragged batches", compiling.run, 65),
)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the page, the JSON, corpora and runs")
    parser.add_argument("--parts", nargs="*", default=[], help="of " + ", ".join(part.name for part in PARTS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all sections; corpora take a minute more")
    parser.add_argument("--size", choices=["base", "tiny"], default="base", help="tiny tries the script itself")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        setting = Setting(cuda(), options.output.resolve(), options.size)
        parts = chosen(PARTS, options.parts)
    except WorkbenchError as error:
        print(f"error: {message(error)}", file=sys.stderr)
        return 2
    records = check(parts, setting, options.seconds)
    command = f"python -m benchmarks.gpu_check --output {options.output} --size {options.size}"
    title, about = f"GPU check ({options.size} size)", facts(setting.device)
    page = write(setting.folder, title, about, records, command=command)
    print(page.read_text(encoding="utf-8"))
    print(f"{page} and the JSON next to it: attach both to a report")
    return VERDICTS[passed(records)][1]


def cuda() -> torch.device:
    """The card.

    Raises:
        WorkbenchError: there is none.
    """
    if not torch.cuda.is_available():
        build = torch.version.cuda or "none: this torch was built for CPUs alone"
        raise WorkbenchError(
            f"no CUDA device is available (CUDA of this torch: {build}); this check compares a GPU with the CPU and "
            "needs one: run it on a machine with an NVIDIA card, a driver and a CUDA build of torch"
        )
    device = torch.device("cuda", 0)
    grow_segments(device)  # as `pretrain` does
    return device


def check(parts: list[Part], setting: Setting, seconds: float) -> list[Record]:
    """Make the corpora of the sections, before anything has touched the card, then run the sections."""
    names = {part.name for part in parts}

    def corpora(setting: Setting, record: Record) -> None:
        if names & SMALL:
            prepare_small(setting.small)
        if names & RANDOM:
            prepare_random(setting.random, setting.size)
        record.check("corpora", True, "made", "no error")

    first = Part("corpora", "the corpora of the sections, made by the script", corpora, 1)
    return run_parts([first], setting, SECONDS) + run_parts(parts, setting, seconds)


if __name__ == "__main__":
    sys.exit(main())
