"""The banded kernel, and rows that are everywhere, against the dense reference: outputs, gradients, dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.core.errors import WorkbenchError
from workbench.models.attention import banded as module
from workbench.models.attention.call import attend, choose, use_kernel
from workbench.models.attention.request import Request
from workbench.models.attention.varlen import varlen_lacks
from workbench.models.context import Context
from workbench.models.layout import layout_of
from workbench.models.score_biases.alibi import AlibiBias
from workbench.models.score_biases.buckets import BucketsBias
from workbench.models.score_biases.relative import RelativeBias
from workbench.sequences.batch import Batch, Stream
from workbench.sequences.pattern import VISIBILITY, pattern_of

HEADS, SIZE = 2, 16
LENGTHS = {
    "one": [90],
    "several": [40, 1, 0, 75, 16, 3],
    "short": [3, 1, 2],
    "chunks": [32, 64],
    "empty": [0, 0],
}


def batch_of(lengths: list[int], integers: bool = False, everywhere: float = 0.0, seed: int = 0) -> Batch:
    """Text and image rows of these lengths, with every visibility integer if asked for."""
    g = torch.Generator().manual_seed(seed)
    streams = {}
    for name, counts in (("text", lengths), ("image", [length // 2 for length in lengths])):
        rows = sum(counts)
        fields = {"input_ids": torch.zeros(rows, dtype=torch.long)}
        fields["token_type_ids"] = torch.randint(0, 2, (rows,), generator=g)
        if integers and name == "text":
            fields |= {other: torch.randint(0, 3, (rows,), generator=g) for other in VISIBILITY[:-1]}
            fields["doc"] //= 2
        if everywhere:
            fields["everywhere"] = (torch.rand(rows, generator=g) < everywhere).long()
        streams[name] = Stream(fields, torch.tensor([0, *counts]).cumsum(0), counts)
    return Batch(streams)


def run(kernel: str, batch: Batch, streams: tuple[str, ...], **options: Any) -> list[Tensor]:
    """The result, and the gradients of queries, keys, values and of a score bias's parameters."""
    layout = Context(batch).layout(*streams)
    g = torch.Generator().manual_seed(1)
    inputs = [torch.randn(layout.rows, HEADS, SIZE, generator=g, requires_grad=True) for _ in range(3)]
    score_bias = options.get("score_bias")
    parameters = [] if score_bias is None else list(score_bias.parameters())
    with use_kernel(kernel):
        out, _ = attend(*inputs, layout, layout, **options)
    loss = (out * torch.randn(out.shape, generator=g)).sum()
    if not layout.rows:
        return [out]
    return [out, *torch.autograd.grad(loss, [*inputs, *parameters], allow_unused=True)]


def check(batch: Batch, streams: tuple[str, ...], kernel: str = "banded", **options: Any) -> None:
    for found, expected in zip(
        run(kernel, batch, streams, **options), run("dense", batch, streams, **options), strict=True
    ):
        assert (found is None) == (expected is None)
        if found is not None:
            assert torch.isfinite(found).all()
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [0, 1, 7, 16, 40, 200])
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("name", LENGTHS)
def test_band_equals_the_reference(name: str, integers: bool, window: int) -> None:
    check(batch_of(LENGTHS[name], integers), ("text",), window=window)


@pytest.mark.parametrize("kernel", ["banded", "padded"])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
@pytest.mark.parametrize("name", LENGTHS)
def test_rows_that_are_everywhere_equal_the_reference(
    name: str, streams: tuple[str, ...], share: float, kernel: str
) -> None:
    for integers in (False, True):
        batch = batch_of(LENGTHS[name], integers, share)
        for window in (0, 5, 30):
            check(batch, streams, kernel, window=window)


