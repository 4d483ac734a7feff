"""Experts: equal to Hugging Face's blocks of Mixtral and Qwen3-MoE, whatever the loads; the loss of uneven loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.mixtral.configuration_mixtral import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from workbench.core.errors import WorkbenchError
from workbench.models import feed_forward
from workbench.models.context import ROUTES, Context
from workbench.models.feed_forward import ExpertOptions, Experts
from workbench.models.initialisation import initialise, scale_residuals
from workbench.models.network import Network
from workbench.objectives.balance import Balance
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sequence, text_fields

SIZE, INNER = 16, 24


def experts(**options: Any) -> Experts:
    torch.manual_seed(0)
    made = Experts(SIZE, INNER, "swiglu", ExpertOptions(**options))
    initialise(made, 0.3)
    return made


def theirs(name: str, ours: Experts, count: int, top: int) -> nn.Module:
    sizes: dict[str, Any] = {"hidden_size": SIZE, "intermediate_size": INNER, "num_experts_per_tok": top}
    if name == "mixtral":
        block: Any = MixtralSparseMoeBlock(MixtralConfig(num_local_experts=count, **sizes))
    else:
        more = {"moe_intermediate_size": INNER, "norm_topk_prob": name == "qwen3 normalised"}
        block = Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(num_experts=count, **sizes, **more))
    with torch.no_grad():
        block.gate.weight.copy_(ours.router.weight)
        block.experts.gate_up_proj.copy_(ours.inner)
        block.experts.down_proj.copy_(ours.outer)
    return block.eval()


@pytest.mark.parametrize(("count", "top"), [(4, 2), (8, 3), (2, 2), (5, 1)])
@pytest.mark.parametrize("name", ["mixtral", "qwen3", "qwen3 normalised"])
def test_output_and_gradients_are_those_of_hugging_face(name: str, count: int, top: int) -> None:
    ours = experts(count=count, top=top, normalised=name != "qwen3")
    block = theirs(name, ours, count, top)
    x = torch.randn(11, SIZE, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    found, wanted = ours(x, Context(Batch({}))), block(y[None])[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    direction = torch.randn_like(found)
    (found * direction).sum().backward()
    (wanted * direction).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=1e-5)
    for own, other in ((ours.inner, "experts.gate_up_proj"), (ours.outer, "experts.down_proj")):
        torch.testing.assert_close(own.grad, block.get_parameter(other).grad, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.router.weight.grad, block.get_parameter("gate.weight").grad, rtol=0, atol=1e-5)


def test_no_row_is_dropped_where_one_expert_gets_all() -> None:
    ours, context = experts(count=4, top=1), Context(Batch({}))
    with torch.no_grad():
        ours.router.weight.zero_()
        ours.router.weight[2] = 1.0
    x = torch.rand(9, SIZE) + 1.0
    gate, value = (x @ ours.inner[2].T).chunk(2, -1)
    torch.testing.assert_close(ours(x, context), (nn.functional.silu(gate) * value) @ ours.outer[2].T)
    assert context.taps[ROUTES]["0.0"][0].tolist() == [0, 0, 9, 0]
    assert ours(x[:0], Context(Batch({}))).shape == (0, SIZE)


def test_where_torch_multiplies_no_groups_every_expert_reads_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, x = experts(count=4, top=2), torch.randn(9, SIZE)
    wanted = ours(x, Context(Batch({})))
    monkeypatch.setattr(feed_forward, "GROUPED_ON", ())
    torch.testing.assert_close(ours(x, Context(Batch({}))), wanted)


@pytest.mark.parametrize(("size", "inner", "grouped"), [(16, 24, True), (16, 20, False), (12, 24, False)])
def test_groups_of_bfloat16_need_multiples_of_8(
    size: int, inner: int, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, called = Experts(size, inner, "gelu", ExpertOptions(4)).bfloat16(), []
    monkeypatch.setattr(feed_forward, "GROUPED_ON", ())
    monkeypatch.setattr(nn.functional, "grouped_mm", lambda x, w, offs: called.append(w) or x @ w[0])
    made(torch.randn(9, size).bfloat16(), Context(Batch({})))
    assert bool(called) is grouped


def test_a_shared_expert_reads_every_row() -> None:
    ours = experts(count=4, top=2, shared=8)
    assert ours.shared is not None
    x = torch.randn(5, SIZE)
    both = ours(x, Context(Batch({})))
    shared, ours.shared = ours.shared, None
    torch.testing.assert_close(both, ours(x, Context(Batch({}))) + shared(x))


def network(layers: int = 1, **experts: Any) -> Network:
    torch.manual_seed(1)
    text = {"embedding": "token", "hidden_size": SIZE, "vocab_size": 20, "dropout": 0.0}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "intermediate_size": INNER, **quiet}
    return Network(NetworkSpec({"text": text}, [{**layer, "experts": experts, "repeat": layers}], init_range=0.3))


def balanced(made: Network, lengths: list[int]) -> tuple[Any, Context]:
    """The output of the objective, and the context of the network's own forward."""
    objective = Balance()
    objective.name = "balance"
    sequences = [Sequence({"text": text_fields(np.arange(n) + 3)}, (i,)) for i, n in enumerate(lengths)]
    objective.corrupt(sequences, None)  # type: ignore[arg-type]
    batch = collate(sequences)
    place = ViewKey("main", "clean")
    inputs = HeadInputs(ForwardPass({"main": made}, {"clean": batch}), place, batch.targets["balance"], "balance")
    context = Context(batch)
    made(batch, context)
    return objective.head(made)(inputs), context


