"""Pseudo-masked language modelling: UniLM v2's attention by loops over its figure, its masks, its two sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.objectives.conftest import DRAWS, built
from workbench.core.errors import WorkbenchError
from workbench.models.attention.visibility import visible
from workbench.objectives.pmlm import Pmlm
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it labels rows that it appends, and predicts each token twice"
NGRAMS = {"masking": "ngram", "lengths": [3, 2, 1]}


def made(tokenizer: Tokenizer, **options: Any) -> Pmlm:
    objective = Pmlm(tokenizer, **{"rate": 0.3, "masking": NGRAMS, **options})
    objective.name = "it"
    return objective


def corrupted(tokenizer: Tokenizer, samples: Any, **options: Any) -> tuple[list[Sequence], list[Sequence]]:
    before = built(tokenizer, samples)
    after = [sequence.copy() for sequence in before]
    made(tokenizer, **options).corrupt(after, DRAWS)
    return before, after


def test_who_sees_whom_is_as_published(tokenizer: Tokenizer, make_samples: Any) -> None:
    """Figure 4: all rows see the text with its masks; blocks follow each other."""
    several = 0
    for old, new in zip(*corrupted(tokenizer, make_samples(20)), strict=True):
        length, text = old.length("text"), new.streams["text"]
        count = (len(text["rank"]) - length) // 2
        block = (text["rank"][length:] + 1) // 2
        np.testing.assert_array_equal(block[:count], block[count:])
        sees = np.zeros((len(block) + length,) * 2, bool)
        sees[:, :length] = True
        for i in range(count):
            for j in range(count):
                token_i, token_j = length + count + i, length + count + j
                sees[length + i, length + j] = block[i] == block[j]
                sees[length + i, token_j] = block[j] < block[i]
                sees[token_i, token_j] = block[j] <= block[i]
        integers = {name: torch.from_numpy(text[name]) for name in ("rank", "until")}
        found = visible(integers, integers)
        assert found is not None
        np.testing.assert_array_equal(found.numpy(), sees)
        assert sorted(set(block.tolist())) == list(range(1, 1 + int(block.max())))
        positions = text["position_ids"][length : length + count]
        for number in set(block.tolist()):
            own = np.sort(positions[block[:count] == number])
            assert own[-1] - own[0] == len(own) - 1  # neighbours
        several += int(block.max()) < count
    assert several


def test_masks_and_tokens_are_behind_the_text(tokenizer: Tokenizer, make_samples: Any) -> None:
    for old, new in zip(*corrupted(tokenizer, make_samples(12)), strict=True):
        length, text, target = old.length("text"), new.streams["text"], new.targets["it"]
        count = (len(text["rank"]) - length) // 2
        rows = target["rows"].index[:count]
        labels = old.streams["text"]["input_ids"][rows]
        np.testing.assert_array_equal(target["labels"], np.tile(labels, 2))
        np.testing.assert_array_equal(target["rows"].index[count:], length + np.arange(count))
        pseudo = np.full(count, tokenizer.vocab_size)
        np.testing.assert_array_equal(text["input_ids"][length:], np.concatenate([pseudo, labels]))
        np.testing.assert_array_equal(text["position_ids"][length:], np.tile(text["position_ids"][rows], 2))
        assert text["taken"][rows].all()


def test_the_loss_is_the_sum_of_both(tokenizer: Tokenizer, make_samples: Any, make_network: Any) -> None:
    """The first sum is that of `mlm`; of a block alone, the second is that of a text that holds all other tokens."""
    objective, network = made(tokenizer), make_network(vocab_size=tokenizer.vocab_size + 1)
    _, sequences = corrupted(tokenizer, make_samples(3))
    batch = collate(sequences)
    head = objective.head(network)
    output = head(HeadInputs.of(network, batch, batch.targets["it"]))
    assert objective.count(batch) == len(batch.targets["it"]["labels"])
    total = torch.zeros(())
    for sequence in sequences:
        text, target = sequence.streams["text"], sequence.targets["it"]
        count = len(target["labels"]) // 2
        plain = len(text["rank"]) - 2 * count
        block, rows = (text["rank"][plain : plain + count] + 1) // 2, target["rows"].index[:count]
        total = total + reference(network, head, text, np.arange(plain), rows, target["labels"][:count])
        for number in range(1, int(block.max()) + 1):
            ours = np.flatnonzero(block == number)
            known = plain + count + np.flatnonzero(block < number)
            kept = np.concatenate([np.arange(plain), known, plain + ours])
            places = len(kept) - len(ours) + np.arange(len(ours))
            total = total + later(network, head, text, kept, places, target["labels"][ours], plain, len(known))
    torch.testing.assert_close(output.loss, total, atol=1e-4, rtol=1e-5)


def reference(network: Any, head: Any, text: Any, kept: Any, rows: Any, labels: Any) -> torch.Tensor:
    """The loss of these rows of a text that is read in both directions."""
    fields = {name: values[kept] for name, values in text.items() if name not in ("rank", "until")}
    states = network(collate([Sequence({"text": fields}, (0,))]))["text"]
    logits = head.logits(network, states[torch.from_numpy(rows)])
    return F.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")


def later(
    network: Any, head: Any, text: Any, kept: Any, rows: Any, labels: Any, plain: int, known: int
) -> torch.Tensor:
    """The same of one block behind the known ones, with the ranks of the smallest case: text 0, tokens 1.., block."""
    fields = {name: values[kept].copy() for name, values in text.items() if name != "until"}
    fields["rank"][plain + known :] = fields["rank"][kept >= 0].max() + 1
    states = network(collate([Sequence({"text": fields}, (0,))]))["text"]
    logits = head.logits(network, states[torch.from_numpy(rows)])
    return F.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")


def test_a_table_without_a_pseudo_mask_is_refused(tokenizer: Tokenizer, make_network: Any) -> None:
    with pytest.raises(WorkbenchError, match=f"vocab_size={tokenizer.vocab_size + 1}"):
        made(tokenizer).head(make_network())
