"""Span corruption: what is left out and asked for, texts with a cache as without."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.generation.conftest import Uncached
from tests.loaded_runs import generate_texts
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws, Numbers, generator
from workbench.generation.beams import beam_search
from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, draw
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.objectives.span_corruption import SpanCorruption, noise
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it makes a stream that the network of the contracts does not have"
DRAWS = Draws(0, "task", "it", number=(0,))


def made(tokenizer: Tokenizer, **options: Any) -> SpanCorruption:
    objective = SpanCorruption(tokenizer, **options)
    objective.name = "it"
    return objective


def built(tokenizer: Tokenizer, samples: list[dict[str, Any]], builder: str = "document") -> list[Sequence]:
    spec = {"builder": builder, "begin": None, "end": "eos"}
    found: list[Sequence] = build("builder", spec, "", tokenizer=tokenizer, max_length=64)(samples, DRAWS)
    return found


def test_the_text_and_the_target_together_are_the_original(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective = made(tokenizer, rate=0.3, mean_span=2.0)
    before = built(tokenizer, make_samples(12))
    after = [sequence.copy() for sequence in before]
    objective.corrupt(after, DRAWS)
    start, end, first = tokenizer.id("pad"), tokenizer.id("eos"), tokenizer.vocab_size
    for old, new in zip(before, after, strict=True):
        text, target = new.streams["text"], new.streams["target"]
        labels = new.targets["it"]["labels"].tolist()
        assert target["input_ids"].tolist() == [start, *labels[:-1]]
        assert new.targets["it"]["rows"].index.tolist() == target["rank"].tolist() == list(range(len(labels)))
        sentinels = [i for i in labels if i >= first]
        assert sentinels == list(range(first, first + len(sentinels)))
        assert labels[-2:] == [sentinels[-1], end]
        pieces = {s: labels[labels.index(s) + 1 : labels.index(s + 1)] for s in sentinels[:-1]}
        joined = [i for row in text["input_ids"].tolist() for i in pieces.get(row, [row])]
        assert joined == old.streams["text"]["input_ids"].tolist()
        assert text["position_ids"].tolist() == list(range(len(text["input_ids"])))
        assert [row in pieces for row in text["input_ids"].tolist()] == text["taken"].tolist()


def test_spans_have_their_rate_and_mean() -> None:
    rate, counts, lengths = 0.15, [], []
    for seed in range(60):
        left_out = noise(np.array([500]), rate, 3.0, Numbers.of(generator(seed)))
        edges = np.flatnonzero(np.diff(left_out.astype(int), prepend=0, append=0))
        counts.append(int(left_out.sum()))
        lengths += (edges[1::2] - edges[::2]).tolist()
    assert set(counts) == {75}
    assert np.mean(lengths) == 3.0
    assert len(set(lengths)) > 5
    starts = [noise(np.array([6]), 0.3, 1.0, Numbers.of(generator(seed))) for seed in range(400)]
    assert not any(mask[0] for mask in starts)
    assert all(mask.sum() == 2 for mask in starts)
    # two spans of one token in six: the four kept ones are 1 + 3, 2 + 2 or 3 + 1, equally often
    kept = [int(np.flatnonzero(mask)[0]) for mask in starts]
    assert set(kept) == {1, 2, 3}
    assert all(abs(kept.count(n) - 400 / 3) < 4 * (400 * 2 / 9) ** 0.5 for n in (1, 2, 3))


def test_special_and_labelled_rows_stay_and_draws_are_keyed(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective, samples = made(tokenizer, rate=0.5), make_samples(4)
    found = []
    for seed in (0, 0, 1):
        [*sequences] = built(tokenizer, samples)
        for sequence in sequences:
            sequence.streams["text"]["taken"][3:6] = True
        taken = [sequence.streams["text"]["input_ids"][3:6].tolist() for sequence in sequences]
        objective.corrupt(sequences, Draws(seed, "task", number=(0,)))
        for sequence, kept in zip(sequences, taken, strict=True):
            ids = sequence.streams["text"]["input_ids"].tolist()
            assert any(ids[i : i + 3] == kept for i in range(len(ids)))
            assert ids[-1] == tokenizer.id("eos")
        found.append([sequence.targets["it"]["labels"].tolist() for sequence in sequences])
    assert found[0] == found[1] != found[2]


def test_there_are_no_more_spans_than_sentinels(tokenizer: Tokenizer, make_samples: Any) -> None:
    sequences = built(tokenizer, make_samples(3))
    made(tokenizer, rate=0.5, mean_span=1.0, sentinels=4).corrupt(sequences, DRAWS)
    for sequence in sequences:
        labels = sequence.targets["it"]["labels"]
        assert [i for i in labels if i >= tokenizer.vocab_size] == [tokenizer.vocab_size + k for k in range(4)]


def test_sentinels_have_names(tokenizer: Tokenizer) -> None:
    names = made(tokenizer, sentinels=3).own_tokens
    assert names == {tokenizer.vocab_size + number: f"<extra_id_{number}>" for number in range(3)}


def small(tokenizer: Tokenizer, **changes: Any) -> Recipe:
    """The recipe's components with a tiny model."""
    recipe = load_recipe("t5")
    (spec,) = recipe.networks.values()
    for stream in spec.streams.values():
        stream.update(hidden_size=32, dropout=0.0, vocab_size=tokenizer.vocab_size + 100, **changes)
    for layer in spec.layers:
        if "repeat" in layer:
            layer.update(num_heads=4, intermediate_size=64, dropout=0.0, attention_dropout=0.0, repeat=2)
    return dataclasses.replace(recipe, model=dataclasses.replace(spec, init_range=0.2))


