"""Attention with fewer heads of keys and values than of queries (arXiv:2305.13245), and norms of queries and keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.interop.families.test_states import batch_of
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.attention.call import attend, use_kernel
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layers.self import SelfLayer
from workbench.models.score_biases.alibi import AlibiBias
from workbench.models.score_biases.relative import RelativeBias
from workbench.models.tensor_cut import CutDim
from workbench.parallel.tensor_parallel import check_tensors
from workbench.sequences.batch import Batch

LENGTHS = [7, 1, 12, 4]
ROWS = sum(LENGTHS)


def batch() -> Batch:
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(0, 9, mask.shape, generator=torch.Generator().manual_seed(0))
    found, _ = batch_of({"input_ids": ids, "attention_mask": mask.long()})
    found.streams["text"].fields["rank"] = torch.cat([torch.arange(n) for n in LENGTHS])
    return found


def heads_of(count: int, seed: int) -> Tensor:
    return torch.randn(ROWS, count, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kernel", ["dense", "padded", "flex", "banded"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("bias", [None, AlibiBias(6), RelativeBias(6, 16)])
def test_each_key_head_serves_its_queries(kernel: str, dropout: float, bias: Any) -> None:
    """The result and all gradients are those of keys and values that are written out once for each query."""
    if kernel == "flex" and (dropout or isinstance(bias, RelativeBias)):
        return  # another draw of dropout for each call, and no score_mod
    layout, window = Context(batch()).layout("text"), 3 if kernel == "banded" else None
    q, k, v = (heads_of(count, count).requires_grad_(kernel != "flex") for count in (6, 2, 2))
    v = v.flip(0)
    results = []
    for keys, values in ((k, v), (k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))):
        torch.manual_seed(4)
        with use_kernel(kernel):
            out, _ = attend(q, keys, values, layout, layout, dropout=dropout, score_bias=bias, window=window)
        learns = kernel != "flex"  # which has no backward on a CPU
        results.append([out, *(torch.autograd.grad(out.square().sum(), (q, k, v)) if learns else ())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def attention(**options: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    made = MultiHeadAttention(24, LayerOptions(6, **{"kv_heads": 2, "attention_dropout": 0.0, **options}))
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made.eval()


def test_the_layer_is_one_whose_key_heads_are_repeated() -> None:
    """With norms of queries and keys and rotary positions; the biases are those of queries, keys and values alone."""
    options: dict[str, Any] = {"qk_norm": True, "rotary": 100.0, "bias": False, "qkv_bias": True, "norm_eps": 1e-6}
    made, whole = attention(**options), attention(**options, kv_heads=6)
    assert made.output.bias is None
    assert made.qkv.weight.shape == (24 + 2 * 8, 24)
    state = made.state_dict()
    for name in ("qkv.weight", "qkv.bias"):
        q, *keys = state[name].split([24, 8, 8])
        spread = [part.unflatten(0, (2, 4)).repeat_interleave(3, 0).flatten(0, 1) for part in keys]
        state[name] = torch.cat([q, *spread])
    whole.load_state_dict(state)
    context, rows = Context(batch(), keep_projections=True), torch.randn(ROWS, 24)
    layout = context.layout("text")
    found, expected = (
        each(rows, None, layout, layout, context=context, names=(("text",), ("text",))) for each in (made, whole)
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(context.projections[0].scores(), context.projections[1].scores(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_kv_cache_holds_the_key_heads_once() -> None:
    layer = SelfLayer("text", {"text": 24}, 6, kv_heads=2, dropout=0.0, attention_dropout=0.0).eval()
    context = Context(batch(), cache=KVCache("keys"))
    layer({"text": torch.randn(ROWS, 24)}, context)
    (kept,) = context.updated_cache.kept.values()
    assert kept["text"].shape[1:] == (2, 2, 4)  # keys and values, heads, size


def test_a_layer_with_projections_of_its_own() -> None:
    """The hook `projected` is public: here values are the keys."""

    class SharedKeys(MultiHeadAttention):
        def projected(self, query_rows: Tensor, key_rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            q, k, _ = super().projected(query_rows, key_rows)
            return q, k, k

    made, context, rows = SharedKeys(24, LayerOptions(6, kv_heads=3)).eval(), Context(batch()), torch.randn(ROWS, 24)
    layout = context.layout("text")
    before = made(rows, None, layout, layout, context=context)
    with torch.no_grad():
        made.qkv.weight[-12:] = 7.0
    assert torch.equal(made(rows, None, layout, layout, context=context), before)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kv_heads": 4}, "kv_heads = 4 does not divide num_heads = 6"),
        ({"rotary_scaling": {"kind": "linear", "factor": 2.0}}, "rotary_scaling .* state rotary: BASE"),
        ({"rotary": 2e9}, "rotary = 2000000000.0.*at most 1e.09"),
        ({"rotary": 10.0, "rotary_scaling": {"kind": "long", "factor": 2.0}}, "kind = 'long'.*linear, dynamic, yarn"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        build("layer", {"layer": "self", "stream": "text", "num_heads": 6, **options}, sizes={"text": 24})


def test_ranks_that_do_not_divide_the_key_heads_are_refused() -> None:
    check_tensors(attention(), 2)
    with pytest.raises(WorkbenchError, match=r"does not divide kv_heads = 2 .*allowed for this model: 1, 2$"):
        check_tensors(attention(), 3)


def test_parts_of_unequal_blocks_make_the_whole() -> None:
    cut, whole = CutDim(0, (6, 2, 2)), torch.arange(20 * 3).view(20, 3)
    parts = [cut.part(whole, rank, 2) for rank in range(2)]
    assert parts[1][:, 0].tolist() == [18, 21, 24, 27, 30, 33, 42, 45, 54, 57][: len(parts[1])]
    assert torch.equal(cut.joined(torch.cat(parts), 2), whole)


def test_queries_and_keys_have_the_dtype_of_values_whatever_their_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms are in float32 under autocast, and a kernel reads one dtype."""
    made = MultiHeadAttention(16, LayerOptions(2, qk_norm=True, rotary=100.0))
    made.query_norm.register_forward_hook(lambda module, given, found: found.float())
    made.key_norm.register_forward_hook(lambda module, given, found: found.float())
    read: list[torch.dtype] = []

    def noted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **options: Any) -> Any:
        read.extend((q.dtype, k.dtype, v.dtype))
        return attend(q, k, v, *rest, **options)

    monkeypatch.setattr("workbench.models.blocks.attend", noted)
    context, rows = Context(batch()), torch.randn(ROWS, 16)
    layout = context.layout("text")
    with torch.autocast("cpu", torch.bfloat16):
        made(rows, None, layout, layout, context=context)
    assert read == [torch.bfloat16] * 3
