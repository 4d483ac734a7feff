"""Hugging Face BERT and ours are the same function, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel

from tests.contracts.cases import BERT_SIZES, FamilyCase
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.bert import Bert
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.sequences.batch import Batch, Stream

CONFIG = {
    **BERT_SIZES,
    "model_type": "bert",
}
CASE = FamilyCase(config=CONFIG, golden=("hf/bert", "spanbert/model"))
LENGTHS = [7, 1, 12]


@pytest.fixture
def theirs() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
    )
    model = BertModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def jagged() -> Batch:
    g = torch.Generator().manual_seed(1)
    n = sum(LENGTHS)
    fields = {
        "input_ids": torch.randint(0, 50, (n,), generator=g),
        "token_type_ids": torch.randint(0, 2, (n,), generator=g),
        "position_ids": torch.cat([torch.arange(length) for length in LENGTHS]),
    }
    return Batch({"text": Stream(fields, torch.tensor([0, *LENGTHS]).cumsum(0), LENGTHS)})


def padded(batch: Batch, name: str) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(batch.streams["text"].fields[name].split(LENGTHS)), batch_first=True)


def their_output(model: BertModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(n) for n in LENGTHS], batch_first=True)
    out = model(padded(batch, "input_ids"), attention_mask=mask, token_type_ids=padded(batch, "token_type_ids"))
    rows = torch.cat([out.last_hidden_state[i, :n] for i, n in enumerate(LENGTHS)])
    return rows, out.pooler_output


def from_bare(theirs: BertModel, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    rules = Bert().rules(FamilyConfig(theirs.config.to_dict()))
    return to_ours({f"bert.{name}": tensor for name, tensor in state.items()}, rules).tensors


def ours_from(theirs: BertModel) -> Network:
    network = Network(Bert().network(FamilyConfig(theirs.config.to_dict()))).eval()
    network.load_state_dict(from_bare(theirs, theirs.state_dict()))
    return network


def test_imported_states_and_pooled_output_are_equal(theirs: BertModel) -> None:
    batch = jagged()
    network = ours_from(theirs)
    states = network(batch)
    rows, pooled = their_output(theirs, batch)
    torch.testing.assert_close(states["text"], rows, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(network.pool(states, batch), pooled, atol=1e-5, rtol=1e-5)


def test_gradients_are_equal(theirs: BertModel) -> None:
    batch = jagged()
    network = ours_from(theirs)
    weight = torch.linspace(-1, 1, 32)
    (network(batch)["text"] * weight).sum().backward()
    (their_output(theirs, batch)[0] * weight).sum().backward()
    ours = {n: p.grad for n, p in network.named_parameters() if p.grad is not None}
    expected = from_bare(theirs, {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None})
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, atol=2e-5, rtol=1e-4)


def test_export_loads_in_auto_model(theirs: BertModel, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    spec = Bert().network(FamilyConfig(theirs.config.to_dict()))
    write_checkpoint_folder(folder, exported_weights("bert", ours_from(theirs), spec, torch.nn.ModuleDict(), {}))
    again = AutoModel.from_pretrained(folder).eval()
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor)
    rows, _ = their_output(again, jagged())
    torch.testing.assert_close(rows, their_output(theirs, jagged())[0])
