"""Masked clips by contrast, against a loop over CBT's equation."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import draws, make_samples, sequence_of, tiny_network
from vision.objectives.masked_clips import MaskedClips
from workbench.core.errors import WorkbenchError
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence


def originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    target = after.targets["it"]
    np.testing.assert_array_equal(target["features"], before.streams["image"]["features"][target["rows"].index])


RIVALS = {"additive": "the rivals of a clip are all clips", "metrics": "the rivals of a clip are all clips"}
CASES = {
    "": ObjectiveCase({"rate": 0.4, "stream": "image"}, RIVALS, reads=("image",), recover=originals),
    "cbt": ObjectiveCase(
        {"rate": 0.4, "zero": 0.6, "random": 0.2, "tied": False, "negatives": "micro-batch", "stream": "image"},
        {"company": "hidden clips borrow features of others"} | RIVALS,
        reads=("image",),
        recover=originals,
    ),
}


def made(**options: object) -> tuple[MaskedClips, HeadInputs]:
    objective = MaskedClips(stream="image", rate=0.4, **options)
    objective.name = "it"
    sequences = [sequence_of(sample) for sample in make_samples()]
    objective.corrupt(sequences, draws())
    batch = collate(sequences, {})
    return objective, HeadInputs.of(tiny_network(), batch, batch.targets["it"])


@pytest.mark.parametrize("temperature", [1.0, 7.5])
def test_the_loss_is_that_of_a_loop(temperature: float) -> None:
    objective, seen = made(temperature=temperature)
    network = seen.network
    head = objective.head(network).eval()
    got = head(seen)
    states, rows, real = seen.states["image"], seen.targets["rows"].tolist(), seen.batch.streams["image"].fields
    features = real["features"].clone().float()
    for row, original in zip(rows, seen.targets["features"], strict=True):
        features[row] = original
    guess, total, right = head.predicting, 0.0, 0
    for row in rows:
        predicted = guess.predict(network, guess.transform(states[row : row + 1]))[0]
        scores = [float(predicted @ other) / temperature for other in features]
        most = max(scores)
        total -= scores[row] - most - math.log(sum(math.exp(s - most) for s in scores))
        right += scores.index(most) == row
    assert len(rows) > 4
    torch.testing.assert_close(float(got.loss), total, atol=1e-5, rtol=1e-5)
    assert (int(got.metrics["accuracy"][0]), got.metrics["accuracy"][1]) == (right, len(rows))


def test_parts_of_a_step_add_up() -> None:
    objective, seen = made()
    head = objective.head(seen.network).eval()
    embedded = head.embed(seen)
    size = len(embedded["hidden"])
    whole = head.loss(embedded, slice(0, size)).loss
    parts = [head.loss(embedded, own).loss for own in (slice(0, 7), slice(7, 12), slice(12, size))]
    torch.testing.assert_close(sum(parts), whole)


def test_an_unknown_tap_is_reported() -> None:
    objective, seen = made(tap="before")
    with pytest.raises(WorkbenchError, match="unknown tap 'before'"):
        objective.head(seen.network)(seen)
