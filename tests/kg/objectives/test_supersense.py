"""Supersenses of hidden words: which have labels, the loss of the paper's equations, the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from kg.objectives.supersense import Supersense, sense_scores
from tests.contracts.material import draws, text_samples, tokenizer
from tests.kg.sense_files import supersenses
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives.mlm import Mlm
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence

EXCUSED = "its labels are those of the words that another objective has hidden"


def network(embedding: str = "kg.sense_token") -> Network:
    torch.manual_seed(0)
    text: dict[str, Any] = {"embedding": embedding, "hidden_size": 16, "max_positions": 600, "dropout": 0.0}
    if embedding == "kg.sense_token":
        text["senses"] = supersenses()
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    return Network(NetworkSpec({"text": text}, [layer], init_range=0.3), vocab_size=tokenizer().vocab_size)


def hidden(rate: float = 0.5) -> tuple[Supersense, list[Sequence], list[Sequence]]:
    """The objective, sequences that mlm and it have changed, and as they were."""
    mlm, part = Mlm(tokenizer(), rate=rate), Supersense(supersenses())
    mlm.name, part.name = "mlm", "it"
    built = build("builder", "document", "", tokenizer=tokenizer(), max_length=512)(text_samples(6), draws())
    before = [sequence.copy() for sequence in built]
    mlm.corrupt(built, draws())
    part.corrupt(built, draws())
    return part, built, before


def test_hidden_whole_words_with_supersenses_are_labelled() -> None:
    _, sequences, originals = hidden()
    labelled = cut = 0
    for sequence, original in zip(sequences, originals, strict=True):
        masked = set(np.asarray(sequence.targets["mlm"]["rows"]).tolist())
        ids, words = original.streams["text"]["input_ids"].tolist(), original.streams["text"]["word_ids"].tolist()
        wanted = []
        for row in sorted(masked):
            whole = words.count(words[row]) == 1
            cut += not whole
            if whole and supersenses().allowed[ids[row]].any():
                wanted.append((row, ids[row]))
        found = sequence.targets["it"]
        assert list(zip(found["rows"].index.tolist(), found["labels"].tolist(), strict=True)) == wanted
        labelled += len(wanted)
    assert labelled > 20
    assert cut > 20  # tokens of words that are cut in several


def test_the_loss_is_that_of_the_equations_with_finite_gradients() -> None:
    part, sequences, _ = hidden()
    batch, net = collate(sequences), network()
    head = part.head(net)
    states = torch.randn(int(batch.streams["text"].offsets[-1]), 16, requires_grad=True)
    out = head(HeadInputs.of(net, batch, batch.targets["it"], {"text": states}))
    table = net.embeddings["text"].senses.weight
    total, right = torch.tensor(0.0), 0
    targets = batch.targets["it"]
    for row, token in zip(targets["rows"].tolist(), targets["labels"].tolist(), strict=True):
        scores = [(table[s] * states[row]).sum() for s in range(len(table))]
        whole = sum(torch.exp(score) for score in scores)
        senses = [s for s in range(len(table)) if supersenses().allowed[token, s]]
        p = [torch.exp(score) / whole for score in scores]
        total = total - torch.log(sum(p[s] for s in senses))  # equation 4
        total = total - sum(torch.log(p[s]) / len(senses) for s in senses)  # equation 6
        right += max(range(len(p)), key=lambda s: p[s].item()) in senses
    torch.testing.assert_close(out.loss, total, rtol=1e-5, atol=1e-5)
    found, count = out.metrics["accuracy"]
    assert (int(found), count) == (right, part.count(batch))
    out.loss.backward()
    assert states.grad is not None
    assert torch.isfinite(states.grad).all()
    assert table.grad is not None
    assert table.grad.abs().sum() > 0


def test_nothing_hidden_has_no_loss() -> None:
    part, net = Supersense(supersenses()), network()
    mlm = Mlm(tokenizer())
    mlm.name, part.name = "mlm", "it"
    given = [{"key": "a", "draw": (0,), "text": ""}, {"key": "b", "draw": (1,), "text": "river"}]
    sequences = build("builder", "document", "", tokenizer=tokenizer(), max_length=64)(given, draws())
    for sequence in sequences:
        sequence.streams["text"]["taken"][:] = True
    mlm.corrupt(sequences, draws())
    part.corrupt(sequences, draws())
    batch = collate(sequences)
    assert part.count(batch) == 0
    assert float(part.head(net)(HeadInputs.of(net, batch, batch.targets["it"])).loss.detach()) == 0


def test_scores_of_all_words_and_of_those_with_one_supersense() -> None:
    allowed = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1]], dtype=torch.bool)
    assert sense_scores(torch.tensor([0, 0, 0, 0]), allowed) == {"allowed_accuracy": 0.5, "single_accuracy": 0.5}
    assert sense_scores(torch.tensor([1]), allowed[2:3]) == {"allowed_accuracy": 1.0}


def test_what_does_not_fit_is_refused() -> None:
    part = Supersense(supersenses(), of="nsp")
    part.name = "it"
    sequences = build("builder", "document", "", tokenizer=tokenizer(), max_length=64)(text_samples(1), draws())
    with pytest.raises(WorkbenchError, match="'nsp' hides no tokens"):
        part.corrupt(sequences, draws())
    with pytest.raises(WorkbenchError, match=r"`embedding: kg\.sense_token`"):
        part.head(network("token"))
    assert math.isclose(part.count(collate(sequences)), 0)
