"""DeBERTa v2 and v3: states and logits are the library's, for all ways of positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, DebertaV2Config, DebertaV2Model

from tests.contracts.cases import BERT_SIZES, FamilyCase
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.deberta_v2 import DebertaV2
from workbench.interop.family import FamilyConfig
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.objectives.mlm import MlmHead
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, Stream

V3 = {
    **BERT_SIZES,
    "model_type": "deberta-v2",
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "position_biased_input": False,
    "position_buckets": 6,
    "max_relative_positions": -1,
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
}
WAYS: dict[str, dict[str, Any]] = {
    "v3": {},
    "each distance": {"position_buckets": -1, "max_relative_positions": 7, "norm_rel_ebd": "none"},
    "content to position": {"pos_att_type": ["c2p"], "position_biased_input": True, "type_vocab_size": 2},
    "position to content": {"pos_att_type": ["p2c"], "max_relative_positions": 9},
}
CASES = {
    "": FamilyCase(config=V3),
    "with positions": FamilyCase(config={**V3, **WAYS["content to position"]}),
    "each distance": FamilyCase(config={**V3, **WAYS["each distance"]}),
}
LENGTHS = [40, 1, 23]


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_states_are_theirs(way: str, tmp_path: Path) -> None:
    """Also of texts that are longer than the distances that have rows."""
    config = {**V3, **WAYS[way], "max_position_embeddings": 12 if way in ("v3", "each distance") else 40}
    torch.manual_seed(0)
    theirs = DebertaV2Model(DebertaV2Config(**config)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    files = find_files(tmp_path)
    assert files is not None
    read = read_checkpoint_folder(files)
    assert (read.family, read.unused) == ("deberta_v2", [])
    network = Network(read.network).eval()
    network.load_state_dict({name: read.tensors[name] for name in network.state_dict()})
    check_states(network, theirs)


def check_states(network: Network, theirs: DebertaV2Model) -> None:
    ids = torch.randint(5, 30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    places = torch.cat([torch.arange(n) for n in LENGTHS])
    fields = {"input_ids": ids, "position_ids": places, "token_type_ids": torch.zeros_like(ids)}
    states = network(Batch({"text": Stream(fields, torch.tensor([0, *LENGTHS]).cumsum(0), LENGTHS)}))["text"]
    for found, text, place in zip(states.split(LENGTHS), ids.split(LENGTHS), places.split(LENGTHS), strict=True):
        position_ids = place.clamp_max(theirs.config.max_position_embeddings - 1)[None]
        wanted = theirs(text[None], position_ids=position_ids).last_hidden_state[0]
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_sum_of_two_tables_leaves_as_one(tmp_path: Path) -> None:
    recipe = load_recipe("deberta-v3-tiny")
    torch.manual_seed(0)
    network = build_networks(recipe, vocab_size=30)["main"].eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    spec = recipe.networks["main"]
    written = exported_weights("deberta_v2", network, spec, torch.nn.ModuleDict(), {}, vocab_size=30)
    write_checkpoint_folder(tmp_path, written)
    theirs = AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(theirs, DebertaV2Model)
    check_states(network, theirs)


def test_a_head_tied_to_one_of_two_tables_is_refused() -> None:
    """The library predicts by the sum of both."""
    recipe = load_recipe("deberta-v3-tiny")
    network = build_networks(recipe, vocab_size=30)["main"]
    heads = torch.nn.ModuleDict({"mlm": MlmHead(network)})
    given = network, recipe.networks["main"], heads, {"mlm": {"objective": "mlm"}}
    with pytest.raises(WorkbenchError, match="tied to the first table of delta_token"):
        exported_weights("deberta_v2", *given, vocab_size=30)


def test_published_files_name_their_head_otherwise(tmp_path: Path) -> None:
    config = FamilyConfig({**V3, "legacy": False})
    names = [name for rule in DebertaV2().rules(config) for name in getattr(rule, "ours", ())]
    assert "mlm.dense.weight" in names
    theirs = DebertaV2Model(DebertaV2Config(**V3))
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    width, words = 16, 30
    head = {
        "dense.weight": [width, width],
        "dense.bias": [width],
        "LayerNorm.weight": [width],
        "LayerNorm.bias": [width],
    }
    more = {f"lm_predictions.lm_head.{name}": torch.ones(size) for name, size in {**head, "bias": [words]}.items()}
    save_file({**tensors, **more}, tmp_path / "model.safetensors", {"format": "pt"})
    files = find_files(tmp_path)
    assert files is not None
    read = read_checkpoint_folder(files)
    assert [*read.heads] == ["mlm"]
    assert bool(read.tensors["mlm.dense.weight"].eq(1).all())


@pytest.mark.parametrize(
    ("key", "value"), [("conv_kernel_size", 3), ("share_att_key", False), ("embedding_size", 8), ("pos_att_type", [])]
)
def test_what_no_component_computes_is_refused(key: str, value: Any) -> None:
    with pytest.raises(WorkbenchError, match=f"{key} = .* is not supported"):
        DebertaV2().network(FamilyConfig({**V3, key: value}))
