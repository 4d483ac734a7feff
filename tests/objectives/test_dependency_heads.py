"""Which words get which heads, and the loss, against a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import chain, draws, tokenizer
from tests.objectives.test_token_classification import check_unchanged
from workbench.core.errors import WorkbenchError
from workbench.objectives.dependency_heads import DependencyHeads
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.builders.tagged_text import TaggedTextBuilder
from workbench.sequences.sequence import Sequence

CASE = ObjectiveCase(
    {"max_length": 512, "dropout": 0.0},
    {"seed": "nothing is drawn"},
    sequence={"builder": "tagged_text"},
    small=1,
    recover=lambda before, after, shared: check_unchanged(before, after),
)
TEXT = "people look for boats and harbours"
HEADS = [1, -1, 3, 1, 5, 3]
"""Of each word the number of its head; -1 is the root."""


def dependencies(text: str, heads: list[int]) -> list[list[Any]]:
    places = [each[:2] for each in chain(text)]
    far = [places[h][0] - start if h >= 0 else 0 for (start, _), h in zip(places, heads, strict=True)]
    return [[*place, distance, "dep"] for place, distance in zip(places, far, strict=True)]


def made(found: list[list[Any]], text: str = TEXT, size: int = 40, **options: Any) -> list[Sequence]:
    objective = DependencyHeads(size, dropout=0.0)
    objective.name = "heads"
    sample = {"key": "a", "draw": (0,), "text": text, "dependencies": found}
    sequences = TaggedTextBuilder(tokenizer(), size, **options)([sample], draws())
    objective.corrupt(sequences, draws())
    return sequences


def first_rows(sequence: Sequence, text: str) -> list[int]:
    starts = sequence.streams["text"]["char_start"].tolist()
    return [starts.index(each[0]) for each in chain(text)]


def test_the_label_is_the_row_of_the_head() -> None:
    (sequence,) = made(dependencies(TEXT, HEADS))
    rows = first_rows(sequence, TEXT)
    assert rows[-1] + 1 < sequence.length("text") - 1  # the last word has several tokens
    targets = sequence.targets["heads"]
    assert targets["rows"].index.tolist() == rows
    assert targets["labels"].tolist() == [rows[head] if head >= 0 else 0 for head in HEADS]
    assert sequence.streams["text"]["taken"][rows].all()


def test_a_long_text_is_read_in_windows_and_each_word_once() -> None:
    text = " ".join([TEXT] * 4)
    sequences = made(chain(text), text, 16)
    assert len(sequences) > 2
    found = []
    for sequence in sequences:
        fields, targets = sequence.streams["text"], sequence.targets["heads"]
        for row, head in zip(targets["rows"].index, targets["labels"], strict=True):
            found.append((int(fields["char_start"][row]), int(fields["char_start"][head]) if head else None))
    heads = {start: start + far if far else None for start, _, far, _ in chain(text)}
    assert len(found) == len(dict(found)) > len(heads) / 2
    assert all(heads[start] == head for start, head in found)


def test_words_inside_a_token_and_heads_outside_the_text_are_not_counted() -> None:
    start, end = TEXT.index("boats"), TEXT.index("boats") + 5
    places = [[start, end, 0, "root"], [start, end, 900, "dep"], [end, end + 1, 0, "root"]]
    for place, counted in zip(places, (1, 0, 0), strict=True):
        (sequence,) = made([place])
        assert len(sequence.targets["heads"]["labels"]) == counted


def test_the_loss_is_that_of_a_loop() -> None:
    objective = DependencyHeads(40, dropout=0.0)
    objective.name = "heads"
    sequences = made(dependencies(TEXT, HEADS)) + made(chain("the old river flows"), "the old river flows")
    batch = collate(sequences)
    states = torch.randn(batch.streams["text"].rows, 6, generator=torch.Generator().manual_seed(0))
    network: Any = type("Sized", (), {"sizes": {"text": 6}})()
    head: Any = objective.head(network)
    seen = HeadInputs.of(network, batch, batch.targets["heads"], {"text": states})
    out = head(seen)
    wanted = 0.0
    for sequence, offset in zip(sequences, batch.streams["text"].offsets.tolist(), strict=False):
        targets = sequence.targets["heads"]
        for row, label in zip(targets["rows"].index.tolist(), targets["labels"].tolist(), strict=True):
            scores = head.classifier.weight @ states[offset + row] + head.classifier.bias
            wanted -= torch.log(torch.softmax(scores, 0)[label]).item()
    assert out.loss.item() == pytest.approx(wanted, rel=1e-5)
    assert objective.count(batch) == len(HEADS) + 4
    assert objective.measure(out.outputs)["uas"] == float(
        (out.outputs["predicted"] == out.outputs["gold"]).double().mean()
    )


def test_what_cannot_be_read_is_refused() -> None:
    objective = DependencyHeads(40)
    sample = {"key": "a", "draw": (0,), "text": TEXT, "dependencies": chain(TEXT)}
    with pytest.raises(WorkbenchError, match=r"has no record of the words.* use the builder `tagged_text`"):
        objective.corrupt(DocumentBuilder(tokenizer(), 40)([sample], draws()), draws())
    (sequence,) = made(chain(TEXT))
    sequence.streams["text"]["special"] = np.zeros(sequence.length("text"), bool)
    with pytest.raises(WorkbenchError, match=r"the root of a sentence needs one of its own; let the builder begin"):
        objective.corrupt([sequence], draws())
