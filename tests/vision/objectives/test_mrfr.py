"""Masked region feature regression."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.contracts.cases import ObjectiveCase
from vision.images.boxes import grid_boxes
from vision.objectives.mrfr import Mrfr, goal_of
from vision.sequences.image_processors.pixels import PixelsProcessor
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Rows, Sample, Sequence


def originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    image, target = before.streams["image"], after.targets["it"]
    wanted = image["patches" if "patches" in image else "features"]
    np.testing.assert_array_equal(target["features"], wanted[target["rows"].index])


SPREAD = {"metrics": "the variance of the targets is that of a micro-batch"}
CASES = {
    "": ObjectiveCase({"rate": 0.4}, SPREAD, reads=("image",), recover=originals),
    "lxmert": ObjectiveCase(
        {"rate": 0.4, "zero": 0.5, "random": 0.3, "loss": "smooth_l1", "tied": False},
        {"company": "hidden rows borrow features of the micro-batch's other images"} | SPREAD,
        reads=("image",),
        recover=originals,
    ),
    "patches": ObjectiveCase({"rate": 0.4}, SPREAD, reads=("image",), recover=originals, content="patches"),
}


def mrfr(**options: object) -> Mrfr:
    objective = Mrfr(**options)
    objective.name = "mrfr"
    return objective


def patch_sequence(i: int, class_row: bool = False) -> Sequence:
    rng = np.random.default_rng(i)
    fields = {"patches": rng.integers(0, 256, (4, 12), dtype=np.uint8), "boxes": grid_boxes(2)}
    fields["special"] = np.array([class_row, False, False, False])
    return Sequence({"image": fields}, (i,), str(i))


def test_targets_are_the_features_that_were_hidden(sequences: list[Sequence], corrupted: Callable) -> None:
    mine, batch = corrupted(mrfr(rate=0.4), sequences)
    for before, after in zip(sequences, mine, strict=True):
        rows = after.targets["mrfr"]["rows"]
        assert isinstance(rows, Rows)
        hidden = np.zeros(5, np.bool_)
        hidden[rows.index] = True
        assert hidden.any(), "at least one an image"
        old, new = before.streams["image"]["features"], after.streams["image"]["features"]
        assert np.array_equal(after.targets["mrfr"]["features"], old[hidden])
        assert np.array_equal(after.streams["image"]["masked"], hidden)
        assert np.array_equal(after.streams["image"]["taken"], hidden)
        assert not new[hidden].any()
        assert np.array_equal(new[~hidden], old[~hidden])
    targets, fields = batch.targets["mrfr"], batch.streams["image"].fields
    assert mrfr().count(batch) == len(targets["rows"]) == len(targets["features"])
    assert torch.equal(fields["masked"].nonzero()[:, 0], targets["rows"])


def test_same_seed_same_output(sequences: list[Sequence], corrupted: Callable) -> None:
    objective = mrfr(rate=0.5, zero=0.6, random=0.3)
    first, again, other = (corrupted(objective, sequences, seed)[1] for seed in (0, 0, 1))
    assert torch.equal(first.streams["image"].fields["features"], again.streams["image"].fields["features"])
    assert not torch.equal(first.streams["image"].fields["features"], other.streams["image"].fields["features"])


def test_rates_are_within_binomial_bounds(corrupted: Callable) -> None:
    rng = np.random.default_rng(0)
    boxes = grid_boxes(10)
    many = [
        Sequence({"image": {"features": rng.normal(size=(100, 3)).astype(np.float32), "boxes": boxes}}, (i,), str(i))
        for i in range(40)
    ]
    mine, batch = corrupted(mrfr(rate=0.15, zero=0.8, random=0.1), many)
    selected = mrfr().count(batch)
    assert abs(selected - 600) < 4 * np.sqrt(4000 * 0.15 * 0.85)
    zeroed = int(batch.streams["image"].fields["masked"].sum())
    assert abs(zeroed - 0.8 * selected) < 4 * np.sqrt(selected * 0.8 * 0.2)
    clean = np.concatenate([s.streams["image"]["features"] for s in many])
    changed = (batch.streams["image"].fields["features"].numpy() != clean).any(1)
    swapped = changed & ~batch.streams["image"].fields["masked"].numpy()
    assert abs(swapped.sum() - 0.1 * selected) < 4 * np.sqrt(selected * 0.1 * 0.9)
    pool = {tuple(row) for row in clean}
    assert all(tuple(row) in pool for row in batch.streams["image"].fields["features"].numpy()[swapped])
    for before, after in zip(many, mine, strict=True):
        own = {tuple(row) for row in before.streams["image"]["features"]}
        rows = after.streams["image"]
        moved = (rows["features"] != before.streams["image"]["features"]).any(1) & ~rows["masked"]
        assert not any(tuple(row) in own for row in rows["features"][moved]), "random features are another image's"


def test_taken_and_special_rows_are_left_alone(sequences: list[Sequence], corrupted: Callable) -> None:
    for sequence in sequences:
        sequence.streams["image"]["taken"] = np.array([True, True, True, True, False])
    mine, _ = corrupted(mrfr(rate=1.0), sequences)
    assert all(s.targets["mrfr"]["rows"].index.tolist() == [4] for s in mine)
    mine, _ = corrupted(mrfr(rate=1.0), [patch_sequence(0, class_row=True)])
    assert mine[0].targets["mrfr"]["rows"].index.tolist() == [1, 2, 3]


def test_the_class_token_lends_nothing(corrupted: Callable) -> None:
    """Its row of zeros is no patch of any image."""
    many = [patch_sequence(i, class_row=True) for i in range(20)]
    for sequence in many:
        sequence.streams["image"]["patches"][0] = 0
    mine, _ = corrupted(mrfr(rate=1.0, zero=0.0, random=1.0), many)
    lent = np.concatenate([s.streams["image"]["patches"][1:] for s in mine])
    assert lent.any(1).all()
    alone, _ = corrupted(mrfr(rate=1.0, zero=0.0, random=1.0), [many[0], rowless(many[1])])
    assert alone[0].streams["image"]["masked"][1:].all(), "nobody lends, so they are hidden"


def rowless(sequence: Sequence) -> Sequence:
    """The class token alone."""
    return Sequence({"image": {n: v[:1] for n, v in sequence.streams["image"].items()}}, sequence.draw, sequence.key)


def test_samples_without_a_free_row_or_image(sequences: list[Sequence], corrupted: Callable) -> None:
    sequences[0].streams["image"]["taken"] = np.ones(5, np.bool_)
    del sequences[1].streams["image"]
    sequences[2].streams["image"] = {n: v[:0] for n, v in sequences[2].streams["image"].items()}
    sequences[3].streams["image"] = {n: v[:1] for n, v in sequences[3].streams["image"].items()}
    mine, batch = corrupted(mrfr(), sequences[:4])
    assert [bool(s.targets) for s in mine] == [False, False, False, True]
    assert mrfr().count(batch) == 1
    assert corrupted(mrfr(), sequences[:1])[1].targets["mrfr"] == {}


def test_regions_of_exchanged_pairs_are_hidden_but_predicted_only_where_wanted(
    sequences: list[Sequence], corrupted: Callable
) -> None:
    for i, sequence in enumerate(sequences):
        sequence.labels["matched"] = i % 2
    found = corrupted(mrfr(), sequences)[0]
    assert [bool(s.targets) for s in found] == [False, True] * 4
    assert all(s.streams["image"]["masked"].any() for s in found), "hidden rows must not reveal exchanged pairs"
    assert all(s.targets for s in corrupted(mrfr(matched_only=False), sequences)[0])


def test_a_backbone_inside_the_model_is_refused(samples: list[Sample], corrupted: Callable) -> None:
    sequence = Sequence({"image": PixelsProcessor(32, 2)(samples[0], None)}, (0,))
    with pytest.raises(WorkbenchError, match="stored features or patches; the image stream has boxes, pixels"):
        corrupted(mrfr(), [sequence])


def test_wrong_shares_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="shares of at most 1 together"):
        Mrfr(zero=0.9, random=0.2)


@pytest.mark.parametrize("function", ["mse", "smooth_l1"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_loss_is_the_mean_over_numbers_summed_over_rows(
    function: str, tied: bool, tiny: Callable, sequences: list[Sequence], corrupted: Callable, loss: Callable
) -> None:
    network, objective = tiny(), mrfr(loss=function, tied=tied)
    _, batch = corrupted(objective, sequences)
    head = objective.head(network)
    output = loss(objective, network, batch, head)
    rows, goal = batch.targets["mrfr"]["rows"], batch.targets["mrfr"]["features"]
    hidden = head.norm(F.gelu(head.dense(network(batch)["image"])))
    matrix = network.embeddings["image"].project.weight.T if tied else head.output.weight
    wanted = 0.0
    for row, target in zip(rows.tolist(), goal, strict=True):
        d = (matrix @ hidden[row] + head.bias - target).abs()
        each = d**2 if function == "mse" else torch.where(d < 1, 0.5 * d**2, d - 0.5)
        wanted += float(each.mean())
    assert float(output.loss) == pytest.approx(wanted, rel=1e-5)
    output.loss.backward()
    for name, parameter in [*head.named_parameters(), *network.named_parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    assert head.dense.weight.grad.abs().sum() > 0


def test_no_row_to_predict_gives_zero(
    tiny: Callable, sequences: list[Sequence], loss: Callable, corrupted: Callable
) -> None:
    sequences[0].streams["image"]["taken"] = np.ones(5, np.bool_)
    _, batch = corrupted(mrfr(), sequences[:1])
    output = loss(mrfr(), tiny(), batch)
    assert float(output.loss) == 0
    output.loss.backward()


def test_patches_are_normalised_targets(tiny: Callable, corrupted: Callable, loss: Callable) -> None:
    network = tiny("patches")
    mine, batch = corrupted(mrfr(rate=1.0), [patch_sequence(0)])
    hidden = mine[0].targets["mrfr"]["features"]
    assert hidden.dtype == np.uint8, "a quarter of what numbers take, and a step has many"
    goal = goal_of(network, "image", torch.from_numpy(hidden))
    shown = network.embeddings["image"].normalise(torch.from_numpy(hidden))
    plain = np.stack([(patch - patch.mean()) / np.sqrt(patch.var(ddof=1) + 1e-6) for patch in shown.double().numpy()])
    torch.testing.assert_close(goal.double(), torch.from_numpy(plain), atol=1e-6, rtol=1e-6)
    assert goal_of(network, "image", torch.ones(2, 12, dtype=torch.uint8)).isfinite().all()
    assert loss(mrfr(), network, batch).loss.isfinite()


def test_packed_equals_alone(tiny: Callable, sequences: list[Sequence], loss: Callable, corrupted: Callable) -> None:
    network, objective = tiny(), mrfr()
    head = objective.head(network)
    together = loss(objective, network, corrupted(objective, sequences)[1], head).loss
    alone = sum(loss(objective, network, corrupted(objective, [s])[1], head).loss for s in sequences)
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-5)


def test_it_can_be_learned(tiny: Callable, sequences: list[Sequence], learned: Callable, corrupted: Callable) -> None:
    network, objective = tiny(), mrfr()
    _, batch = corrupted(objective, sequences)
    assert learned(objective, network, batch) < 0.8
