"""Labels of texts: at the input of most, predicted of the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kg.objectives.label_fusion import LabelFusion
from tests.contracts.material import draws, plain, tiny_network, travelled
from tests.kg.sentiment_files import CLASSES, feeling_network, tagged_samples, tagged_sequences
from workbench.core.errors import WorkbenchError
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence

EXCUSED = "it reads a field that the samples of the contracts don't have"


def fused(late: float = 0.4, count: int = 30) -> tuple[LabelFusion, list[Sequence]]:
    part = LabelFusion(CLASSES, late=late)
    part.name = "it"
    sequences = tagged_sequences(tagged_samples(count, 12))
    part.corrupt(sequences, draws())
    return part, sequences


def test_a_label_is_read_or_predicted_and_never_both() -> None:
    _, sequences = fused()
    late = 0
    for sequence in sequences:
        text, (target,) = sequence.streams["text"], sequence.targets["it"]["labels"].tolist()
        if "label" not in sequence.labels:
            assert target == -100
            assert (text["label_ids"] == len(CLASSES)).all()
            continue
        number = CLASSES.index(sequence.labels["label"])
        assert (text["label_ids"][text["special"]] == len(CLASSES)).all()
        if target == -100:
            assert (text["label_ids"][~text["special"]] == number).all()
        else:
            assert target == number
            assert (text["label_ids"] == len(CLASSES)).all()
            late += 1
    assert 5 < late < 20
    assert sum("label" not in sequence.labels for sequence in sequences) == 1
    assert all(s.targets["it"]["labels"][0] == -100 for s in fused(late=0.0)[1])
    again = tagged_sequences(tagged_samples(30, 12))
    part = travelled(fused()[0])
    part.corrupt(again[::-1], draws())
    assert plain(again) == plain(sequences)


def test_the_loss_is_that_of_a_loop() -> None:
    part, sequences = fused()
    batch, network = collate(sequences), feeling_network()
    head = part.head(network)
    states = torch.randn(int(batch.streams["text"].offsets[-1]), 16, requires_grad=True)
    out = head(HeadInputs.of(network, batch, batch.targets["it"], {"text": states}))
    table, of = network.embeddings["text"].extra["label_ids"].weight, head.scores
    total, at = torch.tensor(0.0), 0
    for sequence in sequences:
        (label,) = sequence.targets["it"]["labels"].tolist()
        if label >= 0:
            x = torch.nn.functional.gelu(of.dense.weight @ states[at] + of.dense.bias)
            x = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() * of.norm.weight + of.norm.bias
            scores = table @ x + of.bias
            total = total - torch.log(torch.exp(scores[label]) / torch.exp(scores).sum())
        at += sequence.length("text")
    torch.testing.assert_close(out.loss, total, rtol=1e-5, atol=1e-5)
    assert part.count(batch) == sum(int(s.targets["it"]["labels"][0] >= 0) for s in sequences)


def test_wrong_labels_and_networks_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="classes has 1 entries"):
        LabelFusion(["good"])
    part = LabelFusion(["bad", "good"])
    part.name = "it"
    with pytest.raises(WorkbenchError, match=r"unknown class 'fair'.* It belongs to another set of labels"):
        part.corrupt(tagged_sequences(tagged_samples(4)), draws())
    with pytest.raises(WorkbenchError, match=r"predicts 'label_ids'.*it has none"):
        part.head(tiny_network())
    assert np.isclose(part.count(collate(tagged_sequences(tagged_samples(1)))), 0)
