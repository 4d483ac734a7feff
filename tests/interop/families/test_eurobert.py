"""EuroBERT: Llama's layers over the whole text, with Hugging Face's logits of masked words, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tests.contracts import material
from tests.contracts.cases import FamilyCase
from tests.interop.families import test_llama as llama
from tests.interop.families.test_states import batch_of
from workbench.components.building import build
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.eurobert import Eurobert
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network

CONFIG = {**llama.CONFIG, "model_type": "eurobert"}
CASES = {
    "": FamilyCase(config=CONFIG),
    "tied": FamilyCase(config={**CONFIG, "tie_word_embeddings": True, "mlp_bias": True, "attention_bias": True}),
}
LENGTHS = [9, 1, 6]


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_logits_of_masked_words_both_ways(case: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    model = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**CASES[case].config, **ends)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    family, config = Eurobert(), FamilyConfig(model.config.to_dict())
    ours, unused = to_ours(model.state_dict(), family.rules(config), bool(config["tie_word_embeddings"]))
    assert unused == []
    spec, heads = family.network(config), family.heads(config)
    network = Network(spec).eval()
    network.load_state_dict({name: tensor for name, tensor in ours.items() if not name.startswith("mlm.")})
    head = build("objective", heads["mlm"], tokenizer=material.tokenizer()).head(network)
    head.load_state_dict({name[4:]: tensor for name, tensor in ours.items() if name.startswith("mlm.")})
    write_checkpoint_folder(tmp_path, exported_weights("eurobert", network, spec, nn.ModuleDict({"mlm": head}), heads))
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    inputs: Any = {"input_ids": torch.randint(0, 40, mask.shape), "attention_mask": mask.long()}
    batch, _ = batch_of(inputs)
    expected = model(**inputs).logits[mask]
    torch.testing.assert_close(head.logits(network, network(batch)["text"]), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(again(**inputs).logits[mask], expected)
