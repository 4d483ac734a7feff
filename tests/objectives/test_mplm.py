"""Masked and permuted language modelling: MPNet's masks by brute force, what stands for a mask, BERT's head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.objectives.conftest import DRAWS, built
from workbench.core.errors import WorkbenchError
from workbench.models.attention.visibility import visible
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.objectives.mplm import Mplm
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, collate
from workbench.sequences.rows import drop
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it makes a stream that the network of the contracts does not have"


def made(tokenizer: Tokenizer, **options: Any) -> Mplm:
    objective = Mplm(tokenizer, **options)
    objective.name = "it"
    return objective


def published(kept: int, predicted: int) -> tuple[np.ndarray, np.ndarray]:
    """The masks of the paper's figure 2 for tokens in their order, then the masks of those that are predicted: content
    rows of the tokens and of the masks, and the queries."""
    length = kept + predicted
    content, query = np.zeros((length + predicted, length + predicted), bool), np.zeros((predicted, length + predicted))
    content[:, :kept] = True
    query[:, :kept] = True
    for t in range(predicted):
        for row in range(length + predicted):
            mine = row - kept if kept <= row < length else -1  # which predicted token the row is; -1: none
            content[row, kept + t] = t <= mine
            content[row, length + t] = t > mine
        query[t, kept : kept + t] = True
        query[t, length + t :] = True
    return content, query.astype(bool)


def test_who_sees_whom_is_as_published(tokenizer: Tokenizer, make_samples: Any) -> None:
    sequences = built(tokenizer, make_samples(40))
    lengths = [sequence.length("text") for sequence in sequences]
    made(tokenizer, rate=0.3, masking="token").corrupt(sequences, DRAWS)
    for sequence, length in zip(sequences, lengths, strict=True):
        text = {name: torch.from_numpy(sequence.streams["text"][name]) for name in ("rank", "until")}
        asking = sequence.streams["query"]
        in_order = np.argsort(asking["rank"])
        rows = asking["position_ids"][in_order]
        others = [row for row in range(length) if row not in rows]
        permuted = [*others, *rows, *(length + in_order)]
        seen, asked = visible(text, text), visible({"rank": torch.from_numpy(asking["rank"])}, text)
        content, query = published(len(others), len(rows))
        assert seen is not None
        assert asked is not None
        np.testing.assert_array_equal(seen.numpy()[permuted][:, permuted], content)
        np.testing.assert_array_equal(asked.numpy()[in_order][:, permuted], query)


def test_masks_stand_at_the_end_in_their_tokens_positions(tokenizer: Tokenizer, make_samples: Any) -> None:
    before = built(tokenizer, make_samples(12))
    after = [sequence.copy() for sequence in before]
    made(tokenizer, rate=0.3).corrupt(after, DRAWS)
    for old, new in zip(before, after, strict=True):
        text, query, length = new.streams["text"], new.streams["query"], old.length("text")
        rows = query["position_ids"]
        np.testing.assert_array_equal(text["position_ids"][length:], rows)
        np.testing.assert_array_equal(text["input_ids"][length:], query["input_ids"])
        np.testing.assert_array_equal(text["until"][length:], text["rank"][rows])
        np.testing.assert_array_equal(new.targets["it"]["labels"], text["input_ids"][rows])
        assert text["taken"][length:].all()
        assert not text["special"][rows].any()
        new.targets = {}
        text["taken"][:] = False
        drop(new, np.arange(length, length + len(rows)))
        for name, values in old.streams["text"].items():
            np.testing.assert_array_equal(new.streams["text"][name], values)


def test_what_stands_for_a_mask_is_as_in_bert(tokenizer: Tokenizer, make_samples: Any) -> None:
    sequences = built(tokenizer, make_samples(200))
    free = sum(int((~sequence.streams["text"]["special"]).sum()) for sequence in sequences)
    made(tokenizer).corrupt(sequences, DRAWS)
    masks = np.concatenate([sequence.streams["query"]["input_ids"] for sequence in sequences])
    labels = np.concatenate([sequence.targets["it"]["labels"] for sequence in sequences])
    total, hidden, same = len(labels), int((masks == tokenizer.id("mask")).sum()), int((masks == labels).sum())
    assert abs(total - 0.15 * free) < 4 * (0.15 * 0.85 * free) ** 0.5
    assert abs(hidden - 0.8 * total) < 4 * (0.16 * total) ** 0.5
    kept = 0.1 + 0.1 / len(tokenizer.ordinary_ids)  # a random token may be the same
    assert abs(same - kept * total) < 4 * (0.09 * total) ** 0.5


def mpnet(tokenizer: Tokenizer) -> Network:
    small = ["model.init_range=0.3", *(f"model.streams.{s}.hidden_size=16" for s in ("text", "query"))]
    torch.manual_seed(0)
    return build_networks(load_recipe("mpnet-tiny", small), vocab_size=tokenizer.vocab_size)["main"]  # type: ignore[no-any-return]


def corrupted(tokenizer: Tokenizer, make_samples: Any) -> Batch:
    sequences = built(tokenizer, make_samples(4))
    made(tokenizer, rate=0.3).corrupt(sequences, DRAWS)
    return collate(sequences)


def test_a_query_begins_as_the_mask_at_its_position(tokenizer: Tokenizer, make_samples: Any) -> None:
    """One set of tables for both streams, in the order of the published code: tokens, then positions, then the norm."""
    read, batch = mpnet(tokenizer), corrupted(tokenizer, make_samples)
    states = read.embed(batch)
    masks = torch.cat(
        [
            part[-n:]
            for part, n in zip(
                states["text"].split(batch.streams["text"].lengths), batch.streams["query"].lengths, strict=True
            )
        ]
    )
    torch.testing.assert_close(states["query"], masks)
    assert len({id(read.embeddings[name].position) for name in ("text", "query")}) == 1


def test_the_loss_is_that_of_berts_head_on_the_queries(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective, read, batch = made(tokenizer), mpnet(tokenizer), corrupted(tokenizer, make_samples)
    head = objective.head(read)
    output = head(HeadInputs.of(read, batch, batch.targets["it"]))
    states = read(batch)["query"]
    hidden = head.norm(F.gelu(head.dense(states)))  # type: ignore[operator]
    logits = F.linear(hidden, read.embeddings["text"].token.weight, head.bias)  # type: ignore[arg-type]
    wanted = F.cross_entropy(logits, batch.targets["it"]["labels"], reduction="sum")
    torch.testing.assert_close(output.loss, wanted, atol=1e-4, rtol=1e-5)
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for n, p in read.named_parameters() if "pooler" not in n)


def test_texts_that_are_read_from_left_to_right_are_refused(tokenizer: Tokenizer, make_samples: Any) -> None:
    with pytest.raises(WorkbenchError, match="visibility: bidirectional"):
        made(tokenizer).corrupt(built(tokenizer, make_samples(1), visibility="causal"), DRAWS)


def test_empty_and_short_texts(tokenizer: Tokenizer) -> None:
    samples = [{"key": str(i), "text": text, "draw": (i,)} for i, text in enumerate(["", "river", " "])]
    sequences = built(tokenizer, samples)
    made(tokenizer).corrupt(sequences, DRAWS)
    batch, read = collate(sequences), mpnet(tokenizer)
    loss = made(tokenizer).head(read)(HeadInputs.of(read, batch, batch.targets["it"])).loss
    assert torch.isfinite(loss)
    loss.backward()
