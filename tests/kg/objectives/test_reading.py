"""Markers before mentions, and entities that stand for them: which rows they are, and what is read of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kg.objectives._reading import entity_rows, marker_rows, read
from kg.objectives.relations import Relations
from kg.sequences.builders.marked_pair import MarkedPairBuilder
from kg.sequences.entity_vocabulary import save_entity_vocabulary
from kg.sequences.transforms.entity_tokens import EntityTokensTransform
from tests.contracts.material import draws, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.builders.mention import MentionBuilder
from workbench.sequences.rows import insert
from workbench.sequences.sequence import Sequence

TEXT = "the old river flows past Hamburg and Dresden"
MARKS = [[25, 32, "tail"], [37, 44, "head"]]
BOTH = ("head", "tail")


def pair(max_length: int = 40, text: str = TEXT, marks: Any = MARKS) -> Sequence:
    builder = MarkedPairBuilder(tokenizer(), max_length, head="l", tail="o")
    return builder([{"key": "r", "draw": (0,), "text": text, "marks": marks, "labels": {"relation": "a"}}], draws())[0]


def spelt(sequence: Sequence, rows: np.ndarray) -> list[str]:
    return [tokenizer().decode([int(i)]) for i in sequence.streams["text"]["input_ids"][rows]]


def test_the_marker_stands_before_its_mention() -> None:
    made = pair()
    assert spelt(made, marker_rows(made, BOTH, "text").index) == ["l", "o"]
    mention = {"key": "m", "draw": (0,), "text": TEXT, "mention": [25, 32]}
    one = MentionBuilder(tokenizer(), 40, marker="o")([mention], draws())[0]
    (row,) = marker_rows(one, ("mention",), "text").index
    assert spelt(one, np.array([row])) == ["o"]
    assert one.streams["text"]["char_start"][row + 1] == 25


def test_what_is_injected_in_between_is_no_marker() -> None:
    made = pair()
    before = marker_rows(made, BOTH, "text").index
    starts = {mark.name: mark.start for mark in made.marks}
    insert(made, np.array([starts["head"], starts["tail"]]))
    after = marker_rows(made, BOTH, "text").index
    assert after.tolist() == [before[0] + 1, before[1]]  # the tail stands first


def test_entities_are_the_tokens_that_stand_for_the_mentions(tmp_path: Path) -> None:
    """Of one that was cut away the first that is there; where none is, the step is missing."""
    file = tmp_path / "entities.safetensors"
    save_entity_vocabulary(file, Counter("a"), 1, {})
    step = EntityTokensTransform(str(file), marks=True)
    text = f"Hamburg {'and river ' * 20}Dresden"
    cut = pair(12, text, [[0, 7, "head"], [len(text) - 7, len(text), "tail"]])
    whole, cut = step([pair(), cut], draws())
    assert entity_rows(whole, BOTH, "entity").index.tolist() == [1, 0]  # the tail stands first
    assert entity_rows(cut, BOTH, "entity").index.tolist() == [0, 0]
    with pytest.raises(WorkbenchError, match=r"no entity token for 'head' or 'tail'.*kg\.entity_tokens"):
        entity_rows(pair(), BOTH, "entity")


def test_a_mention_that_was_cut_away_is_read_at_the_first_row() -> None:
    text = f"Hamburg {'and river ' * 20}Dresden"
    made = pair(12, text, [[0, 7, "head"], [len(text) - 7, len(text), "tail"]])
    assert [mark.name for mark in made.marks] == ["head"]
    assert marker_rows(made, BOTH, "text").index.tolist() == [1, 0]


@pytest.mark.parametrize("reading", ["markers", "first"])
def test_the_head_reads_these_rows(reading: Any) -> None:
    """z = W [h_head ; h_tail] + b, against a loop over the sequences."""
    objective = Relations(["a", "b"], read=reading, dropout=0.0)
    objective.name = "relations"
    made = [pair(), pair(text=f"people {TEXT}", marks=[[s + 7, e + 7, name] for s, e, name in MARKS])]
    objective.corrupt(made, draws())
    batch = collate(made)
    states = torch.randn(batch.streams["text"].rows, 6, generator=torch.Generator().manual_seed(0))
    first = batch.streams["text"].offsets[:-1]
    network: Any = SimpleNamespace(
        sizes={"text": 6}, poolers={}, summary_rows=lambda given, batch, stream: given[stream][first]
    )
    head: Any = objective.head(network)
    seen = HeadInputs.of(network, batch, batch.targets["relations"], {"text": states})
    wanted = []
    for sequence, offset in zip(made, first.tolist(), strict=True):
        rows = marker_rows(sequence, BOTH, "text").index if reading == "markers" else [0]
        joined = torch.cat([states[offset + int(row)] for row in rows])
        wanted.append(head.classifier.weight @ joined + head.classifier.bias)
    torch.testing.assert_close(head.logits(seen), torch.stack(wanted))
    assert read(reading, seen, "text").shape == (2, 12 if reading == "markers" else 6)
