"""Word-region alignment: the released transport, on rows without padding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from vision.objectives.wra import Wra, WraHead, pairwise_cost, transport_plan
from vision.sequences.matching import MATCHED
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sequence

EXCUSED = "its loss reads every word and every region, and not a row for each label"
CLOSE = {"atol": 1e-5, "rtol": 0}


def wra(**options: Any) -> Wra:
    objective = Wra(**options)
    objective.name = "wra"
    return objective


def marked(sequences: list[Sequence]) -> list[Sequence]:
    """Every other pair is an exchanged one."""
    for i, sequence in enumerate(sequences):
        sequence.labels[MATCHED] = (i + 1) % 2
    return sequences


def golden_cases(shared: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((shared / "golden/uniter_ot/config.json").read_text())["cases"]
    assert cases
    return cases


def test_plans_and_distances_are_the_released_ones(shared: Path) -> None:
    inputs = load_file(shared / "golden/uniter_ot/inputs.safetensors")
    outputs = load_file(shared / "golden/uniter_ot/outputs.safetensors")
    for case in golden_cases(shared):
        name = case["case"]
        words, regions = inputs[f"{name}.txt_emb"], inputs[f"{name}.img_emb"]
        cost, there = pairwise_cost(words, ~inputs[f"{name}.txt_pad"], regions, ~inputs[f"{name}.img_pad"])
        torch.testing.assert_close(cost, outputs[f"{name}.cost"], **CLOSE)
        every = [torch.ones(rows.shape[:2], dtype=torch.bool) for rows in (words, regions)]
        raw, _ = pairwise_cost(words, every[0], regions, every[1])
        torch.testing.assert_close(raw, outputs[f"{name}.cost_raw"], **CLOSE)
        plan = transport_plan(cost, there, case["beta"], case["iteration"])
        torch.testing.assert_close(plan.transpose(1, 2), outputs[f"{name}.T"], **CLOSE)
        torch.testing.assert_close((plan * cost).sum((1, 2)), outputs[f"{name}.distance"], **CLOSE)
        torch.testing.assert_close(
            plan.sum(2)[there.any(2)],
            (1 / there.any(2).sum(1, keepdim=True)).expand(there.shape[:2])[there.any(2)],
            **CLOSE,
        )


def of_case(inputs: dict[str, Tensor], name: str, jagged: Callable[..., Batch]) -> tuple[Batch, dict[str, Tensor]]:
    """The jagged rows of a golden case, as states and as a batch that has their layout."""
    masks = {"text": ~inputs[f"{name}.txt_pad"], "image": ~inputs[f"{name}.img_pad"]}
    rows = {"text": inputs[f"{name}.txt_emb"], "image": inputs[f"{name}.img_emb"]}
    batch = jagged(**{s: (mask, {"place": torch.zeros(mask.shape)}) for s, mask in masks.items()})
    return batch, {s: rows[s][mask].requires_grad_() for s, mask in masks.items()}


def targets_of(batch: Batch, labels: Tensor) -> dict[str, Tensor]:
    counts = {s: torch.tensor(batch.streams[s].lengths) for s in ("text", "image")}
    every = {s: torch.arange(batch.streams[s].rows) for s in counts}
    return {
        "labels": labels,
        "words": every["text"],
        "regions": every["image"],
        "num_words": counts["text"],
        "num_regions": counts["image"],
    }


def test_the_loss_and_its_gradient_on_jagged_rows(shared: Path, jagged: Callable[..., Batch]) -> None:
    """Case a has labels; the gradient is that of the costs with the released plan held fixed."""
    inputs = load_file(shared / "golden/uniter_ot/inputs.safetensors")
    outputs = load_file(shared / "golden/uniter_ot/outputs.safetensors")
    case = golden_cases(shared)[0]
    batch, states = of_case(inputs, case["case"], jagged)
    labels = inputs["a.itm_targets"]
    head = WraHead(case["beta"], case["iteration"])
    found = head(HeadInputs.of(None, batch, targets_of(batch, labels), states))
    torch.testing.assert_close(found.loss / len(labels), outputs["a.ot_loss"], **CLOSE)
    found.loss.backward()
    words, regions = inputs["a.txt_emb"].requires_grad_(), inputs["a.img_emb"].requires_grad_()
    cost = 1 - torch.cosine_similarity(words[:, :, None], regions[:, None], dim=-1)
    signs = torch.where(labels == 1, 1.0, -1.0)
    ((outputs["a.T"].transpose(1, 2) * cost).sum((1, 2)) * signs).sum().backward()
    torch.testing.assert_close(states["text"].grad, words.grad[~inputs["a.txt_pad"]], **CLOSE)
    torch.testing.assert_close(states["image"].grad, regions.grad[~inputs["a.img_pad"]], **CLOSE)
    of_matched = outputs["a.distance"][labels == 1].sum()
    assert float(found.metrics["matched"][0]) == pytest.approx(float(of_matched), abs=1e-5)
    assert int(found.metrics["exchanged"][1]) == int((labels == 0).sum())


def test_a_pair_has_the_same_distance_in_any_company(
    sequences: list[Sequence], corrupted: Callable, tiny: Callable[..., Network], loss: Callable
) -> None:
    network = tiny().eval()
    mine, batch = corrupted(wra(), marked(sequences))
    together = loss(wra(), network, batch)
    assert wra().count(Batch({})) == 0
    one = wra()
    assert one.count(batch) == len(sequences)
    alone = [loss(one, network, corrupted(one, [sequence])[1]).loss for sequence in mine]
    torch.testing.assert_close(together.loss, torch.stack(alone).sum(), **CLOSE)


def test_exchanged_pairs_are_left_out_where_they_shall_not_count(
    sequences: list[Sequence], corrupted: Callable
) -> None:
    mine, batch = corrupted(wra(exchanged=False), marked(sequences))
    assert [s.labels[MATCHED] == 1 for s in mine] == ["wra" in s.targets for s in mine]
    assert (batch.targets["wra"]["labels"] == 1).all()
    assert wra().count(batch) == sum(s.labels[MATCHED] for s in mine)


def test_words_alone_take_part_where_that_is_asked_for(sequences: list[Sequence], corrupted: Callable) -> None:
    for sequence in sequences:
        sequence.streams["image"]["special"] = np.arange(sequence.length("image")) == 0
    mine, _ = corrupted(wra(special=False), sequences)
    for sequence in mine:
        found = sequence.targets["wra"]
        assert not sequence.streams["text"]["special"][found["words"].index].any()
        assert found["num_words"][0] == (~sequence.streams["text"]["special"]).sum()
        assert found["regions"].index.tolist() == list(range(1, sequence.length("image")))


def test_pairs_without_an_image_do_not_count(
    sequences: list[Sequence], corrupted: Callable, tiny: Callable[..., Network], loss: Callable
) -> None:
    for sequence in sequences[1:]:
        del sequence.streams["image"]
    one = wra()
    _, batch = corrupted(one, sequences)
    assert one.count(batch) == 1
    assert torch.isfinite(loss(one, tiny(), batch).loss)
    _, none = corrupted(one, sequences[1:])
    empty = loss(one, tiny(), none).loss
    assert float(empty.detach()) == 0
    empty.backward()


def test_streams_of_two_widths_are_refused(tiny: Callable[..., Network]) -> None:
    network = tiny()
    network.sizes = {**network.sizes, "image": 8}
    with pytest.raises(WorkbenchError, match=r"'wra': words and regions need states of the same width.*'image': 8"):
        wra().head(network)


def test_it_pulls_pairs_together_and_pushes_exchanged_ones_apart(
    sequences: list[Sequence], corrupted: Callable, tiny: Callable[..., Network], loss: Callable
) -> None:
    network, one = tiny(), wra()
    _, batch = corrupted(one, marked(sequences))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    seen = []
    for _ in range(20):
        found = loss(one, network, batch)
        optimizer.zero_grad()
        found.loss.backward()
        optimizer.step()
        seen.append({name: float(total) / float(count) for name, (total, count) in found.metrics.items()})
    assert seen[-1]["matched"] < seen[0]["matched"]
    assert seen[-1]["exchanged"] > seen[0]["exchanged"]
