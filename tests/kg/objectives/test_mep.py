"""Masked entity prediction: what is masked, and the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from kg.objectives.mep import Mep
from kg.sequences.entity_vocabulary import MASK
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields

EXCUSED = "it reads a stream of entity tokens, which the network of the contracts does not have"
DRAWS = Draws("t", number=(0,))


def made(**options) -> Mep:
    objective = Mep(**options)
    objective.name = "it"
    return objective


def sequences(count: int, entities: int) -> list[Sequence]:
    found = []
    for number in range(count):
        rows = np.arange(entities)
        fields = dict.fromkeys(("position_ids", "last_position_ids"), rows + 1)
        fields |= {"entity_ids": 5 + rows, "token": Rows("text", rows, bound=True), "token_type_ids": 0 * rows}
        flags = {name: np.zeros(entities, np.bool_) for name in ("special", "taken")}
        entity = {**fields, **flags, "word_ids": rows}
        found.append(Sequence({"text": text_fields(np.arange(entities + 2)), "entity": entity}, (number,)))
    return found


def network(width: int = 3) -> Network:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 40}
    entity = {"embedding": "kg.entity_token", "vocabulary": 30, "hidden_size": 8, "embedding_size": width}
    layer = {"layer": "joint", "streams": ["text", "entity"], "num_heads": 2}
    return Network(NetworkSpec({"text": text, "entity": entity}, [layer], init_range=0.3)).eval()


def test_a_share_of_the_entities_becomes_the_mask() -> None:
    source = sequences(300, 10)
    made(rate=0.15).corrupt(source, DRAWS)
    masked = 0
    for sequence in source:
        entity, target = sequence.streams["entity"], sequence.targets["it"]
        rows = target["rows"].index
        assert target["rows"].stream == "entity"
        np.testing.assert_array_equal(target["labels"], 5 + rows)
        assert np.flatnonzero(entity["entity_ids"] == MASK).tolist() == np.flatnonzero(entity["taken"]).tolist()
        assert rows.tolist() == np.flatnonzero(entity["taken"]).tolist()
        np.testing.assert_array_equal(np.delete(entity["entity_ids"], rows), np.delete(5 + np.arange(10), rows))
        masked += len(rows)
    assert abs(masked - 450) < 4 * (300 * 0.25) ** 0.5  # one or two of ten, each as often
    again = sequences(300, 10)
    made(rate=0.15).corrupt(again, DRAWS)
    assert all(
        one.targets["it"]["rows"].index.tolist() == other.targets["it"]["rows"].index.tolist()
        for one, other in zip(source, again, strict=True)
    )


def test_a_text_without_entities_has_no_label() -> None:
    source = sequences(2, 0)
    del source[1].streams["entity"]
    objective = made()
    objective.corrupt(source, DRAWS)
    batch = collate(source)
    assert objective.count(batch) == 0
    head = objective.head(network())
    assert head(HeadInputs.of(network(), batch, batch.targets["it"])).loss == 0


@pytest.mark.parametrize("width", [3, 8])
@torch.no_grad()
def test_the_loss_is_over_the_whole_vocabulary(width: int) -> None:
    objective, model = made(rate=0.5), network(width)
    head = objective.head(model)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    source = sequences(3, 6)
    objective.corrupt(source, DRAWS)
    batch = collate(source)
    seen = HeadInputs.of(model, batch, batch.targets["it"])
    loss = torch.zeros(())
    for row, entity in zip(seen.targets["rows"], seen.targets["labels"], strict=True):
        transformed = head.norm(F.gelu(head.dense(seen.states["entity"][row])))
        scores = torch.stack([model.embeddings["entity"].token.weight[k] @ transformed for k in range(30)]) + head.bias
        loss = loss - torch.log_softmax(scores, 0)[entity]
    torch.testing.assert_close(head(seen).loss, loss, atol=1e-5, rtol=1e-5)
    assert objective.count(batch) == len(seen.targets["labels"]) == 9
    assert head.by_token == ()  # its rows are no tokens of the run's tokenizer


def test_it_needs_a_stream_with_a_table() -> None:
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 40}
    with pytest.raises(WorkbenchError, match="no stream 'entity' with a token table"):
        made().head(Network(NetworkSpec({"text": text}, [])))
