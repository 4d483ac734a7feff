"""MobileBERT of random weights in Hugging Face's class and here: equal states and pooled output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MobileBertConfig, MobileBertModel

from tests.contracts.cases import BERT_SIZES, FamilyCase
from tests.interop.families.test_bert import LENGTHS, jagged, padded
from workbench.core.errors import WorkbenchError
from workbench.interop.families.mobilebert import Mobilebert
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network

SIZES = {**BERT_SIZES, "embedding_size": 8, "intra_bottleneck_size": 8, "num_feedforward_networks": 3}
CONFIG = {**SIZES, "model_type": "mobilebert", "hidden_act": "relu"}
CASE = FamilyCase(config=CONFIG, golden=())


def test_states_and_pooled_output_are_equal() -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {**SIZES, "vocab_size": 50, "max_position_embeddings": 16}
    theirs = MobileBertModel(MobileBertConfig(**sizes)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        theirs.embeddings.word_embeddings.weight[0] = 0  # the neighbour of a last token in a padded batch
    config = FamilyConfig(theirs.config.to_dict())
    network = Network(Mobilebert().network(config)).eval()
    state = {f"mobilebert.{name}": tensor for name, tensor in theirs.state_dict().items()}
    network.load_state_dict(to_ours(state, Mobilebert().rules(config)).tensors)
    batch = jagged()
    states = network(batch)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(n) for n in LENGTHS], batch_first=True)
    wanted = theirs(padded(batch, "input_ids"), attention_mask=mask, token_type_ids=padded(batch, "token_type_ids"))
    rows = torch.cat([wanted.last_hidden_state[i, :n] for i, n in enumerate(LENGTHS)])
    torch.testing.assert_close(states["text"], rows, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(network.pool(states, batch), wanted.pooler_output, atol=1e-5, rtol=1e-5)


def test_another_variant_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="'normalization_type': 'layer_norm'"):
        Mobilebert().network(FamilyConfig({**CONFIG, "normalization_type": "layer_norm"}))


def test_an_omitted_activation_is_the_library_s() -> None:
    stated = FamilyConfig({key: value for key, value in CONFIG.items() if key != "hidden_act"})
    assert Mobilebert().network(stated).layers[0]["activation"] == MobileBertConfig().hidden_act == "relu"
