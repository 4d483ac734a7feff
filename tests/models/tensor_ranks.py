"""Models on the ranks of a tensor group, compared with the same models on one rank."""

from __future__ import annotations

import copy
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.contracts import test_layers as layers
from tests.contracts.case_finder import cases_of, make
from tests.models.adapters import adapter_runs as adapters
from tests.models.adapters.test_side import SIDE
from workbench.components.building import find, options_of
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.feed_forward import FeedForward
from workbench.models.kv_cache import KVCache
from workbench.models.network import Network
from workbench.models.tensor_cut import CutDim
from workbench.parallel.tensor_order import whole
from workbench.parallel.tensor_parallel import shard_tensors
from workbench.recipe.spec import NetworkSpec
from workbench.runs.checkpoint import content_of, restore, write_state
from workbench.runs.pieces import StoredTensors

TERMS: dict[str, dict[str, Any]] = {
    "": {"dropout": 0.0, "attention_dropout": 0.0},
    "dropout": {"dropout": 0.3, "attention_dropout": 0.3},
    "dropout window": {"attention_dropout": 0.3, "window": 1, "scale": 0.2, "norm_place": "pre", "norm": "rms"},
    "buckets gated": {"score_bias": "buckets", "activation": "swiglu", "bias": False, "inner_size": 32},
    "alibi rotary": {"score_bias": "alibi", "rotary": 100.0, "intermediate_size": 12, "attention_bias": False},
    "relative": {"score_bias": {"score_bias": "relative", "segments": True}, "norm": "unbiased"},
    "disentangled": {"score_bias": {"score_bias": "disentangled", "max_distance": 6, "norm_eps": 1e-7}},
    "disentangled maps": {"score_bias": {"score_bias": "disentangled", "max_distance": 6, "own_maps": True}},
}
"""Options of a layer. A layer is built with those that it has, and left out with those that it refuses."""
ADAPTERS: dict[str, list[dict[str, Any]]] = {
    "lora columns": [{"adapter": "lora", "targets": ["layers.*.qkv", "layers.*.inner"], "rank": 3, "dropout": 0.4}],
    "lora rows": [{"adapter": "lora", "targets": ["layers.*.output", "layers.*.outer"], "rank": 3, "dropout": 0.4}],
    "bottleneck columns": [{"adapter": "bottleneck", "targets": ["layers.*.qkv", "layers.*.inner"], "size": 3}],
    "bottleneck rows": [{"adapter": "bottleneck", "targets": ["layers.*.output", "layers.*.outer"], "size": 3}],
    "prefix": [{"adapter": "prefix", "targets": ["layers.*"], "size": 3}],
    "side": [SIDE],
}
SHARES = ["all", "attention", "feed_forward", "score_bias", "biases", "positions"]