@pytest.mark.parametrize("share", [0.0, 0.1])
@torch.no_grad()
def test_flex_has_the_same_rows_everywhere(share: float) -> None:
    batch = batch_of([40, 1, 30], True, share)
    layout = Context(batch).layout("text", "image")
    q, k, v = (torch.randn(layout.rows, HEADS, SIZE) for _ in range(3))
    found = []
    for kernel in ("dense", "flex"):
        with use_kernel(kernel):
            found.append(attend(q, k, v, layout, layout, window=4)[0])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_a_row_that_is_everywhere_sees_all_and_is_seen_by_all() -> None:
    """By plain loops: the window is lifted, and nothing else."""
    marks = torch.zeros(20, dtype=torch.long)
    marks[3] = 1
    doc = torch.tensor([0] * 12 + [1] * 8)
    batch = Batch({"text": Stream({"everywhere": marks, "doc": doc}, torch.tensor([0, 20]), [20])})
    layout = Context(batch).layout("text")
    q, k, v = (torch.randn(20, HEADS, SIZE, generator=torch.Generator().manual_seed(i)) for i in range(3))
    _, weights = attend(q, k, v, layout, layout, window=2, need_weights=True)
    assert weights is not None
    for i in range(20):
        for j in range(20):
            near = abs(i - j) <= 2 or 3 in (i, j)
            assert bool((weights[0][:, i, j] > 0).all()) == (near and doc[i] == doc[j])


@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("make", [AlibiBias, BucketsBias, lambda heads: RelativeBias(heads, SIZE, segments=True)])
def test_relations(make: Any, share: float, streams: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    score_bias = make(HEADS)
    for parameter in score_bias.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    check(batch_of([60, 1, 33, 20], True, share), streams, window=6, score_bias=score_bias)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_dropout_keeps_the_mean(share: float) -> None:
    batch = batch_of([50, 20], True, share)
    layout = Context(batch).layout("text")
    q, k, v = (torch.randn(70, HEADS, SIZE, generator=torch.Generator().manual_seed(i)) for i in range(3))
    torch.manual_seed(0)
    with use_kernel("banded"), torch.no_grad():
        exact, _ = attend(q, k, v, layout, layout, window=6)
        draws = torch.stack([attend(q, k, v, layout, layout, window=6, dropout=0.3)[0] for _ in range(400)])
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / 20 + 1e-6)
    assert float(error.mean()) < 1.2
    assert float(error.max()) < 6


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_what_is_computed_again_drops_the_same(share: float) -> None:
    """The result is linear in the values: its gradient is that of the weights that were kept in the forward."""
    layout = Context(batch_of([50, 20], True, share)).layout("text")
    q, k = (torch.randn(70, HEADS, SIZE, generator=torch.Generator().manual_seed(i)) for i in range(2))
    v = torch.randn(70, HEADS, SIZE, requires_grad=True)
    with use_kernel("banded"):
        out, _ = attend(q, k, v, layout, layout, window=6, dropout=0.4)
    direction = torch.randn_like(out)
    (gradient,) = torch.autograd.grad((out * direction).sum(), v)
    torch.testing.assert_close((gradient * v).sum(), (out * direction).sum())


