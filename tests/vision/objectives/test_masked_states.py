"""The objective `vision.masked_states`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from vision.images.boxes import grid_boxes
from vision.objectives.masked_states import MaskedStates
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence

EXCUSED = "its head reads another network and another view"
QUIET: dict[str, Any] = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    image = {"embedding": "vision.patches", "hidden_size": 8, "grid": 2, "patch": 2}
    return Network(NetworkSpec({"image": image}, [{"layer": "self", "stream": "image", **QUIET}], init_range=0.5))


def sequences() -> list[Sequence]:
    rng = np.random.default_rng(0)
    found = [{"patches": rng.integers(0, 256, (4, 12)).astype(np.uint8), "boxes": grid_boxes(2)} for _ in range(3)]
    return [Sequence({"image": fields}, (number,)) for number, fields in enumerate(found)]


def inputs(rate: float = 0.5) -> tuple[HeadInputs, MaskedStates, Network, Network]:
    own, slow = network(0), network(1)
    slow.freeze()
    objective = MaskedStates("slow", rate=rate)
    objective.name = "it"
    masked = sequences()
    objective.corrupt(masked, Draws(0, "t", "it", number=(0,)))
    views = {"main": collate(sequences()), "masked": collate(masked)}
    forward = ForwardPass({"own": own, "slow": slow}, views)
    targets = views["masked"].targets["it"]
    return HeadInputs(forward, ViewKey("own", "masked"), targets, "it"), objective, own, slow


def test_the_loss_is_the_distance_from_what_the_average_sees_in_hidden_rows() -> None:
    given, objective, own, slow = inputs()
    head = objective.head(own)
    rows = given.targets["rows"]
    assert 3 <= len(rows) < 12
    assert objective.count(given.batch) == len(rows)
    assert given.batch.streams["image"].fields["masked"].nonzero().flatten().tolist() == sorted(rows.tolist())
    seen = slow(collate(sequences()))["image"][rows]
    goal = (seen - seen.mean(1, keepdim=True)) / (seen.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    made = F.linear(own(given.batch)["image"][rows], head.dense.weight, head.dense.bias)  # type: ignore[union-attr, arg-type]
    wanted = (head.output(head.norm(F.gelu(made))) - goal).square().mean(1).sum()  # type: ignore[operator]
    found = head(given).loss
    torch.testing.assert_close(found, wanted)
    found.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    assert all(p.grad is None for p in slow.parameters())


def test_images_that_are_not_there_have_no_loss() -> None:
    given, objective, own, _ = inputs()
    empty = HeadInputs(given._forward, ViewKey("own", "masked"), {}, "it")
    assert objective.head(own)(empty).loss.item() == 0
