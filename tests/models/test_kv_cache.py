"""A KV cache: read in pieces equals read at once, on every kernel; the memory learns as Transformer-XL's does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.models.attention.call import use_kernel
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.layers.self import SelfLayer
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, Stream

LENGTHS = {"text": [7, 2, 5], "image": [3, 0, 4]}
PIECES = [[3, 1, 0], [0, 1, 4], [4, 0, 1]]  # of the text: rows of each sequence in each piece
QUIET = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "intermediate_size": 32}
STACKS: dict[str, list[dict[str, Any]]] = {
    "self": [{"layer": "self", "stream": "text", "repeat": 2}],
    "rotary, pre": [{"layer": "self", "stream": "text", "rotary": 10000.0, "norm_place": "pre", "repeat": 2}],
    "shared": [{"layer": "self", "stream": "text", "repeat": 3, "share": "all"}],
    "window": [{"layer": "self", "stream": "text", "window": 2, "repeat": 2}],
    "buckets": [{"layer": "self", "stream": "text", "score_bias": {"score_bias": "buckets", "num_buckets": 8}}],
    "relative": [{"layer": "self", "stream": "text", "score_bias": "relative", "repeat": 2}],
    "alibi": [{"layer": "self", "stream": "text", "score_bias": "alibi", "repeat": 2}],
    "joint": [{"layer": "joint", "streams": ["image", "text"], "score_bias": "alibi", "window": 4, "repeat": 2}],
    "joint, text first": [{"layer": "joint", "streams": ["text", "image"], "score_bias": "alibi", "repeat": 2}],
    "cross": [
        {"layer": "self", "stream": "image"},
        {"layer": "cross", "stream": "text", "to": "image", "norm_place": "pre", "score_bias": "buckets", "repeat": 2},
    ],
}


def network(name: str) -> Network:
    torch.manual_seed(0)
    text = {"embedding": "token", "vocab_size": 50, "hidden_size": 32, "max_positions": 20, "dropout": 0.0}
    layers = [{**QUIET, **layer} for layer in STACKS[name]]
    return Network(NetworkSpec({"text": text, "image": text}, layers, init_range=0.3)).eval()


def stream(lengths: list[int], fields: dict[str, Tensor]) -> Stream:
    return Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)


def whole() -> Batch:
    """Text that is read from left to right, the first after a prefix of three; the image is seen by all, and sees
    itself."""
    g = torch.Generator().manual_seed(1)
    streams = {}
    for name, lengths in LENGTHS.items():
        places = torch.cat([torch.arange(n) for n in lengths])
        fields = {
            "input_ids": torch.randint(0, 50, (sum(lengths),), generator=g),
            "token_type_ids": torch.zeros(sum(lengths), dtype=torch.long),
            "position_ids": places + (name == "text"),
        }
        if name == "text":
            prefix = torch.tensor([2] * 7 + [0] * 7)
            fields |= {"rank": (places - prefix).clamp_min(0) + 1, "until": torch.where(places == 3, 4, 0)}
        streams[name] = stream(lengths, fields)
    return Batch(streams)


def pieces(batch: Batch) -> list[tuple[Batch, Tensor]]:
    """The text in pieces, the image with the first; with the rows of the whole text that each has."""
    text, done, found = batch.streams["text"], [0, 0, 0], []
    begins = text.offsets.tolist()
    for number, lengths in enumerate(PIECES):
        parts = [torch.arange(begins[i] + done[i], begins[i] + done[i] + n) for i, n in enumerate(lengths)]
        done = [a + b for a, b in zip(done, lengths, strict=True)]
        rows = torch.cat(parts)
        streams = {"text": stream(lengths, {f: t[rows] for f, t in text.fields.items()})}
        found.append((Batch(streams | ({"image": batch.streams["image"]} if number == 0 else {})), rows))
    assert done == LENGTHS["text"]
    return found


def check_pieces(read: Network, batch: Batch, keeps: Any) -> KVCache:
    """Read a batch at once and in pieces, which shall be the same; the cache that stays."""
    cache, expected = KVCache(keeps), read(batch)["text"]
    for piece, rows in pieces(batch):
        context = Context(piece, cache=cache)
        torch.testing.assert_close(read(piece, context)["text"], expected[rows], atol=1e-5, rtol=1e-5)
        cache = context.updated_cache
    return cache


@pytest.mark.parametrize(("keeps", "kernel"), [("keys", "dense"), ("keys", "padded"), ("rows", "padded")])
@pytest.mark.parametrize("name", STACKS)
@torch.no_grad()
def test_read_in_pieces_equals_read_at_once(name: str, kernel: str, keeps: Any) -> None:
    batch = whole()
    with use_kernel(kernel):
        cache = check_pieces(network(name), batch, keeps)
    assert cache.streams["text"].lengths == LENGTHS["text"]
    for field in ("position_ids", "rank", "until"):
        assert torch.equal(cache.stream("text").fields[field], batch.streams["text"].fields[field])


@pytest.mark.parametrize("keeps", ["keys", "rows"])
@pytest.mark.parametrize("name", ["window", "joint"])
@torch.no_grad()
def test_rows_of_a_kv_cache_may_be_everywhere(name: str, keeps: Any) -> None:
    batch, read = whole(), network(name)
    marks = torch.zeros(sum(LENGTHS["text"]), dtype=torch.long)
    marks[batch.streams["text"].offsets[:-1]] = 1
    marked = batch.replace("text", everywhere=marks)
    cache = check_pieces(read, marked, keeps)
    assert torch.equal(cache.stream("text").fields["everywhere"], marks)
    assert not torch.allclose(read(marked)["text"], read(batch)["text"], atol=1e-3)


@torch.no_grad()
def test_the_kernel_of_other_machines_reads_a_kv_cache_too() -> None:
    read, batch, cache = network("buckets"), whole(), KVCache("keys")
    expected = read(batch)["text"]
    (first, _), (_, _), (last, rows) = pieces(batch)
    middle = pieces(batch)[1][0]
    for piece in (first, middle):
        context = Context(piece, cache=cache)
        read(piece, context)
        cache = context.updated_cache
    with use_kernel("flex"):
        found = read(last, Context(last, cache=cache))["text"]
    torch.testing.assert_close(found, expected[rows], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_without_positions_are_counted_on() -> None:
    """Features have no `position_ids`; those of a second segment follow the first's."""
    g = torch.Generator().manual_seed(0)
    layer = SelfLayer("image", {"image": 16}, 2, score_bias="alibi", dropout=0.0, attention_dropout=0.0).eval()
    states = torch.randn(8, 16, generator=g)
    places = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4])

    def batch(rows: Tensor, lengths: list[int]) -> Batch:
        return Batch({"image": stream(lengths, {"features": states[rows], "rank": places[rows]})})

    expected = layer({"image": states}, Context(batch(torch.arange(8), [3, 5])))["image"]
    cache = KVCache("keys")
    for rows, lengths in ((torch.tensor([0, 3, 4]), [1, 2]), (torch.tensor([1, 2, 5, 6, 7]), [2, 3])):
        context = Context(batch(rows, lengths), cache=cache)
        found = layer({"image": states[rows]}, context)["image"]
        torch.testing.assert_close(found, expected[rows], atol=1e-5, rtol=1e-5)
        cache = context.updated_cache


