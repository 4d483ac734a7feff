"""ModernBERT: two kinds of layers, their bases, a first layer without a norm; equal to Hugging Face's, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.contracts import material
from tests.contracts.cases import FamilyCase
from tests.interop.families.test_states import batch_of
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.modernbert import Modernbert
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.objectives._token_head import TokenHead

CONFIG = {
    "model_type": "modernbert",
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
}
EVERY = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True)
BASES = {
    "full_attention": {"rope_type": "default", "rope_theta": 50.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 7.0},
}
OTHERWISE = {**EVERY, "rope_parameters": BASES, "classifier_activation": "gelu_new"}
CASES = {
    "": FamilyCase(config=CONFIG),
    "older": FamilyCase(config={**CONFIG, "global_attn_every_n_layers": 2, "global_rope_theta": 30.0}),
    "bases": FamilyCase(config={**CONFIG, "hidden_activation": "silu", "rope_parameters": BASES}),
}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LENGTHS = [19, 1, 12]


def theirs_of(**more: Any) -> Any:
    torch.manual_seed(0)
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    config = transformers.ModernBertConfig(**{**CONFIG, "local_attention": 8, **more}, **ends)
    model = transformers.ModernBertForMaskedLM(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def inputs_of() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(0, 40, mask.shape, generator=g)
    labels = torch.where(mask & (torch.rand(mask.shape, generator=g) < 0.5), ids, -100)
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}


@torch.no_grad()
@pytest.mark.parametrize(
    "more", [{}, {**EVERY, "rope_parameters": BASES, "classifier_activation": "gelu_new"}], ids=str
)
def test_states_logits_and_loss_both_ways(more: dict[str, Any], tmp_path: Path) -> None:
    model, inputs = theirs_of(**more), inputs_of()
    checkpoint_family, config = Modernbert(), FamilyConfig(theirs_of(**more).config.to_dict())
    ours, unused = to_ours(model.state_dict(), checkpoint_family.rules(config))
    assert unused == []
    spec, head_spec = checkpoint_family.network(config), checkpoint_family.heads(config)
    network = Network(spec).eval()
    network.load_state_dict({name: t for name, t in ours.items() if not name.startswith("mlm.")})
    head = build("objective", head_spec["mlm"], tokenizer=material.tokenizer()).head(network)
    head.load_state_dict({name[4:]: t for name, t in ours.items() if name.startswith("mlm.")})
    compare(network, head, model, inputs)

    write_checkpoint_folder(
        tmp_path / "out", exported_weights("modernbert", network, spec, nn.ModuleDict({"mlm": head}), head_spec)
    )
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    compare(network, head, again, inputs)


def compare(network: Network, head: TokenHead, model: Any, inputs: dict[str, Tensor]) -> None:
    """The states of every layer, the logits and the loss."""
    batch, mask = batch_of(inputs)
    context = Context(batch, keep_hidden=True)
    rows = network(batch, context)["text"]
    found = model(**inputs, output_hidden_states=True)
    layers = [hidden["text"] for hidden in context.hidden]
    for number, their in enumerate(found.hidden_states[:-1]):
        torch.testing.assert_close(layers[number], their[mask], **CLOSE)
    torch.testing.assert_close(rows, model.model(inputs["input_ids"], inputs["attention_mask"])[0][mask], **CLOSE)
    logits, labels = head.logits(network, rows), inputs["labels"][mask]
    torch.testing.assert_close(logits, found.logits[mask], **CLOSE)
    torch.testing.assert_close(head.loss(logits, labels).loss / (labels != -100).sum(), found.loss, **CLOSE)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("norm_bias", True, "a bias in all norms and linear layers, or in none"),
        ("hidden_activation", "relu", "unknown activation 'relu'"),
        ("layer_types", ["full_attention"], "layer_types = .*allowed: 5 of"),
        ("rope_parameters", {"full_attention": {"rope_type": "yarn"}}, "rope_type = 'yarn'"),
    ],
)
def test_what_our_layers_lack_is_reported(key: str, value: Any, said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        Modernbert().network(FamilyConfig({**CONFIG, key: value}))
