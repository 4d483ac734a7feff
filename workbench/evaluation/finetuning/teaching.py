"""Teachers of a fine-tuning (`finetune TASK RUN CORPUS --teacher OTHER`): their heads say what they predict of each
example, and the new run learns the labels and what they say, each with half the weight.

Examples without a label have no labels to learn, but a teacher reads them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.interop.run_or_checkpoint import recipe_at
from workbench.pretraining.task import objective_name
from workbench.recipe.other_networks import StoredNetwork
from workbench.recipe.spec import Recipe, Spec
from workbench.runs.stored_run import fetched_run
from workbench.text.tokenizer import Tokenizer

TEACHER = "teacher"
WEIGHT = 0.5
"""Of the labels, and of what the teachers say."""
TEMPERATURE = 2.0
CLASSES = ("classes", "tags")
"""The options of objectives that name their classes: their logits are a distribution."""


def with_teachers(recipe: Recipe, teachers: Sequence[str]) -> Recipe:
    """The recipe of a fine-tuning with the networks of the teachers, their objectives and the distillation.

    Raises:
        WorkbenchError: a teacher was not fine-tuned on such a task, has other classes, or does not know all tokens of
            the student, whose ids it would read.
    """
    if not teachers:
        return recipe
    ((name, task),) = recipe.tasks.items()
    learned = task.objectives[0]
    named = [TEACHER if len(teachers) == 1 else f"{TEACHER}{n}" for n in range(1, len(teachers) + 1)]
    networks: dict[str, Any] = dict(recipe.model) if isinstance(recipe.model, dict) else {"main": recipe.model}
    said: list[Spec] = []
    for network, place in zip(named, teachers, strict=True):
        spec = _objective(place, learned, recipe.tokenizer)
        networks[network] = StoredNetwork(place, spec.get("network"), {network: objective_name(spec)})
        said.append({**spec, "name": network, "network": network, "targets": objective_name(learned), "weight": 0})
    by = {"loss": "logits", "temperature": TEMPERATURE} if _classes(learned) else {"loss": "logits_mse"}
    distil = {"objective": "distil", **by, "of": objective_name(learned), "taught_by": named, "weight": WEIGHT}
    if "network" in learned:
        distil["network"] = learned["network"]
    objectives = [{**learned, "weight": WEIGHT}, *said, distil]
    return replace(recipe, model=networks, tasks={name: replace(task, objectives=objectives)})


def _objective(place: str, learned: Spec, tokenizer: str | None) -> Spec:
    """The teacher's objective of the kind that is learned, with the classes in the order of the student's: the rows of
    its head are found by their names."""
    stored = recipe_at(Path(fetched_run(place)))
    own = [spec for task in stored.tasks.values() for spec in task.objectives]
    found = [spec for spec in own if spec["objective"] == learned["objective"] and spec.get("weight", 1.0) != 0]
    if not found:
        raise WorkbenchError(
            f"--teacher {place}: it has no objective {learned['objective']} (it has "
            f"{', '.join(sorted({str(spec['objective']) for spec in own}))}); fine-tune it on the same task first"
        )
    _check_tokens(place, stored.tokenizer, tokenizer)
    alike = [spec for spec in found if sorted(map(str, _classes(spec))) == sorted(map(str, _classes(learned)))]
    if not alike:
        raise WorkbenchError(
            f"--teacher {place}: it knows the classes {', '.join(map(str, _classes(found[0])))}, and the corpus has "
            f"{', '.join(map(str, _classes(learned)))}; fine-tune it on a corpus with these classes"
        )
    classes = {option: learned[option] for option in CLASSES if option in learned}
    return {k: v for k, v in alike[0].items() if k not in ("weight", "view", "after", "targets")} | classes


def _check_tokens(place: str, theirs: str | None, ours: str | None) -> None:
    if theirs is None or ours is None or theirs == ours:
        return
    known, read = (Tokenizer.load(each).vocabulary for each in (theirs, ours))
    if missing := [token for token in read if token not in known]:
        raise WorkbenchError(
            f"--teacher {place}: it does not know {len(missing):,} of the {len(read):,} tokens that the student reads, "
            f"such as {', '.join(map(repr, missing[:3]))}; take a teacher with the tokenizer of the student"
        )


def _classes(spec: Spec) -> list[Any]:
    return next((list(spec[option]) for option in CLASSES if option in spec), [])
