"""Faults put into the code on purpose: does the gate see them? This prints a table.

    python -m tests.mutants                 each mutant against the gate's tests of its room, one after the other
    python -m tests.mutants step losses     those of these modules alone
    python -m tests.mutants --suites        those that the gate lets pass, against the tests of all suites, too

A mutant is one exchanged line. The sources are copied, the line is exchanged in the copy, and the tests run there until
the first one fails. The tests of a room come first, then those that train.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GATE = "not (slow or scale or docs or simulator or systems)"
LIMIT = 600
"""Seconds of one run of tests; a mutant that makes them hang is killed, too."""


class Mutant(NamedTuple):
    """An exchanged line: a string that occurs once in a module, and what takes its place."""

    module: str
    before: str
    after: str


STEP, TRAINER, LOSSES = "training/step", "training/trainer", "training/losses"
BATCH, READER, ORDER = "sequences/batch", "corpora/reading/reader", "corpora/reading/order"
CHECKPOINT, VISIBILITY = "runs/checkpoint", "models/attention/visibility"
TRAINING = ("tests/training/test_step.py", "tests/training/test_resume.py", "tests/training", "tests/recipes")
TESTS = {
    STEP: TRAINING,
    TRAINER: ("tests/training/test_run.py", *TRAINING),
    LOSSES: ("tests/training/test_loss_sums.py", "tests/training/test_global_batch_gradients.py", *TRAINING),
    BATCH: ("tests/sequences", "tests/pretraining", "tests/models", "tests/recipes"),
    READER: ("tests/corpora", "tests/pretraining", "tests/training"),
    ORDER: ("tests/corpora", "tests/training"),
    CHECKPOINT: ("tests/runs", "tests/training", "tests/evaluation"),
    VISIBILITY: ("tests/models", "tests/kg/sequences", "tests/recipes"),
}
"""The tests that run against the mutants of a module, in this order."""

MUTANTS = [
    Mutant(STEP, "factor / counts[label] if counts[label] else 0.0", "factor if counts[label] else 0.0"),
    Mutant(STEP, "hold_back(self.optimizer, step)", "pass"),
    Mutant(STEP, "self.root.after_step(step + 1, stepped.kept_of(present))", "stepped.kept_of(present)"),
    Mutant(STEP, "self.root.remembered.commit()", "self.root.remembered.forget()"),
    Mutant(STEP, "last = i + 1 == len(present)", "last = i == 0"),
    Mutant(TRAINER, "set_learning_rate(self.optimizer, lr)", "set_learning_rate(self.optimizer, self.spec.lr)"),
    Mutant(TRAINER, "self.root.progress = self.step / self.spec.max_steps", "self.root.progress = 0.0"),
    Mutant(TRAINER, "self.step % every == 0 or self.step == last", "self.step % every == 0"),
    Mutant(TRAINER, "if improves(name, value, self._best_of(name)):", "if True:"),
    Mutant(TRAINER, 'self.window = Window.from_state(state["window"])', "self.window = Window()"),
    Mutant(LOSSES, 'digest(self.seed, "device", step, task, lane)', 'digest(self.seed, "device", task, lane)'),
    Mutant(
        LOSSES,
        "return output.loss * (self.factors[label] * self.world.size)",
        "return output.loss * self.factors[label]",
    ),
    Mutant(
        LOSSES,
        "parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient",
        "parameter.grad = gradient",
    ),
    Mutant(LOSSES, "into[name] = (before[0] + total, before[1] + count)", "into[name] = (before[0] + total, count)"),
    Mutant(
        LOSSES,
        "return surrogate(output, gradients) * self.world.size if gradients",
        "return surrogate(output, gradients) if gradients",
    ),
    Mutant(BATCH, "return [0, *accumulate(self.lengths)]", "return [0, *accumulate(self.lengths[:-1]), self.rows - 1]"),
    Mutant(BATCH, "return torch.where(links < 0, links, links + shift)", "return links + shift"),
    Mutant(BATCH, "if sequences.get(other) != sequences[name]:", "if False:"),
    Mutant(BATCH, "[numbers.setdefault(group, len(numbers)) for", "[numbers.setdefault(group, 0) for"),
    Mutant(BATCH, "and all(torch.equal(values, other.fields[name]) for name, values in self.fields.items())", ""),
    Mutant(READER, "(c, epoch, s, i) if self.by_item else (c, epoch, x)", "(c, s, i) if self.by_item else (c, x)"),
    Mutant(READER, "not begin and items[place.corpus].resumes(place.shard, place.item)", "not begin"),
    Mutant(READER, "if each.total < needed:", "if each.total < needed - 1:"),
    Mutant(
        READER, "self._orders[corpus].locate(epoch, reads.at[here])", "self._orders[corpus].locate(0, reads.at[here])"
    ),
    Mutant(READER, "read = number * self._cut.per_step", "read = (number + 1) * self._cut.per_step"),
    Mutant(ORDER, 'generator(self.seed, "shards", epoch)', 'generator(self.seed, "shards")'),
    Mutant(ORDER, 'generator(self.seed, "items", epoch, group)', 'generator(self.seed, "items", epoch)'),
    Mutant(
        ORDER, "item[here] = place - (order.ends[slot] - self.counts[found])", "item[here] = place - order.ends[slot]"
    ),
    Mutant(ORDER, 'shuffled_places(index, size, self.seed, "items", epoch, group)', "index"),
    Mutant(ORDER, "base = int(order.group_ends[g - 1]) if g else 0", "base = 0"),
    Mutant(CHECKPOINT, "load_optimizer_state(root, optimizer, moments)", "pass"),
    Mutant(CHECKPOINT, "read_tables(root, stored_tables(folder, world), state.get(TABLES, {}))", "pass"),
    Mutant(CHECKPOINT, "write(path) or sha256_of(path)", 'write(path) or ""'),
    Mutant(CHECKPOINT, 'tensor.detach().to("cpu", copy=True)', "tensor.detach()"),
    Mutant(
        CHECKPOINT,
        "if ties:\n            content.state[TIES] = ties",
        "if False:\n            content.state[TIES] = ties",
    ),
    Mutant(VISIBILITY, '("doc", torch.eq), ("rank", torch.ge)', '("doc", torch.eq), ("rank", torch.gt)'),
    Mutant(VISIBILITY, "(until == 0) | (", "("),
    Mutant(VISIBILITY, "(same & ((q_branch == 0) | (k_branch == 0)))", "same"),
    Mutant(VISIBILITY, ".abs() <= window", ".abs() < window"),
    Mutant(VISIBILITY, "found | (everywhere[0] > 0) | (everywhere[1] > 0)", "found | (everywhere[1] > 0)"),
]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="such as step, trainer, losses")
    parser.add_argument("--suites", action="store_true", help="try what the gate lets pass in all suites")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not options.modules or m.module.rpartition("/")[2] in options.modules]
    sys.stdout.write("| module | exchanged | killed by |\n|---|---|---|\n")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        for name in subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True).stdout.split("\n"):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        alive = 0
        for mutant in chosen:
            killer = killed_by(mutant, copy, GATE)
            if killer is None and options.suites:
                killer = killed_by(mutant, copy, f"not ({GATE})")
                killer = killer and f"{killer} (not in the gate)"
            alive += killer is None
            sys.stdout.write(f"| `{mutant.module}` | `{mutant.before}` -> `{mutant.after}` | {killer or 'nothing'} |\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{len(chosen) - alive} of {len(chosen)} are killed\n")
    return 0


def killed_by(mutant: Mutant, copy: Path, marks: str) -> str | None:
    """The first test that fails with the line exchanged; None where all pass."""
    path = Path("workbench") / f"{mutant.module}.py"
    source = (ROOT / path).read_text("utf-8")
    (copy / path).write_text(source.replace(mutant.before, mutant.after), "utf-8")
    try:
        tried: list[str] = []
        for place in TESTS[mutant.module]:
            again = [f"--ignore={earlier}" for earlier in tried if earlier.startswith(place)]
            found = failing(copy, [place, *again, "-m", marks])
            if found is not None:
                return found
            tried.append(place)
    finally:
        (copy / path).write_text(source, "utf-8")
    return None


def failing(copy: Path, arguments: list[str]) -> str | None:
    """The first of these tests that fails; None where all pass, or none is selected."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *arguments]
    shared = os.environ.get("WORKBENCH_SHARED", str(ROOT.parent / "shared"))
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "WORKBENCH_SHARED": shared}
    started = time.monotonic()
    try:
        ended = subprocess.run(command, cwd=copy, env=environment, text=True, capture_output=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"{arguments[0]}, which hangs"
    if ended.returncode in (0, 5):
        return None
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    name = lines[0].split()[1] if lines else f"{arguments[0]} (code {ended.returncode})"
    return f"{name.removeprefix('tests/')}, {time.monotonic() - started:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
