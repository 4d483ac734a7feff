"""Permutation language modelling: the order of the paper by brute force, shares of spans, what a query may know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.objectives.conftest import DRAWS, built
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.models.attention.visibility import visible
from workbench.models.network import Network
from workbench.objectives.plm import Plm, order
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it makes a stream that the network of the contracts does not have"


def made(**options: Any) -> Plm:
    objective = Plm(**options)
    objective.name = "it"
    return objective


def published(length: int, rows: np.ndarray, size: int, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who sees whom in the content and the query stream, from the definition of the paper and its published code's
    blocks: a token that is not predicted is seen by its block and later ones, one that is by those that come later in
    the order; a content row sees itself too."""
    content, query = np.zeros((2, length, length), bool)
    for i in range(length):
        for j in range(length):
            if i // size != j // size:
                content[i, j] = query[i, j] = j // size < i // size
            elif j not in rows:
                content[i, j] = query[i, j] = True
            elif i in rows:
                query[i, j] = rank[j] < rank[i]
                content[i, j] = i == j or query[i, j]
    return content, query


def test_who_sees_whom_is_as_published() -> None:
    for number in range(300):
        rng = generator(number)
        length = int(rng.integers(1, 14))
        rows = np.flatnonzero(rng.random(length) < 0.4)
        size = None if number % 3 == 0 else int(rng.integers(1, 15))
        rank = order(length, rows, size, rng)
        within = [sorted(rank[rows[rows // (size or length) == b]]) for b in range(length)]
        assert all(np.array_equal(np.diff(ranks), np.ones(len(ranks) - 1)) for ranks in within if len(ranks))
        content, query = published(length, rows, size or length, rank)
        ranks, asking = torch.from_numpy(rank), torch.from_numpy(rank[rows] - 1)
        seen = visible({"rank": ranks}, {"rank": ranks})
        asked = visible({"rank": asking}, {"rank": ranks})
        assert seen is not None
        assert asked is not None
        np.testing.assert_array_equal(seen.numpy(), content)
        np.testing.assert_array_equal(asked.numpy(), query[rows])


def test_every_order_is_as_likely() -> None:
    rows, found = np.array([1, 3, 4]), {}
    for number in range(3000):
        ranks = tuple(order(6, rows, None, generator(number))[rows].tolist())
        found[ranks] = found.get(ranks, 0) + 1
    assert len(found) == 6
    assert all(abs(count - 500) < 4 * (3000 / 6 * 5 / 6) ** 0.5 for count in found.values())


def test_the_text_stays_and_queries_stand_at_its_tokens(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective = made(rate=0.3)
    before = built(tokenizer, make_samples(12))
    after = [sequence.copy() for sequence in before]
    objective.corrupt(after, DRAWS)
    for old, new in zip(before, after, strict=True):
        text, query, target = new.streams["text"], new.streams["query"], new.targets["it"]
        np.testing.assert_array_equal(text["input_ids"], old.streams["text"]["input_ids"])
        np.testing.assert_array_equal(text["position_ids"], old.streams["text"]["position_ids"])
        rows = query["position_ids"]
        assert target["rows"].stream == "query"
        np.testing.assert_array_equal(target["rows"].index, np.arange(len(rows)))
        np.testing.assert_array_equal(target["labels"], text["input_ids"][rows])
        np.testing.assert_array_equal(query["rank"], text["rank"][rows] - 1)
        np.testing.assert_array_equal(np.flatnonzero(text["taken"]), rows)
        assert not query["input_ids"].any()
        assert not text["special"][rows].any()
        assert sorted(text["rank"][rows]) == list(range(1, 1 + len(rows)))
    again = [sequence.copy() for sequence in before]
    objective.corrupt(again, DRAWS)
    pairs = zip(after, again, strict=True)
    assert all(np.array_equal(one.streams["text"]["rank"], two.streams["text"]["rank"]) for one, two in pairs)


def test_a_sixth_is_predicted_in_spans_of_one_to_five_words(tokenizer: Tokenizer, make_samples: Any) -> None:
    weights = np.array([60, 30, 20, 15, 12])
    masking = {"masking": "ngram", "lengths": weights.tolist(), "unit": "word"}
    sequences = built(tokenizer, make_samples(60), begin=None, end=None)
    total = sum(sequence.length("text") for sequence in sequences)
    made(rate=1 / 6, masking=masking).corrupt(sequences, DRAWS)
    chosen = sum(sequence.length("query") for sequence in sequences)
    assert abs(chosen - total / 6) < 4 * (total * 5 / 36) ** 0.5
    for sequence in sequences:
        words, rows = sequence.streams["text"]["word_ids"], sequence.streams["query"]["position_ids"]
        assert all(np.isin(np.flatnonzero(words == word), rows).all() for word in words[rows])


def network(tokenizer: Tokenizer, memory: int = 0) -> Network:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 16, "max_positions": None, "token_types": 0, "dropout": 0.0}
    layer = {
        "layer": "two_stream",
        "stream": "text",
        "query": "query",
        "num_heads": 2,
        "score_bias": {"score_bias": "relative", "segments": True},
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "repeat": 2,
    }
    streams = {"text": text, "query": {"embedding": "vector", "hidden_size": 16, "dropout": 0.0}}
    return Network(NetworkSpec(streams, [layer], init_range=0.3, memory=memory), vocab_size=tokenizer.vocab_size)


def batch_of(tokenizer: Tokenizer, make_samples: Any, **options: Any) -> Batch:
    sequences = built(tokenizer, make_samples(4))
    made(**options).corrupt(sequences, DRAWS)
    return collate(sequences)


def test_the_loss_is_that_of_the_queries(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective, read = made(rate=0.3), network(tokenizer)
    batch = batch_of(tokenizer, make_samples, rate=0.3)
    head = objective.head(read)
    torch.nn.init.normal_(head.bias)  # type: ignore[arg-type]
    output = head(HeadInputs.of(read, batch, batch.targets["it"]))
    states, labels = read(batch)["query"], batch.targets["it"]["labels"]
    logits = states @ read.embeddings["text"].token.weight.T + head.bias
    torch.testing.assert_close(output.loss, F.cross_entropy(logits, labels, reduction="sum"), atol=1e-4, rtol=1e-5)
    assert objective.count(batch) == len(labels)
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in read.parameters())


@torch.no_grad()
def test_no_token_is_known_to_the_row_that_asks_for_it(tokenizer: Tokenizer, make_samples: Any) -> None:
    """Another token in the place of the last of an order changes no prediction; of the first one, all but its own."""
    read = network(tokenizer).eval()
    batch = batch_of(tokenizer, make_samples, rate=0.4)
    text, query = batch.streams["text"], batch.streams["query"]
    ids = text.fields["input_ids"]
    before = read(batch)["query"]
    for rank in (int(query.fields["rank"][: query.lengths[0]].max()), 0):
        own = int((query.fields["rank"][: query.lengths[0]] == rank).nonzero())
        changed = ids.clone()
        row = int(query.fields["position_ids"][own])
        changed[row] = (changed[row] + 1) % tokenizer.vocab_size
        after = read(batch.replace("text", input_ids=changed))["query"]
        differs = (after - before).abs().amax(1) > 1e-6
        expected = query.fields["rank"] > rank
        expected[query.lengths[0] :] = False
        assert torch.equal(differs, expected)


def test_texts_that_are_read_from_left_to_right_are_refused(tokenizer: Tokenizer, make_samples: Any) -> None:
    with pytest.raises(WorkbenchError, match="visibility: bidirectional"):
        made().corrupt(built(tokenizer, make_samples(1), visibility="causal"), DRAWS)


def test_empty_and_short_texts(tokenizer: Tokenizer) -> None:
    samples = [{"key": str(i), "text": text, "draw": (i,)} for i, text in enumerate(["", "river", " "])]
    sequences = built(tokenizer, samples)
    made().corrupt(sequences, DRAWS)
    batch = collate(sequences)
    read = network(tokenizer)
    loss = made().head(read)(HeadInputs.of(read, batch, batch.targets["it"])).loss
    assert torch.isfinite(loss)
    assert made().count(batch) == sum(sequence.length("query") for sequence in sequences) > 0
    loss.backward()