def segments() -> tuple[Batch, Batch, Tensor, Tensor]:
    """Causal text in two segments, and which rows of the whole each has."""
    batch = Batch({"text": whole().streams["text"]})
    batch.streams["text"].fields["rank"] = batch.streams["text"].fields["position_ids"]
    batch.streams["text"].fields["until"] = torch.zeros(14, dtype=torch.long)
    rows = torch.tensor([0, 1, 2, 3, 7, 9, 10]), torch.tensor([4, 5, 6, 8, 11, 12, 13])
    parts = [
        Batch({"text": stream(n, {f: t[r] for f, t in batch.streams["text"].fields.items()})})
        for r, n in zip(rows, ([4, 1, 2], [3, 1, 3]), strict=True)
    ]
    return parts[0], parts[1], *rows


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", ["self", "rotary, pre", "shared"])
def test_projections_learn_from_remembered_rows_and_nothing_flows_into_them(name: str, checkpointing: bool) -> None:
    """Against the definition: at each layer the first segment's rows are there, without a gradient."""
    first, second, old, new = segments()
    read = network(name).train()
    total = Batch({"text": whole().streams["text"]})
    total.streams["text"].fields["rank"] = total.streams["text"].fields["position_ids"]
    total.streams["text"].fields["until"] = torch.zeros(14, dtype=torch.long)
    hidden, context = read.embed(total), Context(total)
    for layer in read.layers:
        rows = hidden["text"]
        hidden = layer({"text": rows.index_copy(0, old, rows[old].detach())}, context)
    towards = torch.linspace(-1, 1, len(new) * 32).view(len(new), 32)
    expected = torch.autograd.grad((hidden["text"][new] * towards).sum(), list(read.layers.parameters()))

    context = Context(first, cache=KVCache("rows"))
    read(first, context)
    read.checkpointing = checkpointing
    context = Context(second, cache=context.updated_cache)
    found = read(second, context)["text"]
    torch.testing.assert_close(found, hidden["text"][new], atol=1e-5, rtol=1e-5)
    before = {at: kept["text"].clone() for at, kept in context.updated_cache.kept.items()}
    gradients = torch.autograd.grad((found * towards).sum(), list(read.layers.parameters()))
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert all(torch.equal(kept["text"], before[at]) for at, kept in context.updated_cache.kept.items())
    assert not any(kept["text"].requires_grad for kept in context.updated_cache.kept.values())


def read_cache(keeps: Any = "rows") -> tuple[Network, KVCache, Batch]:
    first, second, _, _ = segments()
    read = network("rotary, pre")
    context = Context(first, cache=KVCache(keeps))
    with torch.no_grad():
        read(first, context)
    return read, context.updated_cache, second