def network_of(recipe: Recipe) -> Network:
    torch.manual_seed(0)
    (network,) = build_networks(recipe).values()
    return network.eval()


def test_short_texts_give_nothing_to_predict_and_finite_gradients(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective, network = made(tokenizer), network_of(small(tokenizer))
    short = [{**make_samples(1)[0], "text": text, "spans": [], "mask_spans": []} for text in ("", "t")]
    for samples, count in ((short, 0), (make_samples(3) + short, None)):
        sequences = built(tokenizer, samples)
        objective.corrupt(sequences, DRAWS)
        batch = collate(sequences)
        labels = batch.targets["it"]["labels"]
        assert objective.count(batch) == len(labels)
        assert count is None or len(labels) == count
        network.zero_grad()
        head = objective.head(network)
        output = head(HeadInputs.of(network, batch, batch.targets["it"]))
        assert count is None or float(output.loss.detach()) == 0.0
        output.loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_what_does_not_fit_is_refused(tokenizer: Tokenizer, make_samples: Any) -> None:
    with pytest.raises(WorkbenchError, match="builder document"):
        made(tokenizer).corrupt(built(tokenizer, make_samples(2), "packed"), DRAWS)
    network = network_of(small(tokenizer))
    with pytest.raises(WorkbenchError, match=rf"text\.vocab_size={tokenizer.vocab_size + 101} and target"):
        made(tokenizer, sentinels=101).head(network)


def test_tables_with_fewer_rows_than_the_tokenizer_are_refused(tokenizer: Tokenizer) -> None:
    size, objective = tokenizer.vocab_size, made(tokenizer, sentinels=3)
    objective.sentinels = np.array([4, 5, 6])  # a tokenizer that has its own
    network = network_of(small(tokenizer))
    objective.head(network)
    for stream in ("target", "text"):  # as if they were not tied
        network.embeddings[stream].token = torch.nn.Embedding(size - 1, 32)
        reported = (
            f"{size:,} tokens and 3 sentinels need ids up to {size - 1}, but the table of the stream '{stream}' has"
        )
        with pytest.raises(WorkbenchError, match=reported):
            objective.head(network)


@pytest.mark.parametrize("decoding", [Decoding(max_new_tokens=10), Decoding(max_new_tokens=10, beams=3)], ids=str)
@torch.no_grad()
def test_texts_with_a_cache_are_those_without(decoding: Decoding, tokenizer: Tokenizer, make_samples: Any) -> None:
    objective, network = made(tokenizer), network_of(small(tokenizer))
    head = objective.head(network)
    prompts = [s for n in (20, 3, 9) for s in built(tokenizer, make_samples(1, n))]
    continuation = objective.continuation(build("builder", "document", "", tokenizer=tokenizer, max_length=64))
    for prompt in prompts:
        continuation.prompt(prompt)
    continuation.end = 7
    found, expected = [], []
    for texts, decoder in (
        (found, Decoder(network, head, continuation, collate(prompts))),
        (expected, Uncached(network, head, continuation, prompts)),
    ):
        if decoding.beams > 1:
            texts += beam_search(decoder, decoding, len(prompts))  # type: ignore[arg-type]
        else:
            texts += draw(decoder, decoding, [generator(i) for i in range(len(prompts))])  # type: ignore[arg-type]
    assert [text.tokens for text in found] == [text.tokens for text in expected]
    assert [text.score for text in found] == pytest.approx([text.score for text in expected], abs=1e-4)
    logits: list[Tensor] = []
    for decoder in (
        Decoder(network, head, continuation, collate(prompts)),
        Uncached(network, head, continuation, prompts),
    ):
        decoder.begin()
        logits.append(decoder.step([5, 9], [2, 0]))
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)


def test_a_run_writes_what_is_left_out(tokenizer: Tokenizer, make_samples: Any) -> None:
    """As `workbench generate` does, of lines of several lengths."""
    recipe = small(tokenizer)
    tasks = tasks_of(recipe, tokenizer)
    loaded = LoadedRun(make_model(recipe, tasks, tokenizer).eval(), tokenizer, recipe, tasks)
    lines = [sample["text"] for n in (20, 3, 9) for sample in make_samples(1, n)]
    for decoding in (Decoding(max_new_tokens=6), Decoding(max_new_tokens=6, beams=3)):
        made = generate_texts(loaded, lines, decoding)
        assert made == generate_texts(loaded, lines, decoding, batch_size=1)
        assert any(made)


def test_a_masking_strategy_selects_the_spans(tokenizer: Tokenizer) -> None:
    """Whole entities: the mention is one sentinel, and nothing of it stays in the text."""
    sample = {"key": "a", "draw": (0,), "text": "the old river flows past the old town", "spans": [[8, 13, "Q1", 1.0]]}
    [before] = built(tokenizer, [sample])
    rows = range(before.spans[0].start, before.spans[0].end)
    rate = (len(rows) + 0.1) / (len(before.streams["text"]["input_ids"]) - 1)
    after = before.copy()
    made(tokenizer, rate=rate, masking="entity").corrupt([after], DRAWS)
    first, ids = tokenizer.vocab_size, before.streams["text"]["input_ids"]
    assert after.targets["it"]["labels"].tolist() == [first, *ids[list(rows)], first + 1, tokenizer.id("eos")]
