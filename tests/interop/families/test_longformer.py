"""Longformer of random weights in Hugging Face's classes and here, with global attention of some rows: equal states
and logits; a folder that is read and exported again has the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LongformerConfig, LongformerModel

from tests.contracts.cases import BERT_SIZES, FamilyCase
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.longformer import Longformer
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.sequences.batch import Batch, Stream

CONFIG = {**BERT_SIZES, "type_vocab_size": 1, "model_type": "longformer", "attention_window": [8, 4]}
CASE = FamilyCase(config=CONFIG, rows={"longformer.embeddings.position_embeddings.weight": slice(2, None)})
LENGTHS = [23, 9, 17]
MARKED = [[0, 7, 22], [], [3]]


def theirs_of() -> LongformerModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {**CONFIG, "max_position_embeddings": 40, "pad_token_id": 1, "layer_norm_eps": 1e-5}
    model = LongformerModel(LongformerConfig(**sizes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def inputs() -> tuple[Batch, dict[str, Tensor], Tensor]:
    """Texts of three lengths; as their classes read them; and where these have a token."""
    g = torch.Generator().manual_seed(1)
    ids = [torch.randint(2, 30, (length,), generator=g) for length in LENGTHS]
    marks = [torch.zeros(length, dtype=torch.long) for length in LENGTHS]
    for mark, places in zip(marks, MARKED, strict=True):
        mark[places] = 1
    places = torch.cat([torch.arange(length) for length in LENGTHS])
    fields = {"input_ids": torch.cat(ids), "everywhere": torch.cat(marks), "position_ids": places}
    fields["token_type_ids"] = torch.zeros_like(places)
    batch = Batch({"text": Stream(fields, torch.tensor([0, *LENGTHS]).cumsum(0), LENGTHS)})
    pad = torch.nn.utils.rnn.pad_sequence
    real = pad([torch.ones(length, dtype=torch.long) for length in LENGTHS], batch_first=True)
    padded = {
        "input_ids": pad(ids, batch_first=True, padding_value=1),
        "attention_mask": real,
        "global_attention_mask": pad(marks, batch_first=True),
    }
    return batch, padded, real.bool()


def ours_of(model: LongformerModel) -> Network:
    config = FamilyConfig(model.config.to_dict())
    state = {f"longformer.{name}": tensor for name, tensor in model.state_dict().items()}
    network = Network(Longformer().network(config)).eval()
    network.load_state_dict(to_ours(state, Longformer().rules(config)).tensors)
    return network


@torch.no_grad()
def test_states_and_pooled_output_are_equal() -> None:
    batch, padded, real = inputs()
    model = theirs_of()
    network = ours_of(model)
    wanted, states = model(**padded), network(batch)
    torch.testing.assert_close(states["text"], wanted.last_hidden_state[real], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(network.pool(states, batch), wanted.pooler_output, atol=1e-5, rtol=1e-5)
    without = batch.replace("text", everywhere=torch.zeros_like(batch.streams["text"].fields["everywhere"]))
    assert not torch.allclose(network(without)["text"], states["text"], atol=1e-2)


@torch.no_grad()
def test_an_exported_folder_has_the_same_bits_and_opens_in_their_class(tmp_path: Path) -> None:
    batch, padded, real = inputs()
    model = theirs_of()
    network = ours_of(model)
    spec = Longformer().network(FamilyConfig(model.config.to_dict()))
    written = exported_weights("longformer", network, spec, torch.nn.ModuleDict(), {})
    write_checkpoint_folder(tmp_path, written)
    tensors = load_file(next(tmp_path.glob("*.safetensors")))
    original = model.state_dict()
    for name, tensor in tensors.items():
        rows = slice(2, None) if "position_embeddings" in name else slice(None)
        assert torch.equal(tensor[rows], original[name.removeprefix("longformer.")][rows]), name
    assert len(tensors) == sum("position_ids" not in name for name in original)
    again = LongformerModel.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(**padded).last_hidden_state[real], network(batch)["text"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stated", [3, 0, [4], [4, 5]])
def test_other_windows_are_refused(stated: Any) -> None:
    with pytest.raises(WorkbenchError, match=r"attention_window = .*an even number above 0, or 2 of them"):
        Longformer().network(FamilyConfig({**CONFIG, "attention_window": stated}))
