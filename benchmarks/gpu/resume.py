"""`verify-resume` on the card: a run with a stop in its middle next to one without.

On a CPU the two are equal to the last bit. Kernels of a card that add in any order need not be: what is allowed is how
far rounding carries the losses apart in a few steps.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.gpu.recipes import recipe_of
from benchmarks.gpu.record import Record, Setting
from workbench.training.verify_resume import ResumeVerdict, verify_resume

MEASURED, STEPS, WORKERS = ("bert", "gpt"), 6, 2
TOLERANCE = 1e-2
"""Relative difference of a loss, metric or gradient norm."""


def run(setting: Setting, record: Record) -> None:
    """A bidirectional and a causal recipe, with workers."""
    for name in record.in_time(MEASURED):
        with record.guarded(name):
            recipe = recipe_of(name, setting)
            recipe = replace(recipe, train=replace(recipe.train, num_workers=WORKERS))
            verdict = verify_resume(recipe, setting.folder / "runs" / f"{name}-resume", STEPS)
            largest = difference(verdict)
            equal = "equal to the last bit" if verdict.equal else f"largest relative difference {largest:.1e}"
            reported = (
                f"{equal}; {len(verdict.different)} of {verdict.compared} values, {len(verdict.weights)} tensors differ"
            )
            right = largest <= TOLERANCE
            record.check(name, right, reported, f"<= {TOLERANCE:g}", largest=largest, tensors=len(verdict.weights))


def difference(verdict: ResumeVerdict) -> float:
    """The largest relative difference of a value of the two runs."""
    pairs = [(one, other) for _, _, one, other in verdict.different]
    return max((abs(one - other) / max(abs(one), 1e-3) for one, other in pairs), default=0.0)
