"""Removal of attention heads and feed-forward features from a trained run: smaller tensors, in a run of its own.

What is removed matters least for the losses of the run's task on a corpus. With the input x of the linear map at the
end of a sublayer, the importance of some of its features is, summed over the sequences s (Michel et al.,
arXiv:1905.10650, equation 2; Molchanov et al., arXiv:1611.06440, equation 8),

    I = sum over s of | sum over the rows and features of s of x dL/dx |

A head is the features of its output. Heads are ranked in the whole network, each layer's importances divided by their
norm, and every layer keeps at least one. Every layer keeps equally many features, as checkpoint families have one size.
"""

from __future__ import annotations

import math
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import draft_folder
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.passes import sample_pass
from workbench.interop.stream_weights import layer_specs
from workbench.models.blocks import MultiHeadAttention
from workbench.models.feed_forward import FeedForward
from workbench.models.layers.self import SelfLayer
from workbench.models.network import Network
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task import Task
from workbench.pretraining.window_lengths import window_of
from workbench.recipe.spec import NetworkSpec, Recipe, Spec
from workbench.runs.checkpoint import read_state
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import BASE, RUN, keep_data, read_data, run_id
from workbench.runs.folder import keep_code, open_run
from workbench.runs.loaded_run import LoadedRun, load
from workbench.runs.names import TOKENIZER
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample

KEPT_STATE = ("step", "seconds", "window", "versions", "arithmetic", "order", "draws")
"""What the state of the new run's checkpoint has of the old one."""
MADE_BY = "pruned"
"""The key of a run's data record that says from which run it was made, and how."""
AT_ONCE = 8
"""Samples of a pass."""


@dataclass
class Importance:
    """The importance of the parts of a layer: `heads` [heads] and `features` [intermediate_size]."""

    heads: Tensor
    features: Tensor


def removed(
    loaded: LoadedRun, run: Path, output: Path, corpus: Corpus, heads: float, rows: float, **where: Any
) -> tuple[int, int]:
    """Write a run without the least important heads and features; returns the numbers of parameters before and after.
    A run that the same call has written is left as it is.

    Args:
        run: the folder of the loaded run.
        heads, rows: the shares that are removed.
        where: `network`, `task` and `limit` of the records that are read; None: the only one, and all.

    Raises:
        WorkbenchError: `output` exists; or the network has layers that are none of `self`, are shared or adapted, or
            have a score bias.
    """
    name = loaded.model.network_name(where["network"])
    if name in loaded.model.followers:
        raise WorkbenchError(f"the network {name!r} follows another one; name that one: --network")
    network, spec = loaded.model.network(name), loaded.recipe.networks[name]
    where_read = f"{run}, network {name!r}"
    check_layers(network, spec, where_read)
    if len(network.adapters):
        raise WorkbenchError(f"{where_read} has adapters; merge them first (workbench export)")
    source = Checkpoints(run).best_or_last()
    assert source is not None  # it was loaded
    made_by = {
        "run": run_id(run),
        "step": source.name,
        "corpus": corpus.identity,
        "heads": heads,
        "rows": rows,
        **where,
    }
    if output.exists():
        if (read_data(output) or {}).get(MADE_BY) != made_by:
            raise WorkbenchError(f"{output} exists; choose a new folder for the smaller run")
        return _count(loaded.model, name), _count(load(output).model, name)
    task = task_of(loaded, name, where["task"], run)
    found = importances(loaded.model, network, task, corpus, where["limit"])
    kept = kept_parts(found, heads, rows)
    recipe = _smaller(loaded.recipe, name, network, kept)
    made = make_model(recipe, tasks_of(recipe, loaded.tokenizer), loaded.tokenizer)
    state = loaded.model.state_dict()
    for number, (layer, (own, features)) in enumerate(zip(network.layers, kept, strict=True)):
        prefix = f"networks.{name}.layers.{number}"
        state |= {f"{prefix}.{key}": tensor for key, tensor in _cut(layer, own, features).items()}
    made.load_state_dict(state)
    draft = draft_folder(output)
    try:
        _write(run, draft, recipe, made, loaded, made_by)
        draft.rename(output)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return _count(loaded.model, name), _count(made, name)


def _count(model: PretrainingModel, network: str) -> int:
    return sum(p.numel() for p in model.network(network).parameters())


