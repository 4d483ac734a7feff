"""Image-text contrast."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.contracts.cases import ObjectiveCase
from vision.objectives.itc import Itc, ItcHead
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives._vectors import pool_rows
from workbench.pretraining.forward import HeadInputs, NetworkOutput, read
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sample, Sequence

CONTRAST = {
    "seed": "nothing is drawn",
    "originals": "no row is changed",
    "additive": "the rivals of a pair are the other pairs",
    "no image": "a pair without an image is refused",
    "no labels": "every pair is counted",
}
CASES = {
    "": ObjectiveCase({"size": 8}, CONTRAST, reads=("text", "image")),
    "apart": ObjectiveCase(
        {"size": 8, "apart": True, "norm": True, "negatives": "micro-batch", "same_image": "negative"},
        CONTRAST,
        adds=("text.doc",),
        reads=("text", "image"),
    ),
}


def itc(**options: object) -> Itc:
    objective = Itc(size=8, **options)
    objective.name = "itc"
    return objective


@pytest.fixture
def pairs(samples: list[Sample], sequences: list[Sequence]) -> list[Sequence]:
    """The sequences with the labels of `arrange`; the last two show one image."""
    arranged = itc().arrange(samples, Draws(0, "t", "itc", number=(0,)))
    for sample, sequence in zip(arranged, sequences, strict=True):
        sequence.labels = dict(sample["labels"])
    return sequences


def plain_loop(text: Tensor, image: Tensor, ids: list[int], scale: float, ignore: bool) -> float:
    total = 0.0
    for i in range(len(ids)):
        rivals = [j for j in range(len(ids)) if j == i or not ignore or ids[j] != ids[i]]
        for mine, others in ((text, image), (image, text)):
            scores = [scale * float(mine[i] @ others[j]) for j in rivals]
            total -= (scores[rivals.index(i)] - math.log(sum(math.exp(s) for s in scores))) / 2
    return total


@pytest.mark.parametrize("same_image", ["ignored", "negative"])
def test_the_loss_is_the_plain_loop(
    same_image: str, tiny: Callable, pairs: list[Sequence], corrupted: Callable, loss: Callable
) -> None:
    network, objective = tiny(), itc(same_image=same_image)
    _, batch = corrupted(objective, pairs)
    head = objective.head(network)
    output = loss(objective, network, batch, head)
    text, image = (head.vectors(read(network, batch), stream).detach() for stream in ("text", "image"))
    torch.testing.assert_close(text.norm(dim=-1), torch.ones(8))
    ids = batch.targets["itc"]["image"].tolist()
    assert len(set(ids)) == 7
    wanted = plain_loop(text, image, ids, 1 / 0.07, same_image == "ignored")
    assert output.loss.item() == pytest.approx(wanted, rel=1e-4)
    assert objective.count(batch) == 8
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_the_step_does_not_depend_on_the_micro_batches(
    tiny: Callable, pairs: list[Sequence], corrupted: Callable
) -> None:
    network, objective = tiny(), itc()
    head = objective.head(network)

    def embedded(batch: Batch) -> dict[str, Tensor]:
        return head.embed(HeadInputs.of(network, batch, batch.targets["itc"]))

    whole = embedded(corrupted(objective, pairs)[1])
    halves = [embedded(corrupted(objective, part)[1]) for part in (pairs[:3], pairs[3:])]
    joined = {name: torch.cat([half[name] for half in halves]) for name in whole}
    terms = [head.loss(joined, own) for own in (slice(0, 3), slice(3, 8))]
    together = head.loss(whole, slice(0, 8))
    torch.testing.assert_close(terms[0].loss + terms[1].loss, together.loss)
    for name, (value, count) in together.metrics.items():
        torch.testing.assert_close(terms[0].metrics[name][0] + terms[1].metrics[name][0], value)
        assert terms[0].metrics[name][1] + terms[1].metrics[name][1] == count


def test_where_the_negatives_come_from() -> None:
    assert itc().global_batch
    assert not itc(negatives="micro-batch").global_batch


def test_the_scale_is_clamped_and_can_come_back(tiny: Callable) -> None:
    head = itc().head(tiny())
    assert isinstance(head, ItcHead)
    with torch.no_grad():
        head.logit_scale.fill_(10.0)
    vectors = torch.nn.functional.normalize(torch.randn(4, 8), dim=-1)
    output = head.loss({"text": vectors, "image": vectors.roll(1, 0), "image_id": torch.arange(4)}, slice(None))
    assert head.logit_scale.item() == pytest.approx(math.log(100))
    output.loss.backward()
    assert float(head.logit_scale.grad) > 0, "pairs that disagree pull the scale down"


def test_one_pair_alone_has_no_loss(tiny: Callable, pairs: list[Sequence], corrupted: Callable, loss: Callable) -> None:
    assert loss(itc(), tiny(), corrupted(itc(), pairs[:1])[1]).loss.item() == pytest.approx(0, abs=1e-6)


def test_vectors_of_a_tap(tiny: Callable, pairs: list[Sequence], corrupted: Callable) -> None:
    network, objective = tiny(), itc(tap="encoded")
    head, batch = objective.head(network), corrupted(objective, pairs)[1]
    states = network(batch)
    nothing = {stream: torch.zeros_like(rows) for stream, rows in states.items()}
    tapped = head.vectors(NetworkOutput(network, batch, nothing, {"encoded": states}), "text")
    head.space.tap = None
    torch.testing.assert_close(head.vectors(NetworkOutput(network, batch, states), "text"), tapped)
    head.space.tap = "typo"
    with pytest.raises(WorkbenchError, match=r"unknown tap 'typo'.*encoded"):
        head.vectors(NetworkOutput(network, batch, states, {"encoded": states}), "text")


@pytest.mark.parametrize(("pool", "wanted"), [("first", [0, 3]), ("last", [2, 7]), ("mean", [1, 5])])
def test_pooling(pool: str, wanted: list[int], pairs: list[Sequence]) -> None:
    rows = torch.arange(8.0)[:, None].expand(8, 2)
    batch = collate(pairs[:1] + pairs[2:3])
    assert batch.streams["text"].lengths == [3, 5]
    assert pool_rows(rows, batch, "text", pool)[:, 0].tolist() == wanted


def test_exchanged_or_incomplete_pairs_are_refused(pairs: list[Sequence], corrupted: Callable) -> None:
    pairs[1].labels["matched"] = 0
    with pytest.raises(WorkbenchError, match="itm in a separate task"):
        corrupted(itc(), pairs)
    pairs[1].labels["matched"] = 1
    del pairs[3].streams["image"]
    with pytest.raises(WorkbenchError, match="sequence '3' has no rows in one of the streams"):
        corrupted(itc(), pairs)


def test_it_can_be_learned(tiny: Callable, pairs: list[Sequence], corrupted: Callable, learned: Callable) -> None:
    network, objective = tiny(), itc(norm=True, pool_text="last", pool_image="mean")
    _, batch = corrupted(objective, pairs)
    assert learned(objective, network, batch) < 0.5
