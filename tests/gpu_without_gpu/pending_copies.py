"""A command of the product on the pretend device, and how many copies are under way after each training step.

    python -m tests.gpu_without_gpu run -m tests.gpu_without_gpu.pending_copies pretrain ...

The copy of the next micro-batch may be; each further one is memory that is never freed. The first rank writes a line
`step, copies under way, whether the next one was there` into the file PENDING_COPIES for each step.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.gpu_without_gpu import emulated  # first: it installs the emulation
from workbench.training.step import Updater

_run = Updater.run


def _counted(self: Updater, step: int, *given: Any, **named: Any) -> Any:
    result = _run(self, step, *given, **named)
    if self.world.is_main:
        with open(os.environ["PENDING_COPIES"], "a") as file:
            there = named.get("following") is not None
            file.write(f"{step + 1} {len(self.micro_pass.copies._under_way)} {int(there)}\n")
    return result


if __name__ == "__main__":
    Updater.run = _counted  # type: ignore[method-assign]
    sys.exit(emulated.main(sys.argv[1:]))
