"""The answer's tokens, the window of the text that has them, and the stretch that is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives.span_extraction import SpanExtraction, SpanExtractionHead, answer_target
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.builders.passage import PassageBuilder
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "its sequences are questions on a text with answers, which the samples of the contracts are not"
DRAWS = Draws(0, "t", "extract", number=(0,))
TEXT = "the old river flows past harbours and bridges while people in small boats look for songs"


def asked(tokenizer: Tokenizer, size: int = 20, **fields: Any) -> list[Sequence]:
    sample = {"key": "a", "draw": (0,), "text": TEXT, "second": "what flows?", **fields}
    made = PassageBuilder(tokenizer, size, stride=5)([sample], DRAWS)
    objective = SpanExtraction()
    objective.name = "extract"
    objective.corrupt(made, DRAWS)
    return made


def test_the_label_is_the_answer_where_a_part_holds_all_of_it(tokenizer: Tokenizer) -> None:
    answer = [TEXT.index("harbours"), TEXT.index(" while")]
    found = []
    for sequence in asked(tokenizer, 44, answers=[TEXT[slice(*answer)]], answer_spans=[answer]):
        targets = sequence.targets["extract"]
        first, last = targets["labels"][0].tolist()
        if first or last:
            found.append(TEXT[targets["places"][first, 0] : targets["places"][last, 1]])
        else:
            places = targets["places"][1:]
            assert not (places[:, 0].min() <= answer[0] and answer[1] <= places[:, 1].max())
    assert found
    assert set(found) == {"harbours and bridges"}


def test_no_answer_is_the_first_token_and_the_unknown_counts_nothing(tokenizer: Tokenizer) -> None:
    assert all((s.targets["extract"]["labels"] == 0).all() for s in asked(tokenizer, answers=[]))
    for fields in ({}, {"answers": ["river"]}):
        made = asked(tokenizer, **fields)
        assert all((s.targets["extract"]["labels"] == -100).all() for s in made)
        assert not any(len(s.targets["extract"]["answer_count"]) for s in made)


def test_characters_come_with_the_first_part_alone(tokenizer: Tokenizer) -> None:
    span = [[8, 13]]
    made = [s.targets["extract"] for s in asked(tokenizer, answers=["river", "the river"], answer_spans=span)]
    assert [len(t["text"]) for t in made] == [len(TEXT)] + [0] * (len(made) - 1)
    assert np.concatenate([t["answer_count"] for t in made]).tolist() == [2]
    assert made[0]["answer_length"].tolist() == [5, 9]


def answer(windows: list[tuple[list, list]], **options: Any) -> tuple[int, int]:
    head = SpanExtractionHead(4, SpanExtraction(**options))
    return head._answer([(torch.tensor(s), torch.tensor(p)) for s, p in windows])[:2]


def test_the_best_stretch_of_all_parts_answers() -> None:
    places = [[-1, -1], [0, 3], [4, 7], [8, 9]]
    first = ([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 9.0]], places)
    assert answer([first]) == (0, 9)
    assert answer([first], longest=2) == (4, 9)
    assert answer([first], longest=1) == (8, 9)
    backwards = ([[0.0, 0.0], [0.0, 9.0], [9.0, 0.0], [0.0, 0.0]], places)
    assert answer([backwards]) == (0, 3)  # 9 before 9 would end before it begins
    better = ([[0.0, 0.0], [20.0, 1.0]], [[-1, -1], [30, 35]])
    assert answer([first, better]) == (30, 35)


def test_none_is_answered_only_where_that_may_be_right() -> None:
    silent = ([[9.0, 9.0], [1.0, 1.0]], [[-1, -1], [0, 3]])
    reported = ([[0.0, 0.0], [1.0, 1.0]], [[-1, -1], [0, 3]])
    assert answer([silent]) == (0, 3)
    assert answer([silent], no_answer=True) == (0, 0)
    assert answer([silent, reported], no_answer=True) == (0, 3)  # the least score of [CLS] among the windows
    nothing = ([[0.0, 0.0]], [[-1, -1]])
    assert answer([nothing]) == (0, 0)


def test_what_is_made_reads_back() -> None:
    points = torch.tensor([ord(c) for c in "Zürich😀"])
    made = {"predicted": points, "predicted_length": torch.tensor([6, 0, 1])}
    made |= {"answers": points, "answer_length": torch.tensor([2, 5]), "answer_count": torch.tensor([1, 0, 1])}
    assert answer_target(made) == (["Zürich", "", "😀"], [["Zü"], [], ["rich😀"]])


def test_other_sequences_are_refused(tokenizer: Tokenizer) -> None:
    made = asked(tokenizer)
    made[0].meta = {}
    with pytest.raises(WorkbenchError, match="use the builder `passage`"):
        SpanExtraction().corrupt(made, DRAWS)


def test_the_loss_is_the_plain_loop_and_gradients_are_of_labelled_parts(tokenizer: Tokenizer) -> None:
    made = asked(tokenizer, answers=["river"], answer_spans=[[8, 13]]) + asked(tokenizer)
    batch = collate(made)
    objective = SpanExtraction(dropout=0.0)
    objective.name = "extract"
    head = SpanExtractionHead(4, objective).train()
    states = torch.randn(len(batch.streams["text"].fields["input_ids"]), 4, requires_grad=True)
    targets = batch.targets["extract"]
    network: Any = None
    output = head(HeadInputs.of(network, batch, targets, {"text": states}))
    wanted, row = 0.0, 0
    for count, labels in zip(targets["candidates"].tolist(), targets["labels"].tolist(), strict=True):
        scores = head.ends(states[targets["rows"][row : row + count]])
        for end, label in enumerate(labels):
            wanted -= 0.0 if label < 0 else float(scores[:, end].log_softmax(0)[label].detach())
        row += count
    assert float(output.loss.detach()) == pytest.approx(wanted, rel=1e-5)
    assert objective.count(batch) == 2 * sum(s.targets["extract"]["labels"][0, 0] >= 0 for s in made)
    assert output.outputs.keys() == {"logits"}
    (gradient,) = torch.autograd.grad(output.loss, states)
    read = set(targets["rows"][: sum(targets["candidates"][: len(made) // 2].tolist())].tolist())
    assert set(gradient.abs().sum(1).nonzero().flatten().tolist()) == read
