"""Runs something by hand on the pretend device.

    python -m tests.gpu_without_gpu steps bert gpt-2          recipes: agreement, launches, waits (recipe_steps.py)
    python -m tests.gpu_without_gpu ratchets                  measures all recipes and writes ratchets.json again
    python -m tests.gpu_without_gpu workbench pretrain ...    a command of the product, its values computed by the CPU
    python -m tests.gpu_without_gpu run SCRIPT ...            a script that sees a device whose kernels do nothing

PRETEND_GPUS=2 for two devices, PRETEND_MEMORY_GB=24 and PRETEND_CAPABILITY=7.5 for another card.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import torch

from tests.gpu_without_gpu.building import SOURCES, build, environment, unable

MODULES = {"steps": "recipe_steps", "ratchets": "ratchets", "workbench": "emulated"}


def folder() -> Path:
    """Where the device lies that is built for runs by hand: one for each state of its sources."""
    parts = [path.read_bytes() for path in sorted(SOURCES.rglob("*.[ch]"))]
    state = hashlib.sha256(b"".join(parts) + torch.__version__.encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"pretend-cuda-{os.getuid()}-{state}"


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in (*MODULES, "run"):
        sys.exit(__doc__)
    if reason := unable():
        sys.exit(reason)
    kind, *rest = arguments
    command = rest if kind == "run" else ["-m", f"tests.gpu_without_gpu.{MODULES[kind]}", *rest]
    os.execve(sys.executable, [sys.executable, *command], environment(build(folder())))


if __name__ == "__main__":
    main(sys.argv[1:])
