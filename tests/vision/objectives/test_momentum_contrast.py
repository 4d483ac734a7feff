"""Contrast with a momentum encoder and a queue: the formula, the queue, and ALBEF resumed and on two ranks."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import workbench
from tests.recipes.conftest import one_thread, world  # noqa: F401 - fixtures
from tests.recipes.test_recipes import small_recipe
from tests.training.conftest import launch  # noqa: F401 - a fixture
from tests.training.test_ranks import run_ranks
from vision.objectives.momentum_contrast import MomentumContrast, MomentumContrastHead
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import ViewKey, read
from workbench.pretraining.model import PretrainingModel, WeightUpdate
from workbench.pretraining.objective import SoftTargets
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Follower
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.batch import MicroBatch, collate
from workbench.sequences.sequence import Sample, Sequence
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

EXCUSED = "its candidates are vectors of another network and of earlier steps"
SHARE = 0.4


def contrast(**options: Any) -> MomentumContrast:
    made = MomentumContrast(SoftTargets("momentum", SHARE, ramp=0.5), **{"size": 8, "queue": 5, **options})
    made.name = "it"
    return made


def root_of(objective: MomentumContrast, network: Network) -> PretrainingModel:
    """With a follower that is elsewhere than what it follows."""
    slow = copy.deepcopy(network)
    slow.freeze()
    root = PretrainingModel(
        {"main": network, "momentum": slow},
        {"it": objective.head(network)},
        {"it": ViewKey("main", "main")},
        {"momentum": Follower("main", 0.9)},
    )
    for parameter in [*slow.parameters(), *root.averages.parameters()]:
        parameter += torch.randn_like(parameter) * 0.2
    return root


@pytest.fixture
def micro(samples: list[Sample], sequences: list[Sequence]) -> MicroBatch:
    """The last two of the eight pairs show one image."""
    objective = contrast()
    for sample, sequence in zip(objective.arrange(samples, Draws(0, "t", number=(0,))), sequences, strict=True):
        sequence.labels = dict(sample["labels"])
    objective.corrupt(sequences, Draws(0, "t", number=(0,)))
    return MicroBatch("t", {"main": collate(sequences)}, {})


def formula(vectors: dict[str, Tensor], ids: list[int], scale: float, share: float) -> float:
    """`vectors`: fast [pairs, size] and slow (those of the pairs, then of the queue) of texts and images."""
    total, pairs = 0.0, len(vectors["text"])
    for stream, other in (("text", "image"), ("image", "text")):
        for i in range(pairs):
            candidates = [j for j in range(len(ids)) if j == i or ids[j] not in (ids[i], -1)]
            p, q = (
                {j: math.exp(scale * float(of[i] @ vectors[f"slow {other}"][j])) for j in candidates}
                for of in (vectors[stream], vectors[f"slow {stream}"])
            )
            for j in candidates:
                target = (1 - share) * (j == i) + share * q[j] / sum(q.values())
                total -= target * math.log(p[j] / sum(p.values())) / 2
    return total


@torch.no_grad()
@pytest.mark.parametrize(("progress", "share"), [(1.0, SHARE), (0.25, SHARE / 2)])
def test_the_loss_is_the_formula(tiny: Callable, micro: MicroBatch, progress: float, share: float) -> None:
    network = tiny()
    root = root_of(contrast(), network)
    root.progress = progress
    head, batch = root.heads["it"], micro.views["main"]
    assert isinstance(head, MomentumContrastHead)
    ids = batch.targets["it"]["image"].tolist()
    assert len(set(ids)) == 7
    for stream in ("text", "image"):
        kept = torch.nn.functional.normalize(torch.randn(3, 8), dim=-1)
        setattr(head, f"{stream}_queue", torch.cat([kept, torch.zeros(2, 8)]))
    head.image_id_queue = torch.tensor([17, ids[2], 18, -1, -1])
    embedded = root(micro, ["it"], embed=["it"])["it"]
    vectors = {stream: embedded[stream] for stream in ("text", "image")}
    for stream in ("text", "image"):
        vectors[f"slow {stream}"] = torch.cat([embedded[f"{stream}_followed"], getattr(head, f"{stream}_queue")])
    wanted = formula(vectors, [*ids, 17, ids[2], 18, -1, -1], 1 / 0.07, share)
    assert root(micro, ["it"])["it"].loss.item() == pytest.approx(wanted, rel=1e-4)
    assert contrast().count(batch) == 8
    halves = [head.loss(embedded, own).loss for own in (slice(0, 3), slice(3, 8))]
    assert sum(halves).item() == pytest.approx(wanted, rel=1e-4)


def test_the_candidates_are_those_of_the_follower_and_get_no_gradient(tiny: Callable, micro: MicroBatch) -> None:
    with torch.no_grad():
        root = root_of(contrast(), tiny())
    slow = root.network("momentum")
    embedded = root(micro, ["it"], embed=["it"])["it"]
    vectors = root.averages["momentum"]["it"](read(slow, micro.views["main"]), "text")
    torch.testing.assert_close(embedded["text_followed"], vectors, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(embedded["text_followed"], embedded["text"])
    root(micro, ["it"])["it"].loss.backward()
    assert all(p.grad is None for p in [*slow.parameters(), *root.averages.parameters()])
    assert all(p.grad is not None and p.grad.isfinite().all() for p in root.heads["it"].parameters())


def test_the_queue_lets_the_oldest_go(tiny: Callable) -> None:
    head = contrast().head(tiny())
    for number in (1, 2):
        ids = torch.arange(3) + 10 * number
        rows = ids[:, None].expand(3, 8).float()
        head.after_step(WeightUpdate(number, 0.0, {"text_followed": rows, "image_followed": -rows, "image_id": ids}))
    head.after_step(WeightUpdate(3, 0.0, {}))
    assert head.image_id_queue.tolist() == [20, 21, 22, 10, 11]
    assert head.text_queue[:, 0].tolist() == [20, 21, 22, 10, 11]
    assert head.image_queue[:, 0].tolist() == [-20, -21, -22, -10, -11]


@pytest.fixture
def small_albef(world: Any, tmp_path: Path) -> Callable[..., Path]:  # noqa: F811
    """The recipe as it ships, small, with dropout and a queue of one and a half steps."""

    def made(negatives: str = "step") -> Path:
        tree = dataclasses.asdict(small_recipe("albef", world))
        tree["model"]["main"]["streams"]["text"]["dropout"] = 0.1
        tree["model"]["main"]["init_range"] = 0.2
        tree["tasks"]["pairs"]["objectives"][0] |= {"queue": 12, "negatives": negatives}
        tree["train"] |= {"max_steps": 6, "micro_batch_size": 4, "log_every": 1, "save_every": 3, "lr": 0.01}
        tree["train"]["verify"] = False
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(tree))
        return path

    return made


def test_a_resumed_run_equals_an_uninterrupted_one(small_albef: Callable[..., Path], tmp_path: Path) -> None:
    verdict = verify_resume(load_recipe(str(small_albef())), tmp_path / "runs", steps=4)
    assert verdict.compared > 20
    assert verdict.equal, verdict


@pytest.mark.long
@pytest.mark.parametrize("negatives", ["step", "micro-batch"])
def test_two_ranks_equal_one(
    small_albef: Callable[..., Path],
    launch: Any,  # noqa: F811
    tmp_path: Path,
    negatives: str,
) -> None:
    recipe = small_albef(negatives)
    pretrain(load_recipe(str(recipe)), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = (read_metrics(tmp_path / name) for name in ("one", "two"))
    assert len(one) == len(two) == 6
    for first, second in zip(one, two, strict=True):
        names = [name for name in first if "/" in name or name == "grad_norm"]
        assert {n: second[n] for n in names} == pytest.approx({n: first[n] for n in names}, abs=1e-4, rel=1e-4)
    states = [workbench.load(tmp_path / name).torch.state_dict() for name in ("one", "two")]
    queues = [name for name in states[0] if "queue" in name]
    assert len(queues) == 3
    assert states[0]["heads.itc.image_id_queue"].tolist() == states[1]["heads.itc.image_id_queue"].tolist()
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, atol=1e-3, rtol=1e-3)
