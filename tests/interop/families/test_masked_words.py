"""Folders of the library's classes for masked words: the logits are the same here, and in the class that opens the
export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from tests.interop.worlds import equal, tokenizer
from workbench.interop.checkpoint_writer import export
from workbench.interop.run_or_checkpoint import load
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.batch import Batch, Stream

BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
ROBERTA = {**BERT, "pad_token_id": 1, "max_position_embeddings": 42, "type_vocab_size": 1}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}
DEBERTA = {
    **BERT,
    "relative_attention": True,
    "share_att_key": True,
    "position_biased_input": False,
    "position_buckets": 4,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
}
FOLDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "xlm-roberta": ("xlm_roberta", "XLMRoberta", ROBERTA),
    "longformer": ("longformer", "Longformer", {**ROBERTA, "attention_window": 4}),
    "camembert": ("camembert", "Camembert", ROBERTA),
    "deberta-v2": ("deberta_v2", "DebertaV2", DEBERTA),
    "distilbert": ("distilbert", "DistilBert", DISTILBERT),
}
IDS = [2, 9, 5, 12, 7, 3], [2, 15, 3]


def released(folder: Path, library: str, sizes: dict[str, Any]) -> Any:
    """The library's model of random weights, which is saved in the folder with a tokenizer."""
    words = json.loads(tokenizer(folder / "tokenizer.json").read_text())["model"]["vocab"]
    torch.manual_seed(0)
    config = getattr(transformers, f"{library}Config")(vocab_size=len(words), **sizes)
    model = getattr(transformers, f"{library}ForMaskedLM")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return model.eval()


def logits_of(loaded: LoadedRun) -> Tensor:
    """Of two texts without padding, one after another."""
    lengths = [len(ids) for ids in IDS]
    fields = {
        "input_ids": torch.tensor([token for ids in IDS for token in ids]),
        "position_ids": torch.cat([torch.arange(n) for n in lengths]),
        "token_type_ids": torch.zeros(sum(lengths), dtype=torch.long),
    }
    network = loaded.model.networks["main"].eval()
    states = network(Batch({"text": Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)}))
    logits: Tensor = loaded.model.heads["mlm"].logits(network, states["text"])
    return logits


@torch.no_grad()
@pytest.mark.parametrize("name", FOLDERS)
def test_masked_words_in_and_out(name: str, tmp_path: Path) -> None:
    family, library, sizes = FOLDERS[name]
    theirs = released(tmp_path / "theirs", library, sizes)
    wanted = torch.cat([theirs(input_ids=torch.tensor([ids])).logits[0] for ids in IDS])
    loaded = load(tmp_path / "theirs")
    torch.testing.assert_close(logits_of(loaded), wanted, atol=1e-5, rtol=1e-5)
    written = export(loaded, tmp_path / "ours", family, place=tmp_path / "theirs")
    golden = load_file(tmp_path / "theirs/model.safetensors")
    equal({key: tensor for key, tensor in written.tensors.items() if key in golden}, golden)
    assert golden.keys() <= written.tensors.keys()
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    assert type(again) is type(theirs)
    assert again.config.model_type == theirs.config.model_type
    assert torch.equal(torch.cat([again(input_ids=torch.tensor([ids])).logits[0] for ids in IDS]), wanted)
