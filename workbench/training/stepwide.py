"""Step-wide losses (contrastive): one loss over the samples of all micro-batches and ranks.

The gradient with respect to the gathered embeddings is taken once; each micro-batch then runs again and
backpropagates the surrogate sum(embedding * gradient). So the loss depends neither on ranks nor on accumulation
(Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", arXiv:2101.06983).
"""

from __future__ import annotations

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
    """The loss of a whole step, the same on every rank.

    `gradients[lane]` are those of this rank's embeddings, `of_head` those of the head's own parameters (a logit
    scale), averaged over ranks so that they stay equal everywhere.
    """

    output: LossOutput
    gradients: dict[int, Embedded] = field(default_factory=dict)
    of_head: list[tuple[nn.Parameter, Tensor]] = field(default_factory=list)


def gather_embedded(mine: dict[int, Embedded], lanes: int, world: World) -> tuple[Embedded, dict[str, dict[int, int]]]:
    """Every field gathered in lane order, and for each field the first row of this rank's lanes."""
    names = sorted({name for rank in world.gather([sorted(e) for e in mine.values()]) for n in rank for name in n})
    rows = {
        lane: counts
        for rank in world.gather({lane: {n: len(t) for n, t in e.items()} for lane, e in mine.items()})
        for lane, counts in rank.items()
    }
    whole: Embedded = {}
    starts: dict[str, dict[int, int]] = {}
    for name in names:
        whole[name] = torch.cat(world.gather_rows({lane: e[name] for lane, e in mine.items()}, lanes))
        first = 0
        starts[name] = {}
        for lane in sorted(rows):
            starts[name][lane] = first
            first += rows[lane][name]
    return whole, starts


def step_loss(head: StepHead, mine: dict[int, Embedded], lanes: int, factor: float, world: World) -> StepLoss:
    """The loss over the gathered embeddings and its gradients, multiplied by `factor`.

    Args:
        mine: this rank's embeddings by lane, without gradients.
        lanes: micro-batches of a step over all ranks.
    """
    whole, starts = gather_embedded(mine, lanes, world)
    leaves = {name: t.float().requires_grad_() for name, t in whole.items() if t.is_floating_point()}
    parameters = [p for p in head.parameters() if p.requires_grad]
    with torch.enable_grad():
        output = loss_of(head, {**whole, **leaves})
        inputs = [*leaves.values(), *parameters]
        if output.loss.requires_grad:
            found: tuple[Tensor | None, ...] = torch.autograd.grad(output.loss * factor, inputs, allow_unused=True)
        else:
            found = (None,) * len(inputs)
    gradients: dict[int, Embedded] = {lane: {} for lane in mine}
    for name, gradient in zip(leaves, found, strict=False):
        if gradient is not None:
            for lane, embedded in mine.items():
                first = starts[name][lane]
                gradients[lane][name] = gradient[first : first + len(embedded[name])]
    of_head = [
        (parameter, world.sum(gradient.contiguous()) / world.size)
        for parameter, gradient in zip(parameters, found[len(leaves) :], strict=True)
        if gradient is not None
    ]
    return StepLoss(_detached(output), gradients, of_head)


def loss_of(head: StepHead, embedded: Embedded) -> LossOutput:
    """The loss of the embeddings of a step, in float32."""
    whole = {name: t.float() if t.is_floating_point() else t for name, t in embedded.items()}
    output: LossOutput = call(head, "loss", LOSS, whole)
    return output


def surrogate(embedded: Embedded, gradients: Embedded) -> Tensor:
    """A scalar whose gradient with respect to the embeddings is `gradients`."""
    return torch.stack([(embedded[name].float() * gradient).sum() for name, gradient in gradients.items()]).sum()


def _detached(output: LossOutput) -> LossOutput:
    metrics = {name: (_without_graph(s), _without_graph(c)) for name, (s, c) in output.metrics.items()}
    return LossOutput(output.loss.detach(), metrics)


def _without_graph(value: Tensor | float) -> Tensor | float:
    return value.detach() if isinstance(value, Tensor) else value
