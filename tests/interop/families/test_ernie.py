"""Hugging Face ERNIE and ours are the same function, with and without tasks, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForPreTraining, ErnieConfig, ErnieForMaskedLM, ErnieForPreTraining

from tests.contracts.cases import FamilyCase
from tests.interop.families import test_bert
from tests.interop.families.test_bert import LENGTHS
from workbench.components.building import build
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.ernie import Ernie
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import Batch

CONFIG = {**test_bert.CONFIG, "vocab_size": 50, "model_type": "ernie"}
CASES = {
    "": FamilyCase(config=CONFIG),
    "of tasks": FamilyCase(config={**CONFIG, "use_task_id": True, "task_type_vocab_size": 5}),
}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def their_model(kind: type, tasks: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    model = kind(ErnieConfig(**{**CONFIG, "use_task_id": tasks, "task_type_vocab_size": 5})).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def jagged() -> Batch:
    batch = test_bert.jagged()
    fields = batch.streams["text"].fields
    fields["task_type_ids"] = torch.randint(0, 5, (sum(LENGTHS),), generator=torch.Generator().manual_seed(2))
    return batch


def padded(rows: Tensor, value: int = 0) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows.split(LENGTHS)), batch_first=True, padding_value=value)


def given(batch: Batch, tasks: bool) -> dict[str, Tensor]:
    names = ["input_ids", "token_type_ids", *(["task_type_ids"] if tasks else [])]
    fields = {name: padded(batch.streams["text"].fields[name]) for name in names}
    return {**fields, "attention_mask": padded(torch.ones(sum(LENGTHS)))}


@torch.no_grad()
@pytest.mark.parametrize("tasks", [False, True])
def test_states_logits_and_losses_are_theirs_and_come_back(tasks: bool, tmp_path: Path) -> None:
    theirs, batch = their_model(ErnieForPreTraining, tasks), jagged()
    config = FamilyConfig(theirs.config.to_dict())
    checkpoint_family, spec = Ernie(), Ernie().network(config)
    weights, unused = to_ours(theirs.state_dict(), checkpoint_family.rules(config))
    assert unused == []
    network = Network(spec).eval()
    network.load_state_dict({name: weights[name] for name in network.state_dict()})
    labels = torch.randint(0, 50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(2))
    labels[torch.arange(len(labels)) % 3 > 0] = -100
    decisions = torch.tensor([0, 1, 1])
    out = theirs(**given(batch, tasks), labels=padded(labels, -100), next_sentence_label=decisions)
    states = network(batch)
    masked = out.prediction_logits[padded(torch.ones(sum(LENGTHS))).bool()]
    heads, sums = torch.nn.ModuleDict(), {}
    for name, targets in (
        ("mlm", {"rows": torch.arange(len(labels)), "labels": labels}),
        ("nsp", {"labels": decisions}),
    ):
        objective = checkpoint_family.heads(config)[name]
        part = build("objective", objective, **({"tokenizer": Ordinary()} if name == "mlm" else {}))
        heads[name] = part.head(network)
        own = {n.removeprefix(f"{name}."): t for n, t in weights.items() if n.startswith(f"{name}.")}
        heads[name].load_state_dict(own)
        sums[name] = heads[name](HeadInputs.of(network, batch, targets, states)).loss
    torch.testing.assert_close(heads["mlm"].logits(network, states["text"]), masked, **CLOSE)
    pooled = network.pool(states, batch)
    torch.testing.assert_close(heads["nsp"].logits(network, pooled), out.seq_relationship_logits, **CLOSE)
    loss = sums["mlm"] / (labels != -100).sum() + sums["nsp"] / len(decisions)
    torch.testing.assert_close(loss, out.loss, **CLOSE)
    write_checkpoint_folder(
        tmp_path / "out", exported_weights("ernie", network, spec, heads, checkpoint_family.heads(config))
    )
    again = AutoModelForPreTraining.from_pretrained(tmp_path / "out").eval()
    assert type(again) is ErnieForPreTraining
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    torch.testing.assert_close(again(**given(batch, tasks)).prediction_logits, out.prediction_logits, **CLOSE)


@torch.no_grad()
def test_a_body_with_the_head_of_masked_words_alone(tmp_path: Path) -> None:
    theirs, batch = their_model(ErnieForMaskedLM, False), jagged()
    checkpoint_family, config = Ernie(), FamilyConfig(theirs.config.to_dict())
    weights, unused = to_ours(theirs.state_dict(), checkpoint_family.rules(config))
    assert unused == []
    spec = checkpoint_family.network(config)
    spec.poolers = []
    network = Network(spec).eval()
    network.load_state_dict({name: weights[name] for name in network.state_dict()})
    theirs_states = theirs.ernie(**given(batch, False)).last_hidden_state[padded(torch.ones(sum(LENGTHS))).bool()]
    torch.testing.assert_close(network(batch)["text"], theirs_states, **CLOSE)
    write_checkpoint_folder(tmp_path / "out", exported_weights("ernie", network, spec, torch.nn.ModuleDict(), {}))
    again = AutoModel.from_pretrained(tmp_path / "out").eval()
    states = again(**given(batch, False)).last_hidden_state[padded(torch.ones(sum(LENGTHS))).bool()]
    torch.testing.assert_close(states, theirs_states, **CLOSE)


class Ordinary:
    """What the objective of masked words asks of a tokenizer."""

    ordinary_ids = torch.arange(5, 50).numpy()

    def id(self, role: str) -> int:
        return 4
