"""SpanBERT's pretraining checkpoint_family starts a run, its head of spans too, and comes out as a BERT for the
library."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.interop.worlds import equal, model_of, recipe_file, text_task, texts, there_and_back, tokenizer
from workbench.interop.families.bert import Bert


def test_spanbert_goes_in_and_out(shared: Path, tmp_path: Path) -> None:
    folder = shared / "golden/spanbert/model"
    config, golden = json.loads((folder / "config.json").read_text()), load_file(folder / "weights.safetensors")
    task = text_task(texts(tmp_path / "corpus"), "mlm", "sbo")
    task["objectives"][1] |= {"max_span": config["max_pair_targets"], "place_size": 200}
    model = {**model_of("bert", config), "poolers": [], "init_from": str(folder)}
    recipe = recipe_file(tmp_path / "r.yaml", model, task, tokenizer=str(tokenizer(tmp_path / "tokenizer.json")))
    written = there_and_back(tmp_path, recipe, "bert")
    original = {Bert().spelt(name): tensor for name, tensor in golden.items()}
    assert written.keys() - {"cls.predictions.decoder.bias"} == original.keys()
    equal({name: tensor for name, tensor in written.items() if name in original}, original)

    theirs = importlib.import_module("transformers").AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    mask = inputs["src_tokens"] != config["pad_id"]
    with torch.no_grad():
        logits = theirs(inputs["src_tokens"], attention_mask=mask.long()).logits
    torch.testing.assert_close(logits[mask], outputs["mlm_logits"][mask], rtol=0, atol=1e-5)
