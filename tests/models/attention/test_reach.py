"""What the host says of who sees whom is exactly the predicate, whatever happened to the stream before."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.attention.strange_streams import lengths, predicate, request, strange, stream_of
from workbench.generation.decoder import grown
from workbench.models.attention import varlen
from workbench.models.attention.call import attend, use_kernel
from workbench.models.attention.reach import Reach, reach
from workbench.models.context import Context
from workbench.models.layout import Layout, layout_of
from workbench.sequences.batch import Batch, MicroBatch, Stream, collate
from workbench.sequences.pattern import VISIBILITY, pattern_of
from workbench.sequences.sequence import Sequence

TRIALS = 1500


def said(found: Reach, rows_q: int, rows_k: int) -> Tensor:
    """The mask of stretches [rows_q, rows_k]."""
    mask = torch.zeros(rows_q, rows_k, dtype=torch.bool)
    at_q = at_k = 0
    for q, k in zip(found.queries, found.keys, strict=True):
        near = torch.ones(q, k, dtype=torch.bool)
        if found.causal:
            near = near.tril()
        if found.window is not None:
            near &= (torch.arange(q)[:, None] - torch.arange(k)).abs() <= found.window
        mask[at_q : at_q + q, at_k : at_k + k] = near
        at_q, at_k = at_q + q, at_k + k
    assert (at_q, at_k) == (rows_q, rows_k)
    return mask


def layouts(rng: np.random.Generator) -> tuple[str, Layout, Layout]:
    """Two layouts of random streams: a stream or several to itself, or to others."""
    count, least = (int(n) for n in rng.integers((1, 0), (4, 2)))
    streams = []
    for _ in range(2):
        sizes = lengths(rng, count, least)
        streams.append(stream_of(sizes, strange(rng, sizes) if rng.random() < 0.6 else {}))
    kind = str(rng.choice(["self", "cross", "joint", "joint to one"]))
    if kind == "self":
        layout = layout_of(streams[:1])
        return kind, layout, layout
    if kind == "cross":
        return kind, layout_of(streams[:1]), layout_of(streams[1:])
    both = layout_of(streams)
    return kind, both, both if kind == "joint" else layout_of(streams[1:])


def test_what_is_said_is_the_predicate() -> None:
    """Of random integers; and it is said often enough of each kind for that to mean something."""
    rng, counts = np.random.default_rng(0), Counter[str]()
    for _ in range(TRIALS):
        kind, queries, keys = layouts(rng)
        window = int(rng.integers(0, 5)) if rng.random() < 0.4 else None
        found = reach(request(queries, keys, window))
        counts[kind] += 1
        if isinstance(found, Reach):
            torch.testing.assert_close(said(found, queries.rows, keys.rows), predicate(queries, keys, window))
            many = max(found.queries, default=0) > 1
            counts[f"{kind}, said"] += many
            counts["causal"] += many and found.causal
            counts["apart"] += kind == "joint" and many and queries.pattern is not None and queries.pattern.doc is None
            counts["packed"] += many and len(found.queries) > len(queries.lengths)
            counts["window"] += many and found.window is not None
    kinds = ("self, said", "cross, said", "joint, said", "causal", "packed", "window")
    assert min(counts[name] for name in kinds) >= 20, counts
    assert counts["apart"] >= 5, counts


@pytest.mark.parametrize("name", [*VISIBILITY, "another"])
def test_an_integer_that_is_not_understood_leaves_nothing_known(name: str) -> None:
    understood = name in VISIBILITY
    assert (pattern_of([3], {name: np.array([0, 1, 1])}) is not None) == understood
    assert pattern_of([3], {name: np.zeros(3, np.int64)}) is not None


def change(rng: np.random.Generator, stream: Stream) -> Stream:
    """Something that happens to streams on their way: most of it changes who sees whom."""
    names = sorted(stream.integers)
    kind = int(rng.integers(0, 10))
    if kind == 0:
        return stream.map(lambda t: t.clone(), keeps=True)
    if kind == 1:
        return replace(stream, fields={name: values.flip(0) for name, values in stream.fields.items()})
    if kind == 2:
        return pickle.loads(pickle.dumps(stream))
    if kind == 3:
        return copy.deepcopy(stream)
    if kind == 4:
        return stream.pick([int(i) for i in rng.integers(0, len(stream.lengths), len(stream.lengths))])
    if kind == 5 and names:  # other values in place of a field
        return (
            Batch({"s": stream})
            .replace("s", **{names[0]: torch.from_numpy(rng.integers(0, 3, stream.rows))})
            .streams["s"]
        )
    if kind == 6 and names and stream.rows:  # written to
        stream.fields[names[-1]][int(rng.integers(stream.rows))] += 1
        return stream
    if kind == 7 and names:
        fields = {name: values for name, values in stream.fields.items() if name != names[0]}
        return replace(stream, fields=fields)
    if kind == 8:
        return replace(stream, fields={**stream.fields, "rank": torch.from_numpy(rng.integers(0, 3, stream.rows))})
    sizes = stream.lengths[1:] + stream.lengths[:1]  # the same rows in other sequences
    return replace(stream, lengths=sizes, offsets=torch.tensor([0, *sizes]).cumsum(0))


def test_what_is_said_of_a_stream_that_was_changed_still_is_the_predicate() -> None:
    rng, known = np.random.default_rng(1), 0
    for _ in range(TRIALS):
        sizes = lengths(rng, int(rng.integers(1, 4)))
        stream = stream_of(sizes, strange(rng, sizes))
        for _ in range(int(rng.integers(1, 4))):
            stream = change(rng, stream)
        layout = layout_of([stream])
        found = reach(request(layout, layout, None))
        if isinstance(found, Reach):
            known += bool(stream.integers) and layout.rows > 1
            torch.testing.assert_close(said(found, layout.rows, layout.rows), predicate(layout, layout, None))
    assert known > TRIALS / 20


def text(n: int, **fields: np.ndarray) -> Sequence:
    return Sequence({"text": {"input_ids": np.arange(n), **fields}}, draw=0, key=str(n))


def test_what_a_worker_knows_reaches_the_layers() -> None:
    """Through collate, the pipe to the main process, pinned memory's way, the device's way, and a pick."""
    batch = collate([text(4, rank=np.arange(4)), text(3, rank=np.arange(3))])
    loader = torch.utils.data.DataLoader([MicroBatch("t", {"main": batch}, {})], batch_size=None, num_workers=1)
    (micro,) = loader
    moved = micro.to("cpu").views["main"]
    copied = moved.map(lambda t: t.clone(), keeps=True)
    for found in (batch, micro.views["main"], moved, copied):
        layout = Context(found).layout("text")
        assert reach(request(layout, layout, 2)) == Reach([4, 3], [4, 3], True, 2)
    layout = Context(copied.pick({"text": [1, 0, 1]})).layout("text")
    assert reach(request(layout, layout, None)) == Reach([3, 4, 3], [3, 4, 3], True, None)


def test_a_row_that_is_added_on_the_device_leaves_nothing_known() -> None:
    batch = collate([text(4, rank=np.arange(4))])
    longer = grown(
        batch, "text", {"input_ids": torch.zeros(1, dtype=torch.long), "rank": torch.zeros(1, dtype=torch.long)}
    )
    layout = Context(longer).layout("text")
    assert "changed on the device" in str(reach(request(layout, layout, None)))


def flash(q: Tensor, k: Tensor, v: Tensor, at: varlen.Offsets, dropout: float, scale: float) -> Tensor:
    """Attention worked out from nothing but the arguments of the flash kernel, as its documentation has them."""
    assert at.queries.dtype == at.keys.dtype == torch.int32
    outs = []
    cuts_q, cuts_k, (left, right) = at.queries.tolist(), at.keys.tolist(), at.window
    assert at.longest == (int(at.queries.diff().max()), int(at.keys.diff().max()))
    for i in range(len(cuts_q) - 1):
        own, read = slice(cuts_q[i], cuts_q[i + 1]), slice(cuts_k[i], cuts_k[i + 1])
        scores = torch.einsum("qhd,khd->hqk", q[own], k[read]) * scale
        shift = scores.shape[2] - scores.shape[1]  # both ends are aligned
        far = torch.arange(scores.shape[2])[None] - torch.arange(scores.shape[1])[:, None] - shift
        hidden = torch.zeros_like(far, dtype=torch.bool)
        if at.causal or right >= 0:
            hidden |= far > (0 if at.causal else right)
        if left >= 0:
            hidden |= -far > left
        outs.append(torch.einsum("hqk,khd->qhd", torch.softmax(scores.masked_fill(hidden, -torch.inf), -1), v[read]))
    return torch.cat(outs)


def test_the_arguments_of_the_flash_kernel_give_the_dense_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients of all that it is asked for, which is some of each kind."""
    monkeypatch.setattr(varlen, "_flash", flash)
    rng, counts = np.random.default_rng(2), Counter[str]()
    for seed in range(600):
        kind, queries, keys = layouts(rng)
        window = int(rng.integers(0, 5)) if rng.random() < 0.4 else None
        asked = request(queries, keys, window, seed=seed)
        if not (queries.rows and keys.rows) or varlen.varlen_lacks(asked) is not None:
            continue
        counts[kind] += 1
        results = []
        for kernel in ("dense", "varlen"):
            with use_kernel(kernel):
                out, _ = attend(asked.q, asked.k, asked.v, queries, keys, window=window, scale=0.3)
            weighed = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
            results.append([out, *torch.autograd.grad(weighed, (asked.q, asked.k, asked.v))])
        torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-5)
    assert min(counts[kind] for kind in ("self", "cross", "joint", "joint to one")) >= 4, counts
