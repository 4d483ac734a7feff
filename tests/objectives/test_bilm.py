"""bilm: every token from both sides, one head, and no look at the other side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.objectives._token_head import HeadOptions
from workbench.objectives.bilm import Bilm
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields


def labels_are_the_tokens(before: Any, after: Any, shared: Any) -> None:
    target, ids = after.targets["it"], before.fields("text")["input_ids"]
    assert np.array_equal(ids[target["rows"].index], target["labels"])
    assert np.array_equal(np.unique(target["rows"].index), np.flatnonzero(after.fields("text")["taken"]))


CASE = ObjectiveCase(
    {},
    {"seed": "nothing is drawn", "special rows": "the ends are predicted too", "rows": "a row is read twice"},
    sequence={"builder": "document"},
    labels=2,
    small=8,
    recover=labels_are_the_tokens,
    whole={},
)


def network(hidden_size: int = 12) -> Network:
    torch.manual_seed(0)
    text = {"embedding": "characters", "hidden_size": hidden_size, "filters": [6, 5], "longest": 8}
    layers = [{"layer": "two_way_lstm", "stream": "text", "cells": 9}] * 2
    given = {"tokenizer": tokenizer(), "vocab_size": tokenizer().vocab_size}
    return Network(NetworkSpec({"text": text}, layers, init_range=0.5), **given)


def read(ids: list[int], made: Network) -> tuple[Any, Any]:
    sequence = Sequence({"text": text_fields(torch.tensor(ids).numpy())}, (0,))
    objective = Bilm(head=HeadOptions(tied=False, bias=True))
    objective.name = "it"
    objective.corrupt([sequence], Draws(0, "t", "it", number=(0,)))
    torch.manual_seed(1)
    return objective.head(made), collate([sequence])


def test_the_loss_is_that_of_both_directions() -> None:
    made, ids = network(), [20, 21, 22, 23]
    head, batch = read(ids, made)
    states = made(batch)["text"]
    scores = [head.logits(made, half) for half in (states[:, :6], states[:, 6:])]
    wanted = sum(F.cross_entropy(scores[0][i - 1], torch.tensor(ids[i])) for i in (1, 2, 3))
    wanted += sum(F.cross_entropy(scores[1][i + 1], torch.tensor(ids[i])) for i in (0, 1, 2))
    found = head(HeadInputs.of(made, batch, batch.targets["it"], {"text": states}))
    torch.testing.assert_close(found.loss, wanted)
    assert found.metrics["accuracy"][1] == 6


def test_a_half_does_not_know_the_other_side() -> None:
    made = network()
    before, after = (made(read(ids, made)[1])["text"] for ids in ([20, 21, 22, 23], [20, 21, 25, 23]))
    same = torch.isclose(before, after).reshape(4, 2, 6).all(-1)
    assert same.tolist() == [[True, False], [True, False], [False, False], [False, True]]


def test_an_odd_width_is_refused() -> None:
    made = network()
    made.sizes["text"] = 7
    with pytest.raises(WorkbenchError, match="the width of text is 7; allowed: even ones"):
        Bilm().head(made)
