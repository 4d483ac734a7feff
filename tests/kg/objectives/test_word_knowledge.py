"""Part of speech and polarity of hidden words: what is hidden with them, the loss by a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kg.objectives.word_knowledge import WordKnowledge
from tests.contracts.material import draws, tiny_network, tokenizer
from tests.kg.sentiment_files import feeling_network, tagged_samples, tagged_sequences
from workbench.core.errors import WorkbenchError
from workbench.objectives.mlm import Mlm
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.replacement import ReplacementOptions
from workbench.sequences.sequence import Sequence

EXCUSED = "its labels are those of the words that another objective has hidden"


def hidden() -> tuple[WordKnowledge, list[Sequence], list[Sequence]]:
    """The objective, sequences that mlm and it have changed, and as they were."""
    mlm = Mlm(
        tokenizer(), rate=0.5, masking={"masking": "kg.sentiment_words"}, replace=ReplacementOptions(0.6, 0.1, "word")
    )
    part = WordKnowledge()
    mlm.name, part.name = "mlm", "it"
    sequences = tagged_sequences(tagged_samples())
    before = [sequence.copy() for sequence in sequences]
    mlm.corrupt(sequences, draws())
    part.corrupt(sequences, draws())
    return part, sequences, before


def test_what_is_known_of_hidden_words_is_hidden_and_labelled() -> None:
    _, sequences, originals = hidden()
    labelled = shown = 0
    for sequence, original in zip(sequences, originals, strict=True):
        new, old = sequence.streams["text"], original.streams["text"]
        masked = np.asarray(sequence.targets["mlm"]["rows"]).tolist()
        wanted = []
        for row in range(sequence.length("text")):
            known = (old["part_of_speech_ids"][row], old["polarity_ids"][row])
            now = (new["part_of_speech_ids"][row], new["polarity_ids"][row])
            replaced = row in masked and new["input_ids"][row] != old["input_ids"][row]
            assert now == ((4, 2) if replaced else known)
            shown += row in masked and not replaced and known != (4, 2)
            if row in masked and known != (4, 2):
                wanted.append((row, *known))
        target = sequence.targets["it"]
        columns = (target["rows"].index, target["labels"], target["polarities"])
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == wanted
        labelled += len(wanted)
    assert labelled > 20
    assert shown > 5


def test_the_loss_is_that_of_a_loop_with_finite_gradients() -> None:
    part, sequences, _ = hidden()
    batch, network = collate(sequences), feeling_network()
    head = part.head(network)
    states = torch.randn(int(batch.streams["text"].offsets[-1]), 16, requires_grad=True)
    targets = batch.targets["it"]
    out = head(HeadInputs.of(network, batch, targets, {"text": states}))
    tables = network.embeddings["text"].extra
    total = torch.tensor(0.0)
    for row, pos, polarity in zip(*(targets[name].tolist() for name in ("rows", "labels", "polarities")), strict=True):
        for of, field, label in ((head.parts, "part_of_speech_ids", pos), (head.polarities, "polarity_ids", polarity)):
            x = torch.nn.functional.gelu(of.dense.weight @ states[row] + of.dense.bias)
            x = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() * of.norm.weight + of.norm.bias
            scores = [(table * x).sum() + bias for table, bias in zip(tables[field].weight, of.bias, strict=True)]
            total = total - torch.log(torch.exp(scores[label]) / sum(torch.exp(score) for score in scores))
    torch.testing.assert_close(out.loss, total, rtol=1e-5, atol=1e-5)
    assert part.count(batch) == len(targets["labels"]) > 0
    out.loss.backward()
    assert states.grad is not None
    assert torch.isfinite(states.grad).all()
    assert tables["polarity_ids"].weight.grad is not None


def test_a_network_without_the_tables_is_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"predicts 'part_of_speech_ids'.*it has none"):
        WordKnowledge().head(tiny_network())
