"""`workbench check`: are the results right on this card, and is it used well?

Nothing is downloaded: corpora are made in the folder. The page `gpu-check.md` opens with a sentence: is the card
correct, fast and fed? It has for each section whether it passed, with numbers, and `gpu-check.json` has the same
numbers, to be attached to a report. The exit code is 1 when a check failed, 3 when none failed and some had no time. A
section that raises is reported as failed, and the others continue. The peers of the section `speed` need transformers
and open_clip_torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from pipelines.gpu import compiling, kernels, loader, recipes, resume, speed, waits
from pipelines.gpu.corpora import prepare_random, prepare_small
from pipelines.gpu.page import VERDICTS, facts, passed, write
from pipelines.gpu.record import CheckPart, CheckRecord, Setting, Size, chosen, run_parts
from workbench.core.errors import WorkbenchError
from workbench.core.processes.malloc import grow_segments

SMALL, RANDOM = {"recipes", "resume"}, {"speed", "waits", "idle", "loader", "compile"}
"""The parts that read each of the two sets of corpora."""
PARTS = (
    CheckPart("kernels", "attention kernels next to the dense one on the CPU", kernels.run, 190),
    CheckPart("recipes", "ten recipes, twenty steps on the card next to the CPU", recipes.run, 140),
    CheckPart("speed", "base-size throughput next to Hugging Face and open_clip", speed.run, 130),
    CheckPart("waits", "host waits of a base-size step", waits.run_waits, 20),
    CheckPart("idle", "idle share of the card in base-size steps", waits.run_idle, 20),
    CheckPart("loader", "the loader alone next to the card alone", loader.run, 40),
    CheckPart("resume", "verify-resume", resume.run, 35),
    CheckPart("compile", "time to the first step, graphs over fifty ragged batches", compiling.run, 65),
)


def run(folder: Path, names: Sequence[str], seconds: float, size: Size, command: str) -> tuple[Path, int]:
    """Run the sections of these names, all for none; returns the page and the exit code.

    Args:
        command: what was typed, without the sections; the page says how to run those that had no time.

    Raises:
        WorkbenchError: there is no card, or no such section.
    """
    setting = Setting(cuda(), folder.resolve(), size)
    records = check(chosen(PARTS, names), setting, seconds)
    title = f"GPU check ({size} size)"
    page = write(setting.folder, title, facts(setting.device), records, command=command)
    return page, VERDICTS[passed(records)][1]


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


def check(parts: list[CheckPart], setting: Setting, seconds: float) -> list[CheckRecord]:
    """Make the corpora of the sections, before anything has touched the card, then run the sections."""
    names = {part.name for part in parts}

    def corpora(setting: Setting, record: CheckRecord) -> None:
        if names & SMALL:
            prepare_small(setting.small)
        if names & RANDOM:
            prepare_random(setting.random, setting.size)
        record.check("corpora", True, "made", "no error")

    first = CheckPart("corpora", "the corpora of the sections, made by the script", corpora, 1)
    return run_parts([first], setting, seconds) + run_parts(parts, setting, seconds)
