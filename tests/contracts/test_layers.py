"""Contracts of the layers, on three sequences of texts, images and entities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.case_finder import case_of, cases_of, make, over
from workbench.components.building import find, options_of
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.sequences.batch import Batch, Stream

SIZES = {"text": 16, "image": 16, "entity": 8}
LENGTHS = {"text": [5, 1, 7], "image": [3, 2, 4], "entity": [2, 1, 1]}
MENTIONS = [[(0, 1), (1, 1)], [(0, 0)], [(0, 0), (0, 1), (1, 1)]]  # of each text, with their first and last tokens


def build(name: str, **options: Any) -> nn.Module:
    """The layer without dropout, all weights drawn, evaluating."""
    known = options_of(find("layer", cases_of("layer")[name].part)).names
    quiet = {option: 0.0 for option in ("dropout", "attention_dropout") if option in known}
    layer: nn.Module = make("layer", name, {"sizes": SIZES}, **quiet, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def batch_of(sequences: list[int]) -> tuple[Batch, dict[str, Tensor]]:
    """The given ones of three sequences with fixed states."""
    g = torch.Generator().manual_seed(1)
    streams, hidden = {}, {}
    text_starts = torch.tensor([0, *(LENGTHS["text"][i] for i in sequences)]).cumsum(0)
    for name, lengths in LENGTHS.items():
        states = torch.randn(sum(lengths), SIZES[name], generator=g).split(lengths)
        kept = [lengths[i] for i in sequences]
        fields = {}
        if name == "text":  # the first row of each is exempt from a window
            firsts = torch.tensor([place == 0 for length in kept for place in range(length)])
            fields = {"everywhere": firsts.long()}
        if name == "entity":  # each hangs on its sequence's first tokens, and may be meant by the first mention
            token = torch.cat([text_starts[n] + torch.arange(length) for n, length in enumerate(kept)])
            fields = {"entity_ids": torch.ones(sum(kept), dtype=torch.long), "token": token}
            begins = torch.tensor([0, *(len(MENTIONS[i]) for i in sequences)]).cumsum(0)[:-1]
            fields |= {"mention": begins.repeat_interleave(torch.tensor(kept)), "prior": torch.full((sum(kept),), 0.5)}
        streams[name] = Stream(fields, torch.tensor([0, *kept]).cumsum(0), kept)
        hidden[name] = torch.cat([states[i] for i in sequences])
    places = torch.tensor(
        [[start + a, start + b] for start, i in zip(text_starts, sequences, strict=False) for a, b in MENTIONS[i]]
    )
    kept = [len(MENTIONS[i]) for i in sequences]
    fields = {"token": places[:, 0], "last": places[:, 1]}
    streams["mention"] = Stream(fields, torch.tensor([0, *kept]).cumsum(0), kept)
    return Batch(streams), hidden


@over("layer")
def test_packed_equals_alone(name: str) -> None:
    layer = build(name)
    batch, hidden = batch_of([0, 1, 2])
    together = layer(hidden, Context(batch))
    for i in range(3):
        one, its_hidden = batch_of([i])
        alone = layer(its_hidden, Context(one))
        for stream, states in alone.items():
            expected = together[stream].split(LENGTHS[stream])[i]
            torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)


@over("layer")
def test_shapes_stay_and_gradients_are_finite(name: str) -> None:
    layer = build(name)
    batch, hidden = batch_of([0, 1, 2])
    leaves = {stream: states.requires_grad_() for stream, states in hidden.items()}
    context = Context(batch)
    out = layer(leaves, context)
    assert {s: t.shape for s, t in out.items()} == {s: t.shape for s, t in hidden.items()}
    left = [states for tap in context.taps.values() for states in tap.values()]
    sum(states.square().sum() for states in [*out.values(), *left]).backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all()
        assert float(parameter.grad.abs().sum()) > 0, parameter_name


@over("layer")
def test_a_layer_reads_and_changes_the_streams_that_it_says(name: str) -> None:
    """Others pass through as they are, and nothing of them is seen."""
    layer = build(name)
    batch, hidden = batch_of([0, 1, 2])
    reads, changes = getattr(layer, "reads", tuple(SIZES)), getattr(layer, "changes", tuple(SIZES))
    assert set(changes) <= set(reads)
    before = layer(hidden, Context(batch))
    for stream in set(SIZES) - set(changes):
        assert before[stream] is hidden[stream], stream
    others = {stream: rows if stream in reads else torch.randn_like(rows) for stream, rows in hidden.items()}
    for after in (layer(others, Context(batch)), layer({s: hidden[s] for s in reads}, Context(batch))):
        for stream in changes:
            assert torch.equal(after[stream], before[stream]), stream


FIRST = [3, 1, 2]  # rows of each text in the first of two pieces, which has all images and entities


def read_on() -> tuple[Batch, dict[str, Tensor]]:
    """The three sequences, with a text that is read from left to right and sees all else, and nothing else sees it."""
    batch, hidden = batch_of([0, 1, 2])
    places = torch.cat([torch.arange(length) for length in LENGTHS["text"]])
    batch.streams["text"].fields = {"position_ids": places, "rank": places + 1}
    for name in ("image", "entity", "mention"):
        batch.streams[name].fields["position_ids"] = torch.zeros(batch.streams[name].rows, dtype=torch.long)
    return batch, hidden


def piece_of(batch: Batch, lengths: list[int], rows: Tensor) -> Stream:
    fields = {name: values[rows] for name, values in batch.streams["text"].fields.items()}
    return Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)


@pytest.mark.parametrize("keeps", ["keys", "rows"])
@over("layer", "cache")
@torch.no_grad()
def test_pieces_with_a_kv_cache_are_the_whole(name: str, keeps: Any) -> None:
    """What generation and the memory of long texts take for granted."""
    layer = build(name)
    batch, hidden = read_on()
    whole = layer(hidden, Context(batch))
    offsets = batch.streams["text"].offsets
    early = torch.cat([torch.arange(start, start + n) for start, n in zip(offsets, FIRST, strict=False)])
    late = torch.tensor([row for row in range(int(offsets[-1])) if row not in early])
    others = {stream: batch.streams[stream] for stream in ("image", "entity", "mention")}
    for stream, links in (("entity", ["token"]), ("mention", ["token", "last"])):
        moved = {link: torch.searchsorted(early, others[stream].fields[link].contiguous()) for link in links}
        others[stream] = replace(others[stream], fields=others[stream].fields | moved)
    context = Context(Batch({"text": piece_of(batch, FIRST, early), **others}), cache=KVCache(keeps))
    first = layer({**hidden, "text": hidden["text"][early]}, context)
    for stream, states in first.items():
        expected = whole["text"][early] if stream == "text" else whole[stream]
        torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)
    left = [length - n for length, n in zip(LENGTHS["text"], FIRST, strict=True)]
    context = Context(Batch({"text": piece_of(batch, left, late)}), cache=context.updated_cache)
    nothing = {stream: hidden[stream][:0] for stream in hidden.keys() & others.keys() & context.batch.streams.keys()}
    second = layer({"text": hidden["text"][late], **nothing}, context)
    torch.testing.assert_close(second["text"], whole["text"][late], atol=1e-5, rtol=1e-5)


@over("layer", "attention")
def test_every_layer_takes_the_terms_of_attention(name: str) -> None:
    """A score bias, a window, a scale, and no bias anywhere: they change the states, and the packed ones are the
    same."""
    batch, hidden = batch_of([0, 1, 2])
    plain = build(name, bias=False)
    assert not [path for path, _ in plain.named_parameters() if path.endswith("bias")]
    for change in ({"score_bias": "buckets"}, {"scale": 0.1}, {"window": 1}):
        if refused(name, **change):
            continue
        layer = build(name, bias=False, **change)
        layer.load_state_dict(plain.state_dict(), strict=False)
        together = layer(hidden, Context(batch))
        assert not torch.allclose(together["text"], plain(hidden, Context(batch))["text"], atol=1e-4), change
        one, its_hidden = batch_of([2])
        alone = layer(its_hidden, Context(one))["text"]
        torch.testing.assert_close(alone, together["text"].split(LENGTHS["text"])[2], atol=1e-5, rtol=1e-5)


def refused(name: str, **change: Any) -> bool:
    """Whether the case says so, and the layer does."""
    (option,) = change
    if option not in case_of("layer", name).excused:
        return False
    with pytest.raises(WorkbenchError, match=f"{option} = {change[option]}"):
        build(name, **change)
    return True


@over("layer")
def test_a_layer_without_terms_of_attention_has_none(name: str) -> None:
    part, case = cases_of("layer")[name]
    assert ("attention" in case.excused) == ("num_heads" not in options_of(find("layer", part)).names)


@pytest.mark.parametrize("left", ["text", "image"])
@over("layer")
def test_a_batch_of_one_stream_passes(name: str, left: str) -> None:
    """Texts or images alone, as a dual encoder's: a layer leaves streams alone that are not there, its own too."""
    batch, hidden = batch_of([0, 1, 2])
    batch.streams = {left: batch.streams[left]}
    out = build(name)({left: hidden[left]}, Context(batch))
    assert {stream: states.shape for stream, states in out.items()} == {left: hidden[left].shape}
