"""The runs that are disturbed: tiny recipes with what could depend on where they stop."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.robustness.soak.comparing import no_leftovers, same_run
from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.faults import Fault
from tests.robustness.soak.processes import Command, Ended, orphans, start
from tests.robustness.soak.world import Reference

STEPS = 16
NEEDS = {
    "tiny-text": ["corpora/text", "corpora/tokenizer.json"],
    "tiny-knowledge": ["corpora/wiki-linked", "corpora/graph", "corpora/tokenizer.json"],
    "tiny-joint": ["corpora/pairs", "corpora/tokenizer.json"],
}
HELD_OUT = {"tiny-text": "text", "tiny-knowledge": "wiki-linked", "tiny-joint": "pairs"}
TASK = {"tiny-text": "text", "tiny-knowledge": "text", "tiny-joint": "pairs"}
ALLOWED = ["train.global_batch_size=4", "train.micro_batch_size=2", "train.log_every=1", f"train.max_steps={STEPS}"]


@dataclass(frozen=True)
class Kind:
    """What is trained: a recipe, with or without held-out losses and `best`."""

    recipe: str
    best: bool = False

    @classmethod
    def drawn(cls, rng: random.Random) -> Kind:
        return cls(rng.choice(list(NEEDS)), rng.random() < 0.5)

    def command(self, workers: int, save_every: int) -> list[str]:
        more = [f"train.num_workers={workers}", f"train.save_every={save_every}"]
        if self.best:
            held_out = f"tasks.{TASK[self.recipe]}.held_out=[corpora/{HELD_OUT[self.recipe]}]"
            more += [held_out, "train.evaluate_every=3", "train.evaluate_steps=2", "train.best=mlm/loss"]
        return ["pretrain", self.recipe, *ALLOWED, *more, "--output", "run"]


class Disturbed:
    """A run in a trial's folder: started again and again, in the end compared with an undisturbed one.

    Loader workers and the distance of checkpoints are drawn: neither may change a number.
    """

    def __init__(self, trial: Trial, kind: Kind | None = None, *, workers: int | None = None) -> None:
        self.trial, self.kind = trial, kind or Kind.drawn(trial.rng)
        self.folder = trial.world.copy(trial.folder, *NEEDS[self.kind.recipe])
        self.run = self.folder / "run"
        save_every = trial.rng.choice([1, 2, 3, 5])
        self.command = self.kind.command(trial.rng.randint(0, 3) if workers is None else workers, save_every)
        self.starts = 0
        trial.counts[self.kind.recipe] += 1

    @property
    def reference(self) -> Reference:
        world = self.trial.world
        command = self.kind.command(0, 2)
        return world.reference(command, "run", lambda folder: world.copy(folder, *NEEDS[self.kind.recipe]))

    def start(self, fault: Fault | None = None, *, fresh: bool = False, **environment: str) -> Command:
        """Start it, or continue with it."""
        self.starts += 1
        self.trial.counts["starts"] += 1
        log = self.folder / f"start-{self.starts}.log"
        return start(self.command, self.folder, log, fault=fault, fresh=fresh, environment=environment)

    def finish(self, ended: Ended | None = None) -> None:
        """Go on to the end, then compare.

        Raises:
            FindingError: it cannot continue, is not the same, or leaves files or processes behind.
        """
        ended = ended or self.start().wait()
        require(ended.code == 0 and not ended.hung, f"continuing, pretrain {ended}")
        same_run(self.run, self.reference.output)
        no_leftovers(self.run)
        left = orphans()
        require(not left, f"processes of commands that have ended still run: {left}")
