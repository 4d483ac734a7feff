"""The typing objective: against the released code's numbers, what it counts, what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from kg.objectives.types import Types, TypesHead
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields


def sequences(labels: list[list[int]]) -> list[Sequence]:
    made = []
    for i, row in enumerate(labels):
        meta = {"labels": np.array(row, np.float32)}
        made.append(Sequence({"text": text_fields(np.arange(3 + i))}, (i,), f"s{i}", meta=meta))
    return made


def prepared(labels: list[list[int]]) -> tuple[Types, list[Sequence]]:
    objective, made = Types(len(labels[0])), sequences(labels)
    objective.name = "types"
    objective.corrupt(made, Draws(0, number=(0,)))
    return objective, made


def test_equals_the_release(shared: Path) -> None:
    body, tuned = shared / "golden/ernie_thu/pretraining", shared / "golden/ernie_thu/finetuning"
    pooled = load_file(body / "outputs.safetensors")["pooled_output"]
    labels = load_file(tuned / "inputs.safetensors")["typing_labels"]
    weights, outputs = load_file(tuned / "weights.safetensors"), load_file(tuned / "outputs.safetensors")
    head = TypesHead(pooled.shape[1], labels.shape[1]).eval()
    head.load_state_dict({"typing.weight": weights["typing.weight"]})
    network = SimpleNamespace(pool=lambda states, batch, stream: pooled)
    objective, made = prepared(labels.int().tolist())
    batch = collate(made)
    out = head(HeadInputs.of(network, batch, batch.targets["types"], {}))
    seen = HeadInputs.of(network, batch, batch.targets["types"], {})
    torch.testing.assert_close(head.logits(seen), outputs["typing_logits"], atol=1e-5, rtol=0)
    torch.testing.assert_close(out.loss / objective.count(batch), outputs["typing_loss"], atol=1e-5, rtol=0)


def test_counts_every_cell() -> None:
    objective, made = prepared([[1, 0, 1], [0, 0, 0]])
    batch = collate(made)
    assert objective.count(batch) == 6
    assert batch.targets["types"]["labels"].tolist() == [[1, 0, 1], [0, 0, 0]]


def test_metrics_are_micro_parts() -> None:
    made = prepared([[1, 0, 1], [0, 1, 0]])[1]
    batch = collate(made)
    head = TypesHead(3, 3, "first").eval()
    head.load_state_dict({"typing.weight": torch.eye(3)})
    states = torch.zeros(batch.streams["text"].rows, 3)
    states[0] = torch.tensor([2.0, 1.0, -1.0])  # [CLS] of the first
    first = batch.streams["text"].offsets[:-1]
    network = SimpleNamespace(summary_rows=lambda states, batch, stream: states[stream][first])
    out = head(HeadInputs.of(network, batch, batch.targets["types"], {"text": states}))
    assert [int(n) for n in out.metrics["precision"]] == [1, 2]
    assert [int(n) for n in out.metrics["recall"]] == [1, 3]


def test_refuses_other_inventories() -> None:
    made = sequences([[1, 0]])
    with pytest.raises(WorkbenchError, match="labels of 2 types"):
        Types(3).corrupt(made, Draws(0, number=(0,)))
    made[0].meta.clear()
    with pytest.raises(WorkbenchError, match="labels of none"):
        Types(3).corrupt(made, Draws(0, number=(0,)))
    with pytest.raises(WorkbenchError, match="num_types = 0; allowed: a whole number from 1"):
        build("objective", {"objective": "kg.types", "num_types": 0})
