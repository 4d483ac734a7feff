"""Which choice is right, and what the loss is of questions with unlike numbers of choices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives.multiple_choice import MultipleChoice, MultipleChoiceHead
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

EXCUSED = "its sequences are the choices of questions, which the samples of the contracts are not"
DRAWS = Draws(0, "t", "choose", number=(0,))


def questions(*reported: tuple[int, int | None]) -> list[Sequence]:
    """Sequences of questions with so many choices, of which that one is right."""
    made = []
    for number, (count, answer) in enumerate(reported):
        for choice in range(count):
            meta = {"choice": choice} | ({} if answer is None else {"answer": answer})
            made.append(Sequence({"text": text_fields(np.arange(3))}, (number, choice, 0), group=(number,), meta=meta))
    return made


def choose() -> MultipleChoice:
    objective = MultipleChoice(dropout=0.0)
    objective.name = "choose"
    return objective


def test_the_loss_is_the_plain_loop_over_questions() -> None:
    objective, made = choose(), questions((2, 1), (4, None), (3, 0))
    objective.corrupt(made, DRAWS)
    batch = collate(made)
    assert objective.count(batch) == 2
    pooled = torch.randn(9, 4)
    network: Any = SimpleNamespace(pool=lambda states, batch, stream: pooled)
    head = MultipleChoiceHead(4, "text", 0.0)
    output = head(HeadInputs.of(network, batch, batch.targets["choose"], {"text": pooled}))
    scores = head.score(pooled).squeeze(1)
    wanted = -scores[:2].log_softmax(0)[1] - scores[6:].log_softmax(0)[0]
    torch.testing.assert_close(output.loss, wanted)
    assert output.outputs["choices"].tolist() == [2, 3]
    assert output.outputs["labels"].tolist() == [1, 0]
    torch.testing.assert_close(output.outputs["scores"], torch.cat([scores[:2], scores[6:]]))


def test_accuracy_and_ranks() -> None:
    scores = torch.tensor([0.1, 0.9, 3.0, 2.0, 1.0, 5.0, 5.0])
    made = {"scores": scores, "choices": torch.tensor([2, 3, 2]), "labels": torch.tensor([1, 1, 0])}
    found = choose().measure(made)
    assert found["accuracy"] == pytest.approx(1 / 3)  # of two equal ones none is the best
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 1.5) / 3)


def test_choices_that_are_not_all_there_are_refused() -> None:
    whole = questions((2, 1), (3, 0))
    for broken in (whole[:1] + whole[2:4] + whole[1:2], whole[1:], [Sequence({}, (0,))]):
        with pytest.raises(WorkbenchError, match="use the builder `choices`"):
            choose().corrupt(broken, DRAWS)
    choose().corrupt([], DRAWS)
