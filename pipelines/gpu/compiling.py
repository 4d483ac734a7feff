"""What compiling costs: the time to the first step with and without `train.compile`, and graphs made anew later.

Shapes are ragged: fifty micro-batches have fifty numbers of rows. After the first few, nothing may be compiled again.
"""

from __future__ import annotations

import torch

from pipelines.gpu.record import CheckRecord, Setting
from pipelines.gpu.steps import Stepper, emptied, first_step, recipe_of, rows_of
from workbench.training.trainer import prepare_layers

MEASURED = ("bert", "modernbert", "gpt-2")
FIRST, RAGGED = 3, 50


def run(setting: Setting, record: CheckRecord) -> None:
    """Each system without and with `train.compile`."""
    items = [f"{name}, {way}" for name in MEASURED for way in ("as it is", "train.compile")]
    for item in record.in_time(items):
        name, way = item.split(", ")
        with record.guarded(item):
            _measure(item, name, way == "train.compile", setting, record)
        emptied()


def _measure(item: str, name: str, compiled: bool, setting: Setting, record: CheckRecord) -> None:
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    step = Stepper(recipe_of(name, setting, compile=compiled), setting.world, RAGGED)
    prepare_layers(step.root, compile=compiled, checkpointing=False)
    seconds = first_step(step)
    for _ in range(FIRST - 1):
        step()
    before = graphs()
    rows = {rows_of(micro) for micro in step.micros}
    for _ in range(RAGGED - FIRST):
        step()
    torch.cuda.synchronize()
    more = graphs() - before
    breaks = sum(counters["graph_break"].values())
    line = f"first step {seconds:.1f} s, {before} graphs, {breaks} graph breaks; {more} graphs more in {RAGGED} batches"
    numbers = {"first_step_s": seconds, "graphs": before, "more": more, "breaks": breaks, "sizes": len(rows)}
    record.check(item, more == 0, f"{line} of {len(rows)} sizes", "no graph more", **numbers)


def graphs() -> int:
    """How many graphs torch has compiled since its counters were cleared."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