@pytest.mark.parametrize("keeps", ["keys", "rows"])
@torch.no_grad()
def test_sequences_are_picked_with_their_kv_caches(keeps: Any) -> None:
    read, cache, second = read_cache(keeps)
    expected = read(second, Context(second, cache=cache))["text"].split(second.streams["text"].lengths)
    chosen = [2, 0, 0]
    again = Batch({"text": second.streams["text"].pick(chosen)})
    picked = cache.pick(chosen)
    found = read(again, Context(again, cache=picked))["text"]
    torch.testing.assert_close(found, torch.cat([expected[i] for i in chosen]), atol=1e-5, rtol=1e-5)
    alone = read(second)["text"].split(second.streams["text"].lengths)
    some = read(second, Context(second, cache=cache.pick([0, None, 2])))["text"].split(second.streams["text"].lengths)
    torch.testing.assert_close(some[0], expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(some[1], alone[1], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_kv_cache_is_cut_to_its_last_rows() -> None:
    _, cache, _ = read_cache()
    cut = cache.cut(2)
    assert cut.streams["text"].lengths == [2, 1, 2]
    rows = torch.tensor([2, 3, 4, 5, 6])
    assert torch.equal(cut.streams["text"].fields["input_ids"], cache.streams["text"].fields["input_ids"][rows])
    assert all(torch.equal(kept["text"], cache.kept[at]["text"][rows]) for at, kept in cut.kept.items())
    assert cache.cut(0).streams["text"].lengths == [0, 0, 0]


@torch.no_grad()
def test_positions_of_a_next_segment_may_begin_anew() -> None:
    """Rotary positions are relative: a KV cache that ends at -1 is the one that the positions continued from."""
    read, cache, second = read_cache()
    anew = Batch({"text": second.streams["text"]}).replace("text", position_ids=torch.tensor([0, 1, 2, 0, 0, 1, 2]))
    anew = anew.replace("text", rank=anew.streams["text"].fields["position_ids"])
    behind = cache.behind()
    assert behind.streams["text"].fields["position_ids"].tolist() == [-4, -3, -2, -1, -1, -2, -1]
    layer = read.layers[0]
    states = torch.randn(7, 32, generator=torch.Generator().manual_seed(0))
    layers = [layer({"text": states}, Context(b, cache=p))["text"] for b, p in ((second, cache), (anew, behind))]
    torch.testing.assert_close(*layers, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("keeps", ["keys", "rows"])
@torch.no_grad()
def test_a_kv_cache_is_reported_as_tensors(keeps: Any) -> None:
    read, cache, second = read_cache(keeps)
    again = KVCache.of(keeps, cache.state_dict())
    expected, found = (read(second, Context(second, cache=p))["text"] for p in (cache, again))
    assert torch.equal(found, expected)
    assert again.state_dict().keys() == cache.state_dict().keys()


def test_what_continues_twice_from_one_past_does_not_meet() -> None:
    """The second continuation does not find the rows that the first has written; nor does one that learns."""
    read, batch = network("rotary, pre"), whole()
    (first, _), (middle, rows), _ = pieces(batch)
    with torch.no_grad():
        expected = read(batch)["text"][rows]
        context = Context(first, cache=KVCache("keys"))
        read(first, context)
        cache, other = context.updated_cache, middle.streams["text"]
        ids = other.fields["input_ids"]
        elsewhere = Batch({"text": stream(other.lengths, {**other.fields, "input_ids": (ids + 1) % 50})})
        for piece in (elsewhere, middle, elsewhere):
            context = Context(piece, cache=cache)
            found = read(piece, context)["text"]
            if piece is middle:
                kept = context.updated_cache
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    learns = Context(middle, cache=cache)
    torch.testing.assert_close(read(middle, learns)["text"], expected, atol=1e-5, rtol=1e-5)
    now = learns.updated_cache
    assert now.rooms == {}
    for at, found in kept.together().kept.items():
        torch.testing.assert_close(found["text"], now.kept[at]["text"], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_step_moves_no_row_that_was_read_before() -> None:
    """As long as there is room: the first rows have some left."""
    read = network("self")
    (first, _), (middle, _), (last, _) = pieces(whole())
    cache, places = KVCache("keys"), []
    for piece in (first, middle, last):
        context = Context(piece, cache=cache)
        read(piece, context)
        cache = context.updated_cache
        kept = {at: found["text"] for at, found in cache.kept.items()} | cache.streams["text"].fields
        places.append({name: values.data_ptr() for name, values in kept.items()})
    assert places[0] == places[1] == places[2]


@torch.no_grad()
def test_layers_of_a_stream_without_new_rows_are_not_run() -> None:
    read, batch = network("cross"), whole()
    runs: list[int] = []
    read.layers[0].register_forward_hook(lambda *_: runs.append(1))
    check_pieces(read, batch, "keys")
    assert len(runs) == 2  # of the whole, and of the piece that has the image
