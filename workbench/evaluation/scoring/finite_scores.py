"""The check of an evaluation that no score is NaN or infinite: no finite score, no number.

Such scores would get ordinary numbers: the first class of a list is the largest of NaNs. The weights are checked, and
the states of every network whatever a task reads of them, so no task checks its own scores. Ranks
(`workbench.metrics.ranks`) and items (`EvaluationItems`) are checked too: vectors have no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, OpenedRun
from workbench.metrics.ranks import NonFiniteScoresError
from workbench.models.network import Network, States
from workbench.runs.loaded_run import check_finite


@contextmanager
def finite_scores(task: str, run: OpenedRun, precision: str) -> Iterator[None]:
    """A block in which a task scores a run.

    Raises:
        WorkbenchError: a weight, a state or a score is not finite. It names the task, the number of items and the
            likely cause.
    """
    model = run.loaded.model if isinstance(run, EvaluatedRun) else nn.Module()
    with ErrorContext(f"task {task}"):
        check_finite(model)
    overflow = f"Likely a number overflowed in {precision}, or an input is not finite. "
    other = "--precision bfloat16 or float32" if precision == "float16" else "an earlier checkpoint"
    fix = f"{overflow}Evaluate with {other}, and check the corpus: workbench verify CORPUS"
    watch = _Watch()
    with ExitStack() as stack:
        for network in model.modules():
            if isinstance(network, Network):
                stack.callback(network.register_forward_hook(watch, with_kwargs=True).remove)
        try:
            yield
        except NonFiniteScoresError as error:
            raise WorkbenchError(f"task {task}: {error}. {fix}") from error
        except Exception as error:
            if said := watch.found(World()):
                raise WorkbenchError(f"task {task}: {said}. {fix}") from error
            raise
    if said := watch.found(run.world):
        raise WorkbenchError(f"task {task}: {said}. {fix}")


class _Watch:
    """A forward hook of networks that counts the sequences whose states are not finite; it does not wait for the
    device."""

    def __init__(self) -> None:
        self.odd: list[Tensor] = []
        self.sequences = 0

    def __call__(self, network: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], states: States) -> None:
        batch = given[0] if given else named["batch"]
        self.sequences += batch.size
        odd = []
        for name, rows in states.items():
            wrong = ~rows.isfinite().flatten(1).all(1)
            stream = batch.streams.get(name)
            if stream is None or stream.rows != len(wrong):  # rows of a cache, say
                odd.append(wrong.any().long())
                continue
            before = F.pad(wrong.long().cumsum(0), (1, 0))[stream.offsets.long()]
            odd.append((before.diff() > 0).sum())
        if odd:
            self.odd.append(torch.stack(odd).amax())

    def found(self, world: World) -> str:
        """How many there are on all ranks, in words; "" for none."""
        counts = world.gather((sum(map(int, self.odd)), self.sequences))
        odd, total = (sum(count) for count in zip(*counts, strict=True))
        if not odd:
            return ""
        return f"{odd:,} of the {total:,} sequences that were read have scores that are not finite (NaN or infinite)"
