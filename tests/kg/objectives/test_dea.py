"""Entity prediction: the noise, the targets and the loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from kg.models.embeddings.entity_table import EntityTableEmbedding
from kg.objectives.dea import Dea, noise
from tests.contracts.cases import ObjectiveCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields


def originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    entity, target = before.streams["entity"], after.targets["it"]
    ids = dict(zip(target["rows"].index.tolist(), shared["candidates"][target["labels"]].tolist(), strict=True))
    assert [ids.get(token, 0) for token in entity["token"].index.tolist()] == entity["entity_ids"].tolist()
    np.testing.assert_array_equal(after.streams["text"]["input_ids"], before.streams["text"]["input_ids"])


CASE = ObjectiveCase(
    {"replaced": 0.4, "removed": 0.3},
    {
        "earlier hooks": "it changes entity rows alone, also those of tokens that mlm masked, as released",
        "special rows": "the entity of a special token is one as others",
        "company": "replacements are entities of the micro-batch",
    },
    small=0,
    recover=originals,
)


def sequences(rng: np.random.Generator, count: int, entities: int, length: int = 20) -> list[Sequence]:
    """Sequences of `length` tokens, with a [CLS] row and `entities` entities each."""
    made = []
    for number in range(count):
        tokens = np.sort(rng.choice(np.arange(1, length), entities, replace=False))
        stream = {
            "entity_ids": np.concatenate([[0], rng.integers(1, 40, entities)]),
            "token": Rows("text", np.append(0, tokens), bound=True),
        }
        made.append(Sequence({"text": text_fields(np.arange(length)), "entity": stream}, (number,), str(number)))
    return made


def dea(**options) -> Dea:
    objective = Dea(**options)
    objective.name = "dea"
    return objective


def test_original_is_recoverable_and_every_entity_is_a_target() -> None:
    original = sequences(np.random.default_rng(0), 8, 6)
    noisy = [s.copy() for s in original]
    candidates = dea().corrupt(noisy, Draws(0, number=(0,)))["candidates"]
    every = np.concatenate([s.streams["entity"]["entity_ids"] for s in original])
    assert candidates.tolist() == sorted({0, *every.tolist()})
    for before, after in zip(original, noisy, strict=True):
        entity, targets = before.streams["entity"], after.targets["dea"]
        linked = entity["entity_ids"] > 0
        assert np.array_equal(candidates[targets["labels"]], entity["entity_ids"][linked])
        assert np.array_equal(targets["rows"].index, entity["token"].index[linked])
        assert set(after.streams["entity"]["token"].index) <= set(entity["token"].index)
        assert after.streams["entity"]["entity_ids"][0] == 0
        assert np.array_equal(after.streams["text"]["input_ids"], before.streams["text"]["input_ids"])


def test_rates() -> None:
    source = sequences(np.random.default_rng(1), 700, 12)
    before = np.concatenate([s.streams["entity"]["entity_ids"][1:] for s in source])
    kept = removed = changed = 0
    dea().corrupt(source, Draws(0, number=(0,)))
    for i, sequence in enumerate(source):
        stream = sequence.streams["entity"]
        rows = dict(zip(stream["token"].index.tolist(), stream["entity_ids"].tolist(), strict=True))
        places = sequence.targets["dea"]["rows"].index.tolist()
        for place, entity in zip(places, before[i * 12 : i * 12 + 12].tolist(), strict=True):
            removed += place not in rows
            kept += rows.get(place) == entity
            changed += rows.get(place, entity) != entity
    n = len(before)
    assert kept + removed + changed == n == 8400
    for found, rate in ((removed, 0.15), (changed, 0.05 * 38 / 39), (kept, 0.80 + 0.05 / 39)):
        assert abs(found - n * rate) < 5 * (n * rate * (1 - rate)) ** 0.5


def test_noise_depends_on_the_sample_alone() -> None:
    first, second = (sequences(np.random.default_rng(2), 4, 5) for _ in range(2))
    dea().corrupt(first, Draws(0, "x", number=(0,)))
    dea().corrupt(second[::-1], Draws(0, "x", number=(7,)))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.streams["entity"]["entity_ids"], b.streams["entity"]["entity_ids"])


@pytest.mark.parametrize(("replaced", "removed"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)])
def test_extreme_rates(replaced: float, removed: float) -> None:
    candidates = np.array([0, 3, 7])
    noisy = noise(np.array([1, 2] * 50), candidates, replaced, removed, np.random.default_rng(0))
    assert set(noisy.tolist()) == ({0} if removed else {3, 7})
    if not replaced and not removed:
        assert noisy.tolist() == [3, 7] * 50


def test_no_entities_at_all() -> None:
    source = [
        Sequence({"text": text_fields(np.arange(5))}, (0,)),
        Sequence(
            {
                "text": text_fields(np.arange(5)),
                "entity": {"entity_ids": np.array([0]), "token": Rows("text", np.array([0]), bound=True)},
            },
            (1,),
        ),
    ]
    objective = dea()
    batch = collate(source, {"dea": objective.corrupt(source, Draws(0, number=(0,)))})
    assert objective.count(batch) == 0
    out = forward(objective, batch)
    assert out.loss == 0
    assert out.metrics["accuracy"] == (0, 0)
    text_only = [source[0].copy()]
    batch = collate(text_only, {"dea": objective.corrupt(text_only, Draws(0, number=(0,)))})
    assert objective.count(batch) == 0
    assert forward(objective, batch).loss == 0


def test_loss_is_a_plain_sum_of_cross_entropies_with_finite_gradients() -> None:
    source = sequences(np.random.default_rng(3), 3, 4)
    objective = dea()
    batch = collate(source, {"dea": objective.corrupt(source, Draws(0, number=(0,)))})
    table = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    network = build(table)
    head = objective.head(network)
    states = {"text": torch.randn(60, 8, requires_grad=True)}
    targets = batch.targets["dea"]
    out = head(HeadInputs.of(network, batch, targets, states))
    total = 0.0
    vectors = [torch.zeros(6) if c == 0 else table[c - 1] for c in targets["candidates"].tolist()]
    for row, label in zip(targets["rows"].tolist(), targets["labels"].tolist(), strict=True):
        t = head.norm(torch.nn.functional.gelu(head.dense(states["text"][row])))
        scores = torch.stack([t @ v for v in vectors])
        total = total - scores.log_softmax(0)[label]
    torch.testing.assert_close(out.loss, total)
    assert objective.count(batch) == 12
    out.loss.backward()
    assert torch.isfinite(states["text"].grad).all()
    assert states["text"].grad.abs().sum(1).nonzero().flatten().tolist() == sorted(set(targets["rows"].tolist()))


def build(table: torch.Tensor) -> Network:
    text = {"embedding": "token", "vocab_size": 30, "hidden_size": 8, "max_positions": 32}
    return Network(NetworkSpec({"text": text, "entity": {"embedding": "kg.entity_table", "path": table}}, []))


def forward(objective: Dea, batch):
    network = build(torch.randn(40, 6))
    return objective.head(network)(HeadInputs.of(network, batch, batch.targets["dea"]))


def test_refuses_wrong_rates_and_a_model_without_entities() -> None:
    with pytest.raises(WorkbenchError, match="at most 1"):
        Dea(replaced=0.7, removed=0.5)
    text = {"embedding": "token", "vocab_size": 30, "hidden_size": 8}
    with pytest.raises(WorkbenchError, match="stream 'entity'"):
        dea().head(Network(NetworkSpec({"text": text}, [])))


def test_table_rows_controls_and_training() -> None:
    table = torch.arange(12.0).view(4, 3)
    frozen = EntityTableEmbedding(table)
    assert frozen({"entity_ids": torch.tensor([0, 1, 4])}).tolist() == [[0, 0, 0], [0, 1, 2], [9, 10, 11]]
    assert frozen.vectors.data_ptr() == table.data_ptr()
    drawn = EntityTableEmbedding(table, control="random-entities", seed=1)({"entity_ids": torch.arange(1, 5)})
    assert torch.allclose(drawn.norm(dim=1), table.norm(dim=1))
    assert not torch.allclose(drawn[1:], table[1:])
    trained = EntityTableEmbedding(table, trainable=True)
    trained({"entity_ids": torch.tensor([0, 2])}).sum().backward()
    assert trained.vectors.grad.sum(1).tolist() == [0, 3, 0, 0]
    with pytest.raises(WorkbenchError, match="hidden_size = 100"):
        EntityTableEmbedding(table, hidden_size=100)