def test_the_loss_is_that_of_hugging_face() -> None:
    made = network(count=4, top=2)
    logits: list[torch.Tensor] = []
    router = next(module for module in made.modules() if isinstance(module, Experts)).router
    router.register_forward_hook(lambda module, given, found: logits.append(found))
    output, _ = balanced(made, [7, 3])
    wanted = load_balancing_loss_func((logits[0],), 4, 2)
    torch.testing.assert_close(output.loss, 2 * wanted)
    assert output.metrics["balance"][1] == 2


def test_uneven_loads_cost_more_and_every_layer_counts() -> None:
    made = network(2, count=4, top=1)
    for module in made.modules():
        if isinstance(module, Experts):
            nn.init.zeros_(module.router.weight)
    even, context = balanced(made, [5])
    assert len(context.taps[ROUTES]) == 2
    torch.testing.assert_close(even.loss, torch.tensor(1.0))  # probabilities are even, whoever is chosen
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, Experts):
                module.router.weight[1] = 0.0
                module.router.bias = nn.Parameter(torch.tensor([0.0, 50.0, 0.0, 0.0]))
    uneven, _ = balanced(made, [5])
    torch.testing.assert_close(uneven.loss, torch.tensor(4.0))
    shares = {name: float(value / size) for name, (value, size) in uneven.metrics.items()}
    assert shares == {"balance": 4.0, "most": 1.0, "least": 0.0}


def test_without_a_layer_that_ran_the_loss_is_0() -> None:
    """As with `layer_drop`; the gradient is 0 too, so that all ranks have one."""
    made = network(count=4, top=2)
    for layer in made.layers:
        layer.forward = lambda hidden, context: hidden  # type: ignore[method-assign]
    output, _ = balanced(made, [5, 2])
    output.loss.backward()
    assert made.embeddings["text"].token.weight.grad is not None
    assert {name: (float(value), size) for name, (value, size) in output.metrics.items()} == dict.fromkeys(
        ("balance", "most", "least"), (0.0, 0)
    )


def test_a_recomputation_keeps_no_further_loads() -> None:
    made = network(2, count=4, top=2).train()
    made.checkpointing = True
    batch = collate([Sequence({"text": text_fields(np.arange(6) + 3)}, (0,))])
    context = Context(batch)
    made(batch, context)["text"].square().sum().backward()
    assert sorted(context.taps[ROUTES]) == ["0.0", "1.0"]


def test_the_outputs_of_experts_start_small_with_the_depth() -> None:
    """Those of the shared expert too, which are in the same branch."""
    made = network(2, count=4, top=2, shared=8)
    experts = [module for module in made.modules() if isinstance(module, Experts)]
    weights = [weight for each in experts for weight in (each.outer, each.shared.outer.weight)]  # type: ignore[union-attr]
    before = [weight.clone() for weight in weights]
    scale_residuals(made.layers)
    for one, other in zip(before, weights, strict=True):
        torch.testing.assert_close(other, one / 2)  # four branches


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="top = 3 of count = 2 experts; allowed: at most all"):
        ExpertOptions(2, 3)
    objective = Balance()
    objective.name = "balance"
    text = {"embedding": "token", "hidden_size": SIZE, "vocab_size": 20}
    plain = Network(NetworkSpec({"text": text}, [{"layer": "self", "stream": "text", "num_heads": 2}]))
    with pytest.raises(WorkbenchError, match=r"'balance' needs a layer with experts; add experts: \{count"):
        objective.head(plain)