class Largest(TorchDispatchMode):
    """The most values that any tensor had which an operator gave."""

    values = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.values = max(self.values, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@pytest.mark.parametrize("options", [{}, {"dropout": 0.1}, {"score_bias": "alibi"}, {"score_bias": "relative"}])
def test_no_tensor_grows_with_the_square(options: dict[str, Any]) -> None:
    score_biases = {"alibi": AlibiBias(HEADS), "relative": RelativeBias(HEADS, SIZE)}
    options = {**options, "score_bias": score_biases.get(options.get("score_bias", ""))}
    found = []
    for rows in (1024, 4096):
        with Largest() as largest:
            run("banded", batch_of([rows, 200]), ("text",), window=16, **options)
        found.append(largest.values)
    assert found[1] <= 4.5 * found[0]
    assert found[1] < 4096**2 / 4


def chosen(batch: Batch, window: int | None, **options: Any) -> str:
    layout = Context(batch).layout("text")
    q = torch.zeros(layout.rows, HEADS, SIZE)
    return choose(Request(q, q, q, layout, layout, window=window, **options)).name


def test_it_is_chosen_where_a_window_is_short_against_the_sequences() -> None:
    long, short = batch_of([1024, 40]), batch_of([128, 100, 90])
    assert chosen(long, 64) == "banded"
    assert chosen(long, None) == "padded"
    assert chosen(long, 600) == "padded"
    assert chosen(short, 64) == "padded"
    assert chosen(long, 64, need_weights=True) == "padded"
    marked = batch_of([1024], everywhere=1.0)
    assert chosen(marked, 64) == "padded"
    few = batch_of([1024], everywhere=0.01)
    assert chosen(few, 64) == "banded"
    assert chosen(few, 64, score_bias=AlibiBias(HEADS)) == "banded"
    assert chosen(few, 64, score_bias=RelativeBias(HEADS, SIZE)) == "padded"


def test_what_it_cannot_do_is_reported() -> None:
    batch = batch_of([10])
    context = Context(batch)
    text, image = context.layout("text"), context.layout("image")
    q, k = torch.zeros(10, HEADS, SIZE), torch.zeros(5, HEADS, SIZE)
    with use_kernel("banded"):
        with pytest.raises(WorkbenchError, match="'banded' cannot do attention without a window"):
            attend(q, q, q, text, text)
        with pytest.raises(WorkbenchError, match=r"keys of other rows than the queries; allowed: .*padded, dense"):
            attend(q, k, k, text, image, window=3)
        with pytest.raises(WorkbenchError, match="weights to look at"):
            attend(q, q, q, text, text, window=3, need_weights=True)


def test_the_bands_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    bands = module._bands
    monkeypatch.setattr(module, "_bands", lambda layout, window: made.append(window) or bands(layout, window))
    layout = Context(batch_of([50])).layout("text")
    q = torch.randn(50, HEADS, SIZE)
    with use_kernel("banded"):
        for window in (4, 6, 4, 6):
            attend(q, q, q, layout, layout, window=window)
    assert made == [4, 6]


@pytest.mark.parametrize("marked", [[], [0], [0, 5, 63]])
@torch.no_grad()
def test_band_equals_longformer_of_hugging_face(marked: list[int]) -> None:
    """Its window, cut in overlapping chunks, and its global attention, with the projections of both the same."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    torch.manual_seed(0)
    width, rows, window = HEADS * SIZE, 64, 8
    config = LongformerConfig(
        hidden_size=width, num_attention_heads=HEADS, attention_window=[2 * window], num_hidden_layers=1
    )
    theirs = LongformerSelfAttention(config, 0).eval()
    for name in ("query", "key", "value"):
        getattr(theirs, f"{name}_global").load_state_dict(getattr(theirs, name).state_dict())
    states = torch.randn(1, rows, width)
    everywhere = torch.zeros(rows, dtype=torch.long)
    everywhere[marked] = 1
    expected = theirs(
        states,
        attention_mask=everywhere[None] * 10000.0,
        is_index_masked=torch.zeros(1, rows, dtype=torch.bool),
        is_index_global_attn=everywhere[None] > 0,
        is_global_attn=bool(marked),
    )[0][0]
    q, k, v = (getattr(theirs, name)(states[0]).view(rows, HEADS, SIZE) for name in ("query", "key", "value"))
    batch = Batch({"text": Stream({"everywhere": everywhere}, torch.tensor([0, rows]), [rows])})
    layout = Context(batch).layout("text")
    for kernel in ("banded", "padded", "dense"):
        with use_kernel(kernel):
            out, _ = attend(q, k, v, layout, layout, window=window)
        torch.testing.assert_close(out.flatten(1), expected, atol=1e-5, rtol=1e-5)


def test_what_knows_offsets_alone_refuses_rows_that_are_everywhere() -> None:
    stream = batch_of([1024], everywhere=0.01).streams["text"]
    integers = {name: values.numpy() for name, values in stream.integers.items()}
    layout = layout_of([stream.knowing(pattern_of(stream.lengths, integers))])
    q = torch.zeros(1024, HEADS, SIZE)
    assert varlen_lacks(Request(q, q, q, layout, layout, window=64)) is not None
    assert varlen_lacks(Request(q, q, q, layout, layout)) is None, "nothing is lifted where there is no window"
