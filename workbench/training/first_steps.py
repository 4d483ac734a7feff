"""Checks in the first steps of a run, for what no single call of a component can show: parameters that are added or
removed, objectives from which nothing is learned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from torch import Tensor, nn

from workbench.components.controls import ablated_by
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.pretraining.task import Task, labels
from workbench.sequences.batch import MicroBatch
from workbench.training.step import StepResult

logger = logging.getLogger(__name__)


FIRST_STEPS = 20
"""The number of steps in which every objective is expected to find labels."""
UNKNOWN = 0.05
"""A share of unknown tokens far above that of any tokenizer of the texts' language and writing."""
NAMED = 3
HEADS = "heads"


class BuiltTensors:
    """The parameters and buffers of a module as they were when it was built."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parameters = dict(module.named_parameters())
        self.names = set(module.state_dict())

    def check(self) -> None:
        """Compare the parameters and buffers with those at the build.

        Raises:
            WorkbenchError: there are new ones, which were never trained or would prevent the run from resuming.
        """
        now, names = dict(self.module.named_parameters()), set(self.module.state_dict())
        other = [name for name in self.parameters.keys() & now.keys() if self.parameters[name] is not now[name]]
        found = [
            f"{words} {', '.join(sorted(changed))}"
            for words, changed in (("new:", names - self.names), ("gone:", self.names - names), ("replaced:", other))
            if changed
        ]
        if found:
            raise WorkbenchError(
                f"the model's parameters and buffers are not those that it was built with; {'; '.join(found)}. The "
                "optimizer knows only the original ones, and no checkpoint would fit: create them in __init__ (or "
                "`head`), not in `forward`, and change values in place"
            )


def reached_by_some(root: nn.Module) -> list[str]:
    """The paths of parameters and modules that only some objectives reach: poolers, and those that a component names in
    its attribute `reached_by_some` (the vector of hidden regions, the last new entities)."""
    return [
        f"{path}.{name}"
        for path, module in root.named_modules()
        for name in (*getattr(module, "reached_by_some", ()), *(["poolers"] if isinstance(module, Network) else []))
    ]


class FirstSteps:
    """Whether a run learns anything: the objectives that counted a label in its first steps, and the parameters that
    had a gradient.

    Args:
        tasks: by name.
        trained: the parameters that move from the first step on.
        control: the recipe's, which may remove the signal of an objective.
        tokenizer: the recipe's, for messages.
        logs: whether this rank is the one that warns.
        spared: parameters, or modules with them, that only some objectives reach (`reached_by_some`).
        reached: whether each of some parameters has a gradient other than 0; the same on every rank.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        trained: Mapping[str, nn.Parameter],
        *,
        control: str | None = None,
        tokenizer: str | None = None,
        logs: bool,
        spared: Collection[str] = (),
        reached: Callable[[Sequence[nn.Parameter]], list[bool]],
    ) -> None:
        self.spared, self.reached = spared, reached
        self.labels, self.logs = labels(tasks), logs
        placed = {(task.name, each.name): each.objective for task in tasks.values() for each in task.objectives}
        taken = {name: ablated_by(control, task.components) for name, task in tasks.items()} if control else {}
        self.taken = {name: taken.get(key[0], "") for key, name in self.labels.items()}
        self.advice = {
            name: f"{reported}, which may be all that it learns from; choose another control"
            if reported
            else placed[key].unlabelled
            for (key, name), reported in zip(self.labels.items(), self.taken.values(), strict=True)
        }
        self.hides = any(objective.masking is not None for objective in placed.values())
        self.tokenizer = tokenizer
        self.tasks = tasks
        self.tokens: dict[str, tuple[Tensor | int, int]] = {}
        self.still = dict(trained)
        self.steps = 0
        self.asked: set[str] = set()
        self.heard: set[str] = set()

    def add(self, tasks: Collection[str], result: StepResult, *, last: bool) -> None:
        """Record a step of these tasks; at the last of the first steps, or of the run, warn of silent objectives.

        Raises:
            WorkbenchError: no objective counted anything.
        """
        self.steps += 1
        if self.steps > FIRST_STEPS:
            return
        self.asked |= {name for (task, _), name in self.labels.items() if task in tasks}
        self.heard |= result.losses.keys()
        if self.logs and (last or self.steps == FIRST_STEPS):
            self._warn_unknown()
        reached = self.reached(list(self.still.values()))
        self.still = {name: p for (name, p), by in zip(self.still.items(), reached, strict=True) if not by}
        if self.steps < FIRST_STEPS and not last:
            return
        if not self.heard:
            raise WorkbenchError(self._nothing())
        for name in sorted(self.asked - self.heard) if self.logs else ():
            advised = name, self.steps, self.advice[name]
            logger.warning("objective %s found no label in the first %d steps; %s", *advised)
        lost = sorted(name for name in self.still if self._is_expected(name))
        if lost and self.logs:
            more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
            logger.info(
                "no gradient reached %s%s in the first %d steps: nothing is learned there",
                ", ".join(lost[:NAMED]),
                more,
                self.steps,
            )

    def read(self, micros: Iterable[MicroBatch | None]) -> None:
        """Count the tokens of texts, and those that the tokenizer does not know, of a step's micro-batches."""
        if not self.logs or self.steps >= FIRST_STEPS:
            return
        for micro in micros:
            unknown = None if micro is None else self.tasks[micro.task].unknown
            if micro is None or unknown is None:
                continue
            for batch in micro.views.values():
                ids = batch.streams["text"].fields.get("input_ids") if "text" in batch.streams else None
                if ids is not None:
                    count, whole = self.tokens.get(micro.task, (0, 0))
                    self.tokens[micro.task] = count + (ids == unknown).sum(), whole + len(ids)

    def _warn_unknown(self) -> None:
        for name, (count, whole) in self.tokens.items():
            share, corpora = int(count) / whole if whole else 0.0, ", ".join(self.tasks[name].spec.corpora)
            if share > UNKNOWN:
                logger.warning(
                    "tasks.%s: %.0f %% of the tokens in the first %d steps are unknown to the tokenizer %s, so that "
                    "little of the texts of %s is learned. Does it fit their language and writing? Train one on them "
                    "(`workbench prepare tokenizer CORPUS`)",
                    *(name, 100 * share, self.steps, self.tokenizer, corpora),
                )

    def _is_expected(self, name: str) -> bool:
        """Whether a gradient should have reached a parameter. None need have reached those of some objectives alone, or
        a head whose task has not had a turn; before all tasks have, the parameters that the others reach are
        unknown."""
        if any(name == each or name.startswith(f"{each}.") for each in self.spared):
            return False
        if len(self.asked) == len(self.labels):
            return True
        whole, head, *_ = name.split(".")
        return whole == HEADS and head in {placed.rpartition(".")[2] for placed in self.asked}

    def _nothing(self) -> str:
        """The message where no objective counted anything: because of the control, or else of the objectives."""
        names = ", ".join(sorted(self.asked))
        found = f"nothing was learned in {self.steps} steps: no objective ({names}) found a label in any micro-batch"
        if taken := "; ".join(dict.fromkeys(filter(None, (self.taken[name] for name in sorted(self.asked))))):
            return (
                f"{found}. {taken[:1].upper()}{taken[1:]}, which may be all that was to be learned: train without the "
                "control, or add an objective that does not need what it removes, such as mlm"
            )
        if self.hides:
            found += (
                ". In Chinese and Japanese texts a whole-word masking strategy (`by_words = True`) finds words of "
                "several characters only if the recipe has a `segmenter`"
            )
        return (
            f"{found}. See the model's inputs with `workbench show RECIPE --batch`. An objective writes "
            "`sequence.targets[self.name]` in `corrupt`, with `labels`, whose number divides the loss; without "
            "`labels`, its method `count` returns the number"
        )
