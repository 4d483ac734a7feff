"""Fine-tuning is pretraining with another task: a recipe derived from a run's, trained by the same loop."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from workbench.config import Recipe, SequenceSpec, TaskSpec, TrainSpec, with_overrides
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.training.run_folder import TOKENIZER, read_recipe


def derive(
    run: Path,
    *,
    task: str,
    corpus: str,
    sequence: SequenceSpec,
    objectives: list[dict[str, Any]],
    unit: str | None,
    poolers: tuple[str, ...] = (),
    held_out: str | None = None,
    epochs: float = 3.0,
    batch_size: int = 32,
    lr: float = 5e-5,
    control: str | None = None,
    overrides: list[str] | None = None,
) -> Recipe:
    """The recipe that fine-tunes a run's network on a corpus.

    Warm-up over the first tenth, then linear decay; the step count follows from epochs, items and batch size.

    Args:
        run: the pretrained run; its network starts the new one, poolers are added where they are missing.
        unit: the field that the builder cuts items from, to count an epoch.
        overrides: `key=value`, applied last.

    Raises:
        WorkbenchError: the run's recipe has several networks, or an override is wrong.
    """
    base = read_recipe(run)
    if len(base.networks) != 1:
        raise WorkbenchError(
            f"{run} has the networks {', '.join(base.networks)}; fine-tuning takes a run of one network"
        )
    model = next(iter(base.networks.values()))
    model = dataclasses.replace(model, init_from=str(run), poolers=sorted({*model.poolers, *poolers}))
    manifest = Corpus.open(corpus).manifest
    items = manifest.records if unit is None else manifest.lengths.get(unit, 0)
    steps = max(1, math.ceil(epochs * items / batch_size))
    train = TrainSpec(
        max_steps=steps,
        global_batch_size=batch_size,
        micro_batch_size=batch_size,
        lr=lr,
        warmup_steps=steps // 10,
        num_workers=base.train.num_workers,
        precision=base.train.precision,
        save_every=max(steps, 1),
    )
    spec = TaskSpec(
        corpora={corpus: 1.0}, sequence=sequence, objectives=objectives, held_out=[held_out] if held_out else []
    )
    tokenizer = run / TOKENIZER
    recipe = dataclasses.replace(
        base,
        name=f"{base.name}-{task}",
        description=f"{base.name}, fine-tuned on {task}",
        model=model,
        tasks={task: spec},
        train=train,
        schedule="together",
        tokenizer=str(tokenizer) if tokenizer.is_file() else base.tokenizer,
        control=control or base.control,
    )
    return with_overrides(recipe, overrides or [])
