"""Two to eight GPUs of one machine: is a step on several ranks that of one, and how does speed grow with them?

    python -m benchmarks.gpu_ranks --output check
    python -m benchmarks.gpu_ranks --output check --ranks 2 4

The script starts its ranks itself, by `torchrun`. For bert and clip it compares the losses and the gradient norm of two
steps of eight micro-batches on one rank and on several (tiny size, float32). Several ranks hold the whole model each
(DDP), and then a part of it (FSDP, `train.parallel.shard=full`). Dropout stays on: its masks depend on the step, task
and lane alone. Then each rank takes a base-size micro-batch a step: the efficiency is the speed of R ranks over R times
that of one. Last comes the time to gather what clip embeds of a step. `gpu-ranks.md` and `gpu-ranks.json` are written
as `benchmarks.gpu_check` writes its page; the exit codes are the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.rounds import clock_of
from pipelines.gpu import recipes
from pipelines.gpu.check import cuda
from pipelines.gpu.corpora import prepare_random, prepare_small
from pipelines.gpu.page import VERDICTS, facts, passed, write
from pipelines.gpu.record import Part, Record, Setting, run_parts
from pipelines.gpu.steps import Stepper, emptied, micro_batch_size, recipe_of, timed
from workbench.core.errors import WorkbenchError, message
from workbench.core.processes.distributed import World, distributed
from workbench.recipe.train_spec import ParallelSpec
from workbench.training.embedding_gather import EmbeddingGather

NAME = "gpu-ranks"
MEASURED = ("bert", "clip")
LANES, MICRO, STEPS = 8, 4, 2
TOLERANCE, EFFICIENCY = 1e-4, 0.8
"""Relative difference of losses and gradient norms in float32; share of R times the speed of one rank."""
WIDTH, GATHERS = 512, 20
"""Numbers that CLIP embeds of an image or text; how often they are gathered."""
PATIENCE, POLL = 900, 0.5
"""Seconds that a number of ranks may take, and between looks at them."""
Found = dict[str, Any]


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the page, the JSON and corpora")
    parser.add_argument(
        "--ranks", type=int, nargs="*", default=[], help="default: 2, 4 and 8, as far as there are GPUs"
    )
    parser.add_argument("--size", choices=["base", "tiny"], default="base", help="tiny tries the script itself")
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)  # a rank, and where the first one writes
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        setting = Setting(cuda(), options.output.resolve(), options.size)
        if options.rank_of is not None:
            as_rank(setting, options.rank_of)
            return 0
        ranks = chosen_ranks(options.ranks, torch.cuda.device_count())
    except WorkbenchError as error:
        print(f"error: {message(error)}", file=sys.stderr)
        return 2
    records = check(setting, ranks)
    page = write(setting.folder, f"GPU ranks ({options.size} size)", facts(setting.device), records, NAME)
    print(page.read_text(encoding="utf-8"))
    return VERDICTS[passed(records)][1]


def chosen_ranks(asked: list[int], cards: int) -> list[int]:
    """The numbers of ranks that are compared with one.

    Raises:
        WorkbenchError: one card alone, or more ranks than cards or than micro-batches of a step.
    """
    if cards < 2:
        raise WorkbenchError(f"{cards} CUDA device is here; this check needs 2 or more (`workbench check` needs 1)")
    most = min(cards, LANES)
    for number in asked:
        if not 2 <= number <= most:
            raise WorkbenchError(f"--ranks {number}; allowed on this machine: 2 to {most}")
    return asked or [number for number in (2, 4, 8) if number <= most]


def check(setting: Setting, ranks: list[int]) -> list[Record]:
    """Run one rank, then several, and compare."""
    found: dict[int, Found] = {}

    def corpora(setting: Setting, record: Record) -> None:
        prepare_small(setting.small)
        prepare_random(setting.random, setting.size)
        record.check("corpora", True, "made", "no error")

    def alone(setting: Setting, record: Record) -> None:
        found[1] = launched(setting, 1)
        for name in MEASURED:
            record.check(f"{name}, one rank", True, reported(found[1][name]), "no error", **found[1][name])

    def several(setting: Setting, record: Record, number: int) -> None:
        found[number] = launched(setting, number)
        for name in MEASURED:
            compare(name, number, found[1][name], found[number][name], record)
        seconds = found[number]["gather_s"]
        record.note(f"gathering {WIDTH} numbers of each image and text of a clip step takes {1e3 * seconds:.2f} ms")

    parts = [Part("corpora", "what the ranks read", corpora, 1), Part("1 rank", "for comparison", alone, 1)]
    for number in ranks:
        parts.append(Part(f"{number} ranks", "equal to one rank; scaling", partial(several, number=number), 1))
    return run_parts(parts, setting, PATIENCE * len(parts))


def compare(name: str, number: int, one: Found, many: Found, record: Record) -> None:
    """Losses and gradient norms against those of one rank, and the speed against so many times its own."""
    for way in ("losses", "sharded"):
        what = f"{name}, {way} and gradient norm" if way == "losses" else f"{name}, the same sharded"
        record.below(what, recipes.difference(one["losses"], many[way]), TOLERANCE)
    share = many["per_s"] / (number * one["per_s"])
    found = f"{share:.0%} of {number} times one rank ({reported(many)})"
    record.check(f"{name}, scaling", share >= EFFICIENCY, found, f">= {EFFICIENCY:.0%}", efficiency=share, **many)


def reported(found: Found) -> str:
    """The speed of all ranks together, in words."""
    return f"{found['per_s']:,.0f} samples/s, {1e3 * found['step_s']:.1f} ms a step"


def launched(setting: Setting, number: int) -> Found:
    """What so many ranks find, started by torchrun.

    Raises:
        WorkbenchError: they ended with an error.
    """
    numbers = setting.folder / f"ranks-{number}.json"
    numbers.unlink(missing_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    own = ["-m", "benchmarks.gpu_ranks", "--output", str(setting.folder), "--size", setting.size]
    command = [*launcher, *own, "--rank-of", str(numbers)]
    code, errors = ended(command, PATIENCE)
    if code or not numbers.exists():
        raise WorkbenchError(f"{number} ranks ended with exit code {code}: {errors[-2000:]}")
    found: Found = json.loads(numbers.read_text(encoding="utf-8"))
    return found


def ended(command: list[str], seconds: float) -> tuple[int, str]:
    """The exit code and the error stream of a command, of which no process is left: torchrun's ranks are in sessions of
    their own, and would keep their cards.

    Raises:
        WorkbenchError: it took longer.
    """
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=errors, stderr=errors) as process:
        launcher = psutil.Process(process.pid)
        started = {launcher}
        try:
            ends = time.monotonic() + seconds
            while process.poll() is None and time.monotonic() < ends:
                started |= _children(launcher)
                time.sleep(POLL)
            code = process.poll()
        finally:
            for each in started | _children(launcher):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        errors.seek(0)
        output = errors.read()
    if code is None:
        raise WorkbenchError(f"the ranks did not end within {seconds:g} s and were killed: {output[-2000:]}")
    return code, output


def _children(process: psutil.Process) -> set[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return set(process.children(recursive=True))
    return set()


def as_rank(setting: Setting, numbers: Path) -> None:
    """The work of a rank; the first one writes what was found."""
    with distributed() as world:
        found: Found = {}
        for name in MEASURED:
            losses = {
                "losses": step_losses(name, setting, world, ParallelSpec()),
                "sharded": step_losses(name, setting, world, ParallelSpec(shard="full")),
            }
            found[name] = losses | speed(name, setting, world)
        found["gather_s"] = gathering(micro_batch_size("clip", setting), world)
        if world.is_main:
            numbers.write_text(json.dumps(found), encoding="utf-8")


def step_losses(name: str, setting: Setting, world: World, parallel: ParallelSpec) -> recipes.Losses:
    """Losses and gradient norms of a few steps in the tiny size, of eight micro-batches whatever the ranks."""
    recipe = recipes.recipe_of(name, setting)
    shape: dict[str, Any] = {"global_batch_size": LANES * MICRO, "micro_batch_size": MICRO, "precision": "float32"}
    shape["parallel"] = parallel
    step = Stepper(replace(recipe, train=replace(recipe.train, **shape)), world, STEPS)
    found = []
    for _ in range(STEPS):
        result = step()
        losses = {key: total / count for key, (total, count) in result.losses.items()}
        found.append(losses | {"grad_norm": result.grad_norm})
    return found


def speed(name: str, setting: Setting, world: World) -> Found:
    """Samples per second of all ranks, each with a micro-batch a step."""
    emptied()
    step = Stepper(recipe_of(name, setting, lanes=world.size), world)
    world.barrier()
    median = max(world.gather(statistics.median(timed(step))))
    del step
    return {"step_s": median, "per_s": world.size * micro_batch_size(name, setting) / median}


def gathering(micro: int, world: World) -> float:
    """Seconds to gather what CLIP embeds of the images and texts of a step."""
    mine = {world.rank: {side: torch.randn(micro, WIDTH, device=world.device) for side in ("image", "text")}}
    gather, spent, clock = EmbeddingGather(world.size, world), [], clock_of(device="cuda")
    for _ in range(GATHERS):
        started = clock()
        gather(mine)
        spent.append(clock() - started)
    return max(world.gather(statistics.median(spent)))


if __name__ == "__main__":
    sys.exit(main())
