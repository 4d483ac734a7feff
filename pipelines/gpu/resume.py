"""`verify-resume` on the card: a run with a stop in its middle next to one without.

Kernels of a card add in any order by default, so that even two equal runs differ. With `train.deterministic` they do
not, and the two runs must be equal to the last bit, as on a CPU.
"""

from __future__ import annotations

from dataclasses import replace

from pipelines.gpu.recipes import recipe_of
from pipelines.gpu.record import CheckRecord, Setting
from workbench.training.verify_resume import verify_resume

MEASURED, STEPS, WORKERS = ("bert", "gpt"), 6, 2


def run(setting: Setting, record: CheckRecord) -> None:
    """A bidirectional and a causal recipe, with workers."""
    for name in record.in_time(MEASURED):
        with record.guarded(name):
            recipe = recipe_of(name, setting)
            recipe = replace(recipe, train=replace(recipe.train, num_workers=WORKERS, deterministic=True))
            verdict = verify_resume(recipe, setting.folder / "runs" / f"{name}-resume", STEPS)
            values, tensors = len(verdict.different), len(verdict.weights)
            found = f"{values} of {verdict.compared} values and {tensors} tensors differ"
            right = verdict.equal and verdict.compared > 0
            record.check(f"{name}, deterministic", right, found, "none differs", values=values, tensors=tensors)
