"""Fine-tuning is pretraining with another task: a recipe derived from a run's, trained by the same loop."""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.options import bounds
from workbench.options.bounds import Assignment, Count, Location, Positive
from workbench.options.command import Trust
from workbench.recipe.spec import Control, NetworkSpec, Recipe, SequenceSpec, TaskSpec, TrainSpec
from workbench.recipe.trees import with_overrides
from workbench.runs.folder import TOKENIZER, read_recipe, trust_run
from workbench.training import pretrain as runs

logger = logging.getLogger(__name__)

Epochs = Annotated[Positive, typer.Option(help="Passes over the training set.")]
BatchSize = Annotated[Count, typer.Option(help="Examples per step.")]
LearningRate = Annotated[bounds.LearningRate, typer.Option(help="Peak learning rate.")]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What fine-tuning is told whatever the task: from where, on what, for how long.

    Attributes:
        overrides: `key=value`, applied last.
        control: recorded in the new run's recipe; by default that of `run`.
    """

    run: Annotated[Path, typer.Argument(help="The pretrained run.")]
    corpus: Annotated[Location, typer.Argument(help="Training set.")]
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="Changes to the recipe, as key=value.", metavar="KEY=VALUE")
    ] = None
    output: Annotated[Path | None, typer.Option("--output", "-o", help="New run; default: RUN-TASK.")] = None
    held_out: Annotated[
        Location | None, typer.Option(help="Corpus for held-out losses (train.evaluate_every=...).")
    ] = None
    epochs: Epochs = 4.0
    batch_size: BatchSize = 32
    lr: LearningRate = 5e-5
    control: Annotated[Control | None, typer.Option(help="Train without what the control takes away.")] = None
    trust: Trust = False

    def train(self, recipe: Recipe) -> Path:
        """Train what `recipe` made; returns the new run's folder."""
        task = next(iter(recipe.tasks))  # overrides may add others
        suffix = f"{task}-{self.control}" if self.control else task
        folder = runs.pretrain(recipe, self.output or self.run.with_name(f"{self.run.name}-{suffix}"))
        logger.info("now: workbench evaluate %s %s CORPUS", task, folder)
        return folder

    def recipe(
        self,
        task: str,
        sequence: SequenceSpec,
        objective: dict[str, Any],
        *,
        unit: str | None = None,
        poolers: tuple[str, ...] = (),
    ) -> Recipe:
        """The recipe that fine-tunes the run's network, on texts read from left to right if it read all texts so.

        Args:
            unit: the field that the builder cuts items from, to count an epoch; by default the records are counted.
            poolers: streams that get a pooler where the run has none.

        Raises:
            WorkbenchError: the run's recipe has several networks, an override is wrong, or parts are not trusted.
        """
        base = read_recipe(self.run)
        manifest = Corpus.open(self.corpus).manifest
        items = manifest.records if unit is None else manifest.lengths.get(unit, 0)
        spec = TaskSpec(
            corpora={self.corpus: 1.0},
            sequence=sequence,
            objectives=[objective],
            held_out=[self.held_out] if self.held_out else [],
        )
        if all(task.sequence.visibility == "causal" for task in base.tasks.values()):
            spec.sequence = sequence.with_visibility("causal")
        tokenizer = self.run / TOKENIZER
        recipe = dataclasses.replace(
            base,
            name=f"{base.name}-{task}",
            description=f"{base.name}, fine-tuned on {task}",
            model=self._network(base, poolers),
            tasks={task: spec},
            train=self._schedule(base, items),
            schedule="together",
            tokenizer=str(tokenizer) if tokenizer.is_file() else base.tokenizer,
            control=self.control or base.control,
        )
        recipe = with_overrides(recipe, self.overrides or [])
        trust_run(self.run, recipe, self.trust)
        return recipe

    def _network(self, base: Recipe, poolers: tuple[str, ...]) -> NetworkSpec:
        if len(base.networks) != 1:
            raise WorkbenchError(
                f"{self.run} has the networks {', '.join(base.networks)}; fine-tuning takes a run of one network"
            )
        model = next(iter(base.networks.values()))
        return dataclasses.replace(model, init_from=str(self.run), poolers=sorted({*model.poolers, *poolers}))

    def _schedule(self, base: Recipe, items: int) -> TrainSpec:
        """Warm-up over the first tenth, then linear decay."""
        steps = max(1, math.ceil(self.epochs * items / self.batch_size))
        return TrainSpec(
            max_steps=steps,
            global_batch_size=self.batch_size,
            micro_batch_size=self.batch_size,
            lr=self.lr,
            lr_schedule={"lr_schedule": "linear", "warmup_steps": steps // 10},
            num_workers=base.train.num_workers,
            precision=base.train.precision,
            save_every=steps,
        )
