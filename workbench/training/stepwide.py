"""Step-wide losses (contrastive): one loss over what is embedded of all micro-batches and ranks.

The embeddings of a step are gathered on every rank. Each rank computes the terms of its own micro-batches, one after
another, against all of them, and their gradients with respect to all embeddings, which are summed over ranks; a
micro-batch then backpropagates the surrogate sum(embedding * gradient). So the loss depends neither on ranks nor on
accumulation (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup",
arXiv:2101.06983), and of the N x N comparisons only one micro-batch's rows are ever in memory.

Measured for N = 4096 pairs of 256 numbers (vision.itc, one core a rank): 303 MiB and 1.2 s on each of two ranks while
both compared all with all, 167 MiB and 0.65 s now; in micro-batches of 512 on one rank 303 MiB before and 78 MiB now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from workbench.parts.calls import call
from workbench.processes.distributed import World
from workbench.tasks.objective import LossOutput, StepHead
from workbench.tasks.returns import LOSS

Embedded = dict[str, Tensor]


@dataclass
class StepLoss:
    """What a rank holds of the loss of a step.

    `outputs` are the terms of its micro-batches; `gradients[lane]` those of its embeddings with respect to the whole
    loss; `of_head` those of the head's own parameters (a logit scale), the same on every rank.
    """

    outputs: list[LossOutput]
    gradients: dict[int, Embedded] = field(default_factory=dict)
    of_head: list[tuple[nn.Parameter, Tensor]] = field(default_factory=list)


def gather_embedded(mine: Mapping[int, Embedded], lanes: int, world: World) -> tuple[Embedded, dict[int, slice]]:
    """Every field gathered in lane order, detached, and the rows of each lane in it."""
    names: set[str] = set()
    lengths: dict[int, int] = {}
    for rank in world.gather({lane: {name: len(t) for name, t in e.items()} for lane, e in mine.items()}):
        for lane, fields in rank.items():
            names |= fields.keys()
            lengths[lane] = next(iter(fields.values()), 0)
    rows: dict[int, slice] = {}
    first = 0
    for lane in sorted(lengths):
        rows[lane] = slice(first, first + lengths[lane])
        first += lengths[lane]
    whole = {
        name: torch.cat(world.gather_rows({lane: e[name] for lane, e in mine.items()}, lanes)) for name in sorted(names)
    }
    return whole, rows


def step_loss(head: StepHead, mine: Mapping[int, Embedded], lanes: int, factor: float, world: World) -> StepLoss:
    """The terms of this rank's embeddings among those of the step, and the gradients of the whole times `factor`.

    Every rank takes part, also one that holds no lane.

    Args:
        mine: this rank's embeddings by lane; no gradient flows into them.
        lanes: micro-batches of a step over all ranks.
    """
    whole, rows = gather_embedded(mine, lanes, world)
    leaves = {name: t.float().requires_grad_() for name, t in whole.items() if t.is_floating_point()}
    parameters = [p for p in head.parameters() if p.requires_grad]
    inputs = [*leaves.values(), *parameters]
    sums: list[Tensor | None] = [None] * len(inputs)
    outputs = []
    for lane in sorted(mine):
        with torch.enable_grad():
            output = loss_of(head, {**whole, **leaves}, rows[lane])
        if output.loss.requires_grad:
            found = torch.autograd.grad(output.loss * factor, inputs, allow_unused=True)
            sums = [_added(before, more) for before, more in zip(sums, found, strict=True)]
        outputs.append(_detached(output))
    sums = _over_ranks(sums, inputs, world)
    gradients: dict[int, Embedded] = {
        lane: {name: g[rows[lane]] for name, g in zip(leaves, sums, strict=False) if g is not None} for lane in mine
    }
    of_head = [(p, g) for p, g in zip(parameters, sums[len(leaves) :], strict=True) if g is not None]
    return StepLoss(outputs, gradients, of_head)


def _added(before: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if before is None else before if more is None else before.add_(more)


def _over_ranks(sums: list[Tensor | None], inputs: list[Tensor], world: World) -> list[Tensor | None]:
    """Gradients summed over ranks; None for what no rank used."""
    if world.size == 1:
        return sums
    used = world.sum(torch.tensor([float(gradient is not None) for gradient in sums])).tolist()
    return [
        world.sum(torch.zeros_like(leaf) if gradient is None else gradient.contiguous()) if times else None
        for times, gradient, leaf in zip(used, sums, inputs, strict=True)
    ]


def loss_of(head: StepHead, embedded: Embedded, own: slice) -> LossOutput:
    """The terms of the rows `own` among the embeddings of a step, in float32."""
    whole = {name: t.float() if t.is_floating_point() else t for name, t in embedded.items()}
    output: LossOutput = call(head, "loss", LOSS, whole, own)
    return output


def surrogate(embedded: Embedded, gradients: Embedded) -> Tensor:
    """A scalar whose gradient with respect to the embeddings is `gradients`."""
    return torch.stack([(embedded[name].float() * gradient).sum() for name, gradient in gradients.items()]).sum()


def _detached(output: LossOutput) -> LossOutput:
    metrics = {name: (_without_graph(s), _without_graph(c)) for name, (s, c) in output.metrics.items()}
    return LossOutput(output.loss.detach(), metrics)


def _without_graph(value: Tensor | float) -> Tensor | float:
    return value.detach() if isinstance(value, Tensor) else value