def check_layers(network: Network, spec: NetworkSpec, where: str, *, biased: bool = False) -> None:
    """
    Raises:
        WorkbenchError: not all layers are `self` with heads of their own, or, unless they may be `biased`, without a
            score bias.
    """
    owners = Counter(id(weight) for layer in network.layers for weight in {*layer.parameters()})
    for number, (layer, own) in enumerate(zip(network.layers, layer_specs(spec.layers), strict=True)):
        shared = any(owners[id(weight)] > 1 for weight in layer.parameters())
        plain = isinstance(layer, SelfLayer) and isinstance(layer.feed_forward.network, FeedForward) and not shared
        if not plain or not (biased or _divides(attention_of(layer))):
            raise WorkbenchError(
                f"{where}: layer {number} ({own['layer']}) cannot be made smaller: heads and rows are removed from "
                "layers `self` whose weights no other layer shares and that have no experts"
                f"{'' if biased else ', no score_bias and no kv_heads'}"
            )


def _divides(attention: MultiHeadAttention) -> bool:
    """Whether each head of an attention has weights that no other head needs."""
    return attention.score_bias is None and attention.kv_heads == attention.num_heads


def task_of(loaded: LoadedRun, network: str, name: str | None, run: Path) -> Task:
    """The only task whose losses train the network, or the one that is named."""
    reading = {
        task.name: task
        for task in loaded.tasks.values()
        if any(placed.network == network and placed.weight != 0 for placed in task.objectives)
    }
    if name not in reading and (name is not None or len(reading) != 1):
        raise unknown("task", name or "", reading, str(run), advice="Name the one whose losses count: --task")
    return reading[name] if name is not None else next(iter(reading.values()))