class PastTheEntry(nn.Module):
    """A layer that computes with the matrices of a block by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.network = FeedForward(8, 16)

    def forward(self, rows: Tensor) -> Tensor:
        rows = self.network(rows)
        return self.network.outer(nn.functional.linear(rows, self.network.inner.weight))


@dataclass
class TensorCase:
    """A module and what is run of it: (module, number of the run) -> tensors that are compared."""

    module: nn.Module
    run: Callable[[nn.Module, int], list[Tensor]]
    reads: list[Tensor] = field(default_factory=list)


def names(data: int, few: bool = False) -> list[str]:
    """The names of the cases: each case of each layer with each of the options, and networks. On several data
    ranks, over which `fully_shard` divides parameters further, options that make no difference there are left out.
    `few` leaves each layer as it is, but one that has each of the options."""
    every = [f"layer {name} + {terms}" for name in cases_of("layer") for terms in TERMS]
    if few:
        every = [name for name in every if name.endswith(" + ") or name.startswith("layer self + ")]
    every += [*(f"adapter {name}" for name in ADAPTERS), *(f"share {name}" for name in SHARES), "memory", "outside"]
    if data > 1:
        apart = {"layer self + relative", "adapter lora columns", "adapter bottleneck columns", "adapter prefix"}
        every = [name for name in every if name.endswith(" + dropout") or name in apart or name.startswith("share")]
    return [*(name for name in every if not name.startswith("layer ") or _options(name) is not None), "stored"]


def _options(case: str) -> dict[str, Any] | None:
    """The options of a layer for its terms; None where it is as without them, or refuses them."""
    name, terms = case.removeprefix("layer ").split(" + ")
    part, case = cases_of("layer")[name]
    known = options_of(find("layer", part)).names
    options = {key: value for key, value in TERMS[terms].items() if key in known and key not in case.options}
    if terms and not options.keys() - {"attention_dropout"}:
        return None
    try:
        make("layer", name, {"sizes": layers.SIZES}, **options)
    except WorkbenchError:
        return None
    return options


def case_of(name: str) -> TensorCase:
    kind, _, rest = name.partition(" ")
    if kind == "layer":
        return _layer(name)
    if kind == "adapter":
        made = adapters.network(ADAPTERS[rest])
        adapters.trained(made)
        return TensorCase(made.train(), lambda module, _: [module(adapters.batch())["text"]])
    if kind == "outside":
        return TensorCase(PastTheEntry(), lambda module, _: [module(torch.ones(3, 8))])
    return _memory() if kind == "memory" else _shared(rest)


def drawn(module: nn.Module, scale: float = 0.2) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=scale)
    return module


def _layer(case: str) -> TensorCase:
    options, (name, terms) = _options(case), case.removeprefix("layer ").split(" + ")
    assert options is not None
    layer = drawn(make("layer", name, {"sizes": layers.SIZES}, **options))

    def run(module: nn.Module, number: int) -> list[Tensor]:
        batch, hidden = layers.batch_of([[0, 1], [2]][number])
        for stream in batch.streams.values():
            stream.fields["token_type_ids"] = torch.arange(stream.rows) % 2
        context = Context(batch, keep_attention=not terms)
        out = module({stream: states * scales[stream] for stream, states in hidden.items()}, context)
        weights = [w for record in context.attention for w in record.weights]
        left = [states for tap in context.taps.values() for states in tap.values()]
        return [*out.values(), *left, *weights]

    scales = {stream: torch.ones((), requires_grad=True) for stream in layers.SIZES}
    return TensorCase(layer.train(), run, [*scales.values()])


def _shared(share: str) -> TensorCase:
    positions = {"score_bias": "disentangled", "max_distance": 6}
    bias = {"score_bias": "buckets", "positions": positions}.get(share, {"score_bias": "relative"})
    options = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.2, "repeat": 2, "share": share}
    layer = {"layer": "self", "stream": "text", **options, "score_bias": bias}
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 20, "dropout": 0.0}
    torch.manual_seed(0)
    network = Network(NetworkSpec({"text": text}, [layer], init_range=0.3, scaled_residuals=True))
    return TensorCase(network.train(), lambda module, _: [module(adapters.batch())["text"]])


def _memory() -> TensorCase:
    """Pieces of a text that are read with a KV cache."""

    def run(module: nn.Module, number: int) -> list[Tensor]:
        found = []
        for keeps in ("keys", "rows"):
            context = Context(adapters.batch(), cache=KVCache(keeps))  # type: ignore[arg-type]
            found.append(module(adapters.batch(), context)["text"])
            found.append(module(adapters.batch(), Context(adapters.batch(), cache=context.updated_cache))["text"])
        return found

    return TensorCase(adapters.network().eval(), run)


def loss_of(found: list[Tensor]) -> Tensor:
    """The mean of squares, each element with a weight of its own."""
    weighted = [t * torch.linspace(0.5, 1.5, t.numel()).view_as(t) for t in found if t.numel()]
    return torch.stack([t.square().mean() for t in weighted]).sum()


def differences(name: str, data: int, data_rank: int, mesh: Any) -> dict[str, float]:
    """The largest difference of the loss, each output and gradient, relative to its largest number (at least 1)."""
    case = case_of(name)
    runs = range(data)
    expected = copy.deepcopy(case.module)
    outputs, losses = [], []
    for number in runs:
        torch.manual_seed(7 + number)
        outputs.append(case.run(expected, number))
        losses.append(loss_of(outputs[-1]))
    sum(losses).backward()  # type: ignore[union-attr]
    entries = [None if t.grad is None else t.grad.clone() for t in case.reads]
    for tensor in case.reads:
        tensor.grad = None
    cuts = shard_tensors(case.module, mesh["tensor"])
    if data > 1:
        fully_shard(case.module, mesh=mesh["data"])
    torch.manual_seed(7 + data_rank)
    found = case.run(case.module, data_rank)
    loss = loss_of(found)
    loss.backward()
    result = {"loss": difference(loss, losses[data_rank])}
    result |= {f"output {i}": difference(*pair) for i, pair in enumerate(zip(found, outputs[data_rank], strict=True))}
    if data == 1:
        pairs = zip(case.reads, entries, strict=True)
        result |= {f"entry {i}": difference(tensor.grad, entry) for i, (tensor, entry) in enumerate(pairs)}
    return result | _of_parameters(case.module, expected, cuts, data)


def _of_parameters(module: nn.Module, expected: nn.Module, cuts: dict[str, CutDim], data: int) -> dict[str, float]:
    result = {}
    others = dict(expected.named_parameters())
    assert [name for name, _ in module.named_parameters()] == list(others)
    for name, parameter in module.named_parameters():
        gradient, other = parameter.grad, others[name]
        result[f"{'cut' if name in cuts else 'whole'} {name}"] = difference(complete(parameter, cuts.get(name)), other)
        if (gradient is None) != (other.grad is None):
            raise AssertionError(f"{name} has a gradient on one side alone")
        if gradient is not None:
            result[f"gradient {name}"] = difference(complete(gradient, cuts.get(name)) * data, other.grad)
    return result


def stored(folder: Path, rank: int, data: int, mesh: Any) -> dict[str, float]:
    """The differences of a checkpoint from the tensors in their own order, and of what is restored from it."""
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 20, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "activation": "swiglu", "repeat": 2}
    torch.manual_seed(0)
    network = Network(NetworkSpec({"text": text}, [layer], init_range=0.3))
    cuts = shard_tensors(network, mesh["tensor"])
    if data > 1:
        fully_shard(network, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, foreach=False)
    network(adapters.batch())["text"].square().mean().backward()
    optimizer.step()
    expected = {}
    for name, p in network.named_parameters():
        expected[name] = complete(p.detach(), cuts.get(name)).clone()
        expected[f"{name}/exp_avg"] = complete(optimizer.state[p]["exp_avg"], cuts.get(name)).clone()
    draft = folder / "step-1"
    draft.mkdir(exist_ok=True)
    content = content_of(network, {"step": 1}, {}, optimizer, rank=rank)
    sums: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(sums, content.write(draft))
    if rank == 0:
        write_state(draft, content.state, {name: found for of_rank in sums for name, found in of_rank.items()})
    dist.barrier()
    files = StoredTensors(sorted(draft.glob("*/rank-*.safetensors")))
    result = {f"stored {name}": difference(files[name], tensor) for name, tensor in expected.items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
            optimizer.state[parameter]["exp_avg"].zero_()
    restore(draft, network, optimizer)
    for name, p in network.named_parameters():
        result[f"restored {name}"] = difference(complete(p.detach(), cuts.get(name)), expected[name])
        moment = complete(optimizer.state[p]["exp_avg"], cuts.get(name))
        result[f"restored {name}/exp_avg"] = difference(moment, expected[f"{name}/exp_avg"])
    return result


def complete(values: Tensor, cut: CutDim | None) -> Tensor:
    if cut is not None:
        return whole(values, cut)
    return values.full_tensor() if isinstance(values, DTensor) else values


def difference(found: Tensor | None, expected: Tensor | None) -> float:
    if found is None or expected is None:
        assert found is expected
        return 0.0
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if not found.numel():
        return 0.0
    return float((found - expected).detach().abs().max() / expected.detach().abs().max().clamp_min(1))


def run_rank(folder: Path, rank: int, data: int, tensor: int, few: bool) -> None:
    """Run every case as one rank of data x tensor, and write the differences to `<rank>.json` of the folder."""
    torch.set_num_threads(1)
    store, ranks = folder / "store", data * tensor
    limit = timedelta(seconds=30)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=limit)
    mesh = init_device_mesh("cpu", (data, tensor), mesh_dim_names=("data", "tensor"))
    found: dict[str, Any] = {}
    for name in names(data, few):
        try:
            found[name] = (
                stored(folder, rank, data, mesh)
                if name == "stored"
                else differences(name, data, mesh["data"].get_local_rank(), mesh)
            )
        except Exception:
            found[name] = traceback.format_exc()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
