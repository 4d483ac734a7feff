"""Every kernel against the plain loop and against the dense reference, outputs and gradients."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.models.attention.call import Request, attend, choose, use_kernel
from workbench.models.context import Context
from workbench.models.layout import Layout
from workbench.sequences.batch import Batch

_spec = importlib.util.spec_from_file_location("models_oracle", Path(__file__).with_name("conftest.py"))
assert _spec is not None
assert _spec.loader is not None
oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracle)

PAIRS = [
    (("text",), ("text",)),
    (("text",), ("image",)),
    (("image",), ("text",)),
    (("text", "image"), ("text", "image")),
]
KERNELS = ["dense", "padded", "flex"]


def rows(context: Context, streams: tuple[str, ...], heads: int = 2, size: int = 16, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(context.layout(*streams).rows, heads, size, generator=g).requires_grad_()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["plain_batch", "mixed_batch", "odd_batch"])
def test_kernel_equals_plain_loop(kernel: str, pair: tuple, name: str, request: pytest.FixtureRequest) -> None:
    batch: Batch = request.getfixturevalue(name)
    context = Context(batch)
    q, k, v = (rows(context, streams, seed=i) for i, streams in enumerate((pair[0], pair[1], pair[1])))
    q, k, v = q.detach(), k.detach(), v.detach()  # flex has no gradient on a CPU
    with use_kernel(kernel):
        out, _ = attend(q, k, v, context.layout(*pair[0]), context.layout(*pair[1]))
    streams = [[batch.streams[n] for n in side] for side in pair]
    expected = oracle.loop_attention(q, k, v, *streams)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["padded"])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["plain_batch", "mixed_batch", "odd_batch"])
def test_gradients_equal_the_reference(kernel: str, pair: tuple, name: str, request: pytest.FixtureRequest) -> None:
    gradients = []
    for used in ("dense", kernel):
        context = Context(request.getfixturevalue(name))
        inputs = [rows(context, streams, seed=i) for i, streams in enumerate((pair[0], pair[1], pair[1]))]
        with use_kernel(used):
            out, _ = attend(*inputs, context.layout(*pair[0]), context.layout(*pair[1]))
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        gradients.append([t.grad for t in inputs])
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["dense", "padded", "flex"])
def test_window_and_scale(kernel: str, odd_batch: Batch) -> None:
    context = Context(odd_batch)
    q, k, v = (rows(context, ("text",), seed=i).detach() for i in range(3))
    layout = context.layout("text")
    with use_kernel(kernel):
        out, _ = attend(q, k, v, layout, layout, window=2, scale=0.7)
    with use_kernel("dense"):
        expected, weights = attend(q * 0.7 * 4, k, v, layout, layout, window=2, need_weights=True)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    assert weights is not None
    for of_one in weights:
        place = torch.arange(of_one.shape[1])
        assert not of_one[:, (place[:, None] - place).abs() > 2].any()


@pytest.mark.parametrize("kernel", ["padded", "flex"])
def test_a_layout_made_per_call_gets_no_masks_of_an_earlier_one(kernel: str, plain_batch: Batch) -> None:
    """Memory of a layout that is gone is used again at once, so that the address identifies nothing."""
    queries = Context(plain_batch).layout("text")
    q, k, v = (torch.randn(18, 2, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    ranks = [torch.randint(0, 2, (18,), generator=torch.Generator().manual_seed(seed)) for seed in range(20)]

    def outs(used: str) -> list[torch.Tensor]:
        with use_kernel(used):
            return [attend(q, k, v, queries, Layout(queries.lengths, queries.offsets, {"rank": r}))[0] for r in ranks]

    for found, expected in zip(outs(kernel), outs("dense"), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.long  # a kernel is compiled
@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_keeps_the_mean(kernel: str, plain_batch: Batch) -> None:
    """Over many draws the mean of the dropped-out result is the result without dropout, and single draws differ."""
    context = Context(plain_batch)
    q, k, v = (rows(context, ("text",), seed=i).detach() for i in range(3))
    layout = context.layout("text")
    torch.manual_seed(0)
    with use_kernel(kernel):
        exact, _ = attend(q, k, v, layout, layout)
        draws = torch.stack([attend(q, k, v, layout, layout, dropout=0.3)[0] for _ in range(400)])
    assert not torch.equal(draws[0], draws[1])
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / 20 + 1e-6)
    assert float(error.mean()) < 1.2
    assert float(error.max()) < 6


def test_choice_on_cpu_is_padded(plain_batch: Batch) -> None:
    context = Context(plain_batch)
    q = rows(context, ("text",))
    layout = context.layout("text")
    assert choose(Request(q, q, q, layout, layout)).name == "padded"
    assert choose(Request(q, q, q, layout, layout, need_weights=True)).name == "padded"


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["plain_batch", "mixed_batch", "odd_batch"])
@torch.no_grad()
def test_weights_are_those_of_each_sequence(pair: tuple, name: str, request: pytest.FixtureRequest) -> None:
    """Of the kernels that have them, dense takes them from one grid over all rows, padded makes them one by one."""
    context = Context(request.getfixturevalue(name))
    q, k, v = (rows(context, streams, seed=i) for i, streams in enumerate((pair[0], pair[1], pair[1])))
    layouts = [context.layout(*side) for side in pair]
    found = []
    for kernel in ("dense", "padded"):
        with use_kernel(kernel):
            out, weights = attend(q, k, v, *layouts, window=3, need_weights=True)
            plain, none = attend(q, k, v, *layouts, window=3)
        torch.testing.assert_close(out, plain, atol=1e-6, rtol=1e-5)
        assert none is None
        found.append(weights)
    expected, seen = found
    sizes = zip(*(layout.lengths for layout in layouts), strict=True)
    assert [one.shape for one in seen] == [(2, *size) for size in sizes]
    for one, same in zip(expected, seen, strict=True):
        torch.testing.assert_close(one, same, atol=1e-6, rtol=1e-5)
    values = layouts[1].contiguous(v).split(layouts[1].lengths)
    made = torch.cat([torch.einsum("hqk,khd->qhd", *both) for both in zip(seen, values, strict=True)])
    torch.testing.assert_close(layouts[0].restored(made), plain, atol=1e-5, rtol=1e-5)


def test_unknown_kernel_names_the_valid_ones() -> None:
    with pytest.raises(WorkbenchError, match="padded"), use_kernel("pading"):
        pass


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kernel", ["varlen", "flex", "padded"])
def test_cuda_kernels_equal_the_reference(kernel: str) -> None:
    g = torch.Generator().manual_seed(0)
    batch = Batch({"text": oracle.stream([50, 17, 128, 3])}).to("cuda")
    layout = Context(batch).layout("text")
    q, k, v = (torch.randn(198, 4, 64, generator=g).cuda().bfloat16().requires_grad_() for _ in range(3))
    results = []
    for used in ("dense", kernel):
        with use_kernel(used):
            out, _ = attend(q, k, v, layout, layout)
        results.append([out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found.float(), expected.float(), atol=3e-2, rtol=3e-2)


def test_the_private_flash_operator_takes_what_it_is_given() -> None:
    """`aten._flash_attention_forward` is torch's own affair: another schema fails here, not in a user's first step."""
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    given = ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k"]
    given += ["dropout_p", "is_causal", "return_debug_mask"]
    assert names[: len(given)] == given
    assert {"scale", "window_size_left", "window_size_right"} <= set(names)
    assert all(argument.has_default_value() for argument in schema.arguments[len(given) :])
    assert schema.returns[0].name == "output"