@contextmanager
def _seen(network: Network) -> Iterator[dict[nn.Linear, Tensor]]:
    """A block in which the inputs of the last map of each sublayer are kept, with their gradients."""
    inputs: dict[nn.Linear, Tensor] = {}

    def keep(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        assert isinstance(module, nn.Linear)
        rows = given[0] if given[0].requires_grad else given[0].detach().requires_grad_()
        rows.retain_grad()
        inputs[module] = rows
        return (rows, *given[1:])

    hooks = [last.register_forward_pre_hook(keep) for layer in network.layers for last in _last(layer)]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def attention_of(layer: nn.Module) -> MultiHeadAttention:
    assert isinstance(layer, SelfLayer)
    return layer.attention.attention


def _last(layer: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    assert isinstance(layer, SelfLayer)
    return attention_of(layer).output, layer.feed_forward.single.outer


def importances(
    model: PretrainingModel, network: Network, task: Task, corpus: Corpus, limit: int | None
) -> list[Importance]:
    """The importance of the heads and features of each layer for the losses of a task."""
    device, window = next(network.parameters()).device, window_of(task, [corpus])
    weights = {placed.name: placed.weight_at(1.0) for placed in task.objectives}

    def loss(number: int, samples: list[Sample]) -> tuple[Any, Batch]:
        micro = task.micro_batch(samples, (0, number, 0)).to(device)
        outputs = model(micro, task.names)
        total = sum((weights[name] / micro.counts[name]) * outputs[name].loss for name in outputs if micro.counts[name])
        return total, micro.views[task.objectives[0].view]

    groups = sample_pass([corpus], size=AT_ONCE, unit=task.builder.unit, window=window, records=limit)
    found = importances_for(network, groups, loss)
    model.zero_grad(set_to_none=True)
    if not any(bool(one.heads.any()) for one in found):
        raise WorkbenchError(
            f"corpus {corpus.name!r}: the losses of the task {task.name!r} have no labels there, so nothing is known "
            "of what matters"
        )
    return found


def importances_for(
    network: Network, groups: Iterable[list[Sample]], loss: Callable[[int, list[Sample]], tuple[Any, Batch]]
) -> list[Importance]:
    """The importance of the heads and features of each layer for the losses of groups of samples.

    Args:
        loss: from a group, and its number, the sum of the losses of its sequences, and the batch of these.
    """
    last = [_last(layer) for layer in network.layers]
    found = [
        Importance(torch.zeros(attention_of(layer).num_heads), torch.zeros(outer.in_features))
        for layer, (_, outer) in zip(network.layers, last, strict=True)
    ]
    for number, samples in enumerate(groups):
        with torch.enable_grad(), _seen(network) as inputs:
            total, batch = loss(number, samples)
            if not isinstance(total, Tensor) or not total.requires_grad:
                continue
            total.backward()
        for one, pair, layer in zip(found, last, network.layers, strict=True):
            parts = [_by_sequence(inputs[each], batch, layer.stream) for each in pair]  # type: ignore[arg-type]
            one.heads += parts[0].unflatten(-1, (len(one.heads), -1)).sum(-1).abs().sum(0).cpu()
            one.features += parts[1].abs().sum(0).cpu()
    network.zero_grad(set_to_none=True)
    return found


def _by_sequence(rows: Tensor, batch: Batch, stream: str) -> Tensor:
    """The sums of x dL/dx over the rows of each sequence [sequences, features]."""
    lengths = torch.tensor(batch.streams[stream].lengths, device=rows.device)
    places = torch.repeat_interleave(torch.arange(len(lengths), device=rows.device), lengths)
    products = rows.detach() * (rows.grad if rows.grad is not None else torch.zeros_like(rows))
    return rows.new_zeros(len(lengths), rows.shape[1]).index_add(0, places, products)


def kept_parts(found: list[Importance], heads: float, rows: float) -> list[tuple[Tensor, Tensor]]:
    """The heads and the features that each layer keeps, by their numbers in order. Of equal heads the first stay."""
    relative = [one.heads / one.heads.norm().clamp_min(1e-12) for one in found]
    best = [int(each.argmax()) for each in relative]
    for each, first in zip(relative, best, strict=True):
        each[first] = math.inf  # a layer without heads would be none
    every = torch.cat(relative)
    left = max(len(found), round((1 - heads) * len(every)))
    stays = torch.zeros(len(every), dtype=torch.bool)
    stays[every.sort(descending=True, stable=True).indices[:left]] = True
    own = stays.split([len(each) for each in relative])
    size = len(found[0].features)
    count = max(1, round((1 - rows) * size))
    return [
        (each.nonzero().flatten(), one.features.topk(min(count, len(one.features))).indices.sort().values)
        for each, one in zip(own, found, strict=True)
    ]


def _smaller(recipe: Recipe, name: str, network: Network, kept: list[tuple[Tensor, Tensor]]) -> Recipe:
    """The recipe whose layers have the sizes of what is kept; equal neighbours are one entry."""
    layers: list[Spec] = []
    for spec, layer, (heads, features) in zip(
        layer_specs(recipe.networks[name].layers), network.layers, kept, strict=True
    ):
        attention = attention_of(layer)
        own = {key: value for key, value in spec.items() if key not in ("repeat", "inner_size")}
        own |= {"num_heads": len(heads), "intermediate_size": len(features)}
        if len(heads) != attention.num_heads or "inner_size" in spec:
            own["inner_size"] = len(heads) * attention.head_size
        layers.append(own)
    runs = [(spec, len(list(same))) for spec, same in groupby(layers)]
    entries = [spec if times == 1 else {**spec, "repeat": times} for spec, times in runs]
    made = replace(recipe.networks[name], layers=entries, init_from=[])
    model: Any = {**recipe.model, name: made} if isinstance(recipe.model, dict) else made
    return replace(recipe, model=model)


def _cut(layer: nn.Module, heads: Tensor, features: Tensor) -> dict[str, Tensor]:
    """The tensors of a layer that become smaller, by their names in it."""
    assert isinstance(layer, SelfLayer)
    attention, network = layer.attention.attention, layer.feed_forward.single
    size, blocks = attention.head_size, 2 if network.gated else 1
    columns = (heads[:, None] * size + torch.arange(size)).flatten()
    projected = torch.cat([columns + block * attention.num_heads * size for block in range(3)])
    inner = torch.cat([features + block * network.outer.in_features for block in range(blocks)])
    found = {
        "attention.attention.qkv.weight": attention.qkv.weight[projected],
        "attention.attention.output.weight": attention.output.weight[:, columns],
        "feed_forward.network.inner.weight": network.inner.weight[inner],
        "feed_forward.network.outer.weight": network.outer.weight[:, features],
    }
    for name, bias, rows in (
        ("attention.attention.qkv", attention.qkv.bias, projected),
        ("feed_forward.network.inner", network.inner.bias, inner),
    ):
        found |= {} if bias is None else {f"{name}.bias": bias[rows]}
    return {name: tensor.detach() for name, tensor in found.items()}


def _write(
    run: Path, output: Path, recipe: Recipe, made: PretrainingModel, loaded: LoadedRun, made_by: dict[str, Any]
) -> None:
    """Write the smaller model as a run that has taken the steps of the old one, into an empty folder."""
    source = Checkpoints(run).best_or_last()
    assert source is not None  # it was loaded
    state = {key: value for key, value in read_state(source).items() if key in KEPT_STATE}
    name = uuid.uuid4().hex
    open_run(output, recipe)
    keep_code(output, recipe)
    if loaded.tokenizer is not None:
        loaded.tokenizer.save(output / TOKENIZER)
    record = read_data(run) or {"since_step": 0, "read": {}, "held_out": {}}
    read = {kind: places for kind, places in record["read"].items() if kind != BASE}
    keep_data(output, {**record, "read": read, RUN: name, MADE_BY: made_by})
    checkpoints = Checkpoints(output)
    made.train()
    checkpoints.start(made, make_optimizer(made, recipe.train), {**state, "run": name, "best": None}, consolidated=True)
    checkpoints.finish()
