"""The losses of those who know nothing of pairs, regions and clips: those of heads that say the same of everything."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.chance import LabelCounts, chance
from benchmarks.vision_chance import decisions, diverging, regressed, undecided
from vision.objectives.itc import Itc
from vision.objectives.masked_clips import MaskedClips, MaskedClipsHead
from vision.objectives.mil_nce import MilNce, MilNceHead
from vision.objectives.momentum_contrast import MomentumContrast
from vision.objectives.mrc_kl import MrcKl
from vision.objectives.mrfr import Mrfr
from vision.objectives.pair_contrast import PairContrast
from vision.objectives.wra import Wra
from workbench.pretraining.objective import Objective, SoftTargets
from workbench.sequences.batch import Batch, Stream

IDS = torch.tensor([7, 8, 7, 9])


def named(objective: Objective) -> Objective:
    objective.name = "it"
    return objective


def batch(streams: dict[str, Stream] | None = None, **targets: Tensor) -> Batch:
    return Batch(streams or {}, {"it": targets})


def test_a_contrast_leaves_out_other_captions_of_the_image() -> None:
    halves = [batch(image=IDS[:2]), batch(image=IDS[2:])]
    assert undecided(named(Itc()), halves) == pytest.approx(np.log([3, 4, 3, 4]))
    assert undecided(named(Itc(same_image="negative")), halves) == pytest.approx(np.log([4] * 4))
    level = -np.log(1 / 4) - 3 * np.log(3 / 4)
    assert undecided(named(Itc(same_image="negative", loss="sigmoid")), halves) == pytest.approx([level] * 4)
    soft = SoftTargets(follower="momentum", share=0.4)
    assert undecided(named(MomentumContrast(soft, queue=10)), halves) == pytest.approx(np.log([13, 14, 13, 14]))


def test_a_choice_among_pairs_has_those_of_other_videos() -> None:
    assert undecided(named(PairContrast("tap")), [batch(video=IDS)]) == pytest.approx(np.log([3, 4, 3, 4]))
    assert undecided(named(PairContrast("tap", negatives=2)), [batch(video=IDS)]) == pytest.approx(np.log([3] * 4))


def test_several_positives_are_as_the_head_has_it() -> None:
    same = {"text": torch.ones(4, 2), "video": torch.ones(4, 2), "video_id": IDS}
    loss = MilNceHead(MilNce()).loss(same, slice(0, 4)).loss.item()
    assert undecided(named(MilNce()), [batch(video=IDS)]).sum() == pytest.approx(loss, rel=1e-6)


def test_hidden_clips_are_looked_for_among_all_of_the_step() -> None:
    streams = [{"video": Stream({}, torch.tensor([0, 2, 5]), [2, 3])}, {"video": Stream({}, torch.tensor([0, 4]), [4])}]
    asked = [batch(streams[0], rows=torch.tensor([1, 3])), batch(streams[1])]
    hidden = torch.zeros(9, dtype=torch.bool).index_fill(0, torch.tensor([1, 3]), True)
    reported = {"predicted": torch.zeros(9, 3), "features": torch.ones(9, 3), "hidden": hidden}
    loss = MaskedClipsHead(MaskedClips(tied=False), 3, 4).loss(reported, slice(0, 9)).loss.item()
    assert undecided(named(MaskedClips()), asked).sum() == pytest.approx(loss, rel=1e-6)


def test_hard_negatives_are_two_for_a_pair_that_has_some() -> None:
    targets = {"image": torch.tensor([1, 2, 2]), "text": torch.tensor([4, 5, 6])}
    assert decisions(targets) == Counter({1: 3, 0: 6})
    assert decisions({name: ids[1:] for name, ids in targets.items()}) == Counter({1: 2, 0: 0})


@pytest.mark.parametrize("loss", ["mse", "smooth_l1"])
def test_features_are_guessed_as_the_mean(loss: str) -> None:
    rng = np.random.default_rng(0)
    seen, asked = rng.normal(1, 2, (50, 3)).astype("float16"), rng.normal(1, 2, (20, 3)).astype("float16")
    mean = torch.tensor(seen.mean(0, dtype=np.float64)).expand(20, 3)
    function = torch.nn.functional.mse_loss if loss == "mse" else torch.nn.functional.smooth_l1_loss
    expected = function(mean, torch.tensor(asked).double()).item()
    objective = Mrfr(loss=loss)  # type: ignore[arg-type]
    assert chance(objective, LabelCounts(rows=[seen]), LabelCounts(rows=[asked[:5], asked[5:]]), 50) == pytest.approx(
        expected, rel=1e-3
    )
    assert regressed(objective, [seen], [np.zeros((1, 3), np.uint8)]) is None


def test_distributions_are_guessed_as_the_mean() -> None:
    seen, asked = np.array([[0.5, 0.5, 0], [1, 0, 0]]), np.array([[1, 0, 0], [0, 0.5, 0.5]])
    mean = (seen.sum(0) + 1 / 3) / 3
    divergences = [-math.log(mean[0]), -math.log(2) - (math.log(mean[1]) + math.log(mean[2])) / 2]
    assert chance(MrcKl(3), LabelCounts(rows=[seen]), LabelCounts(rows=[asked]), 50) == pytest.approx(
        sum(divergences) / 2
    )
    assert diverging([asked], [asked]) > 0


def test_a_distance_between_states_has_no_level() -> None:
    found = LabelCounts()
    found.add({"labels": np.array([1, 0])})
    assert chance(Wra(), found, found, 50) is None
