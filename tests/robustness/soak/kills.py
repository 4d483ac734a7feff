"""SIGKILL of pretraining at any operation on its files, also while it continues; then it must be as if undisturbed."""

from __future__ import annotations

import signal

from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.faults import Fault
from tests.robustness.soak.processes import Ended
from tests.robustness.soak.runs import Disturbed

FRESH = 0.04
"""Share of starts in a new interpreter, as from a shell: it takes as long as twenty forked ones."""


def trial(trial: Trial) -> None:
    """One run."""
    kill(trial, Disturbed(trial))


def kill(trial: Trial, disturbed: Disturbed) -> None:
    """One to four kills of it."""
    rng = trial.rng
    for _ in range(rng.randint(1, 4)):
        fault = Fault(
            str(disturbed.run),
            at=trial.moment(disturbed.reference.operations),
            delay=rng.choice([0.0, 0.0, rng.random() * 0.01]),
            after=rng.random() < 0.3,
        )
        ended = disturbed.start(fault, fresh=rng.random() < FRESH).wait()
        if ended.code == 0:  # it was over before
            break
        require(killed(ended), f"a start {ended}")
        trial.counts["kills"] += 1
        trial.counts["kills with a draft left"] += any(p.name.startswith(".") for p in disturbed.run.rglob(".*"))
    disturbed.finish()


def killed(ended: Ended) -> bool:
    """Whether the fault ended it (a delayed one is SIGALRM's default action)."""
    return ended.code in (-signal.SIGKILL, -signal.SIGALRM) and not ended.hung
