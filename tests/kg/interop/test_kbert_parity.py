"""K-BERT's encoder and heads against the released code's numbers, from our sentence tree to the logits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from kg.sequences.tree import Mention, plant
from workbench.interop.files import find_files
from workbench.interop.reading import read_release
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.rows import take
from workbench.sequences.sequence import Sequence, text_fields

CLOSE = {"atol": 1e-5, "rtol": 0}


class Golden:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = json.loads((folder / "encoder/config.json").read_text())
        self.inputs = load_file(folder / "encoder/inputs.safetensors")
        self.outputs = load_file(folder / "encoder/outputs.safetensors")
        self.original = load_file(folder / "encoder/weights.safetensors")
        files = find_files(folder / "encoder")
        assert files is not None
        self.weights = read_release(files).tensors
        self.lengths = (self.inputs["seg"] > 0).sum(1).tolist()
        self.network = self._network()
        self.network.load_state_dict({n: t for n, t in self.weights.items() if not n.startswith("poolers")})

    def _network(self) -> Network:
        c = self.config
        norm = {"norm": "unbiased", "norm_eps": 1e-6}
        text = {
            "embedding": "token",
            "vocab_size": c["vocab_size"],
            "hidden_size": c["emb_size"],
            "max_positions": c["max_position"],
            **norm,
        }
        layer = {
            "layer": "self",
            "stream": "text",
            "num_heads": c["heads_num"],
            "intermediate_size": c["feedforward_size"],
            "repeat": c["layers_num"],
            **norm,
        }
        return Network(NetworkSpec({"text": text}, [layer])).eval()

    def batch(self, visible_matrix: bool, segments: bool = True) -> Batch:
        """The batch from our own trees; ids, soft positions and segments are compared with the released ones."""
        vocabulary = {t: i for i, t in enumerate((self.folder / "encoder/vocab.txt").read_text().splitlines())}
        given = json.loads((self.folder / "injection/inputs.json").read_text())
        records = {r["id"]: r for r in json.loads((self.folder / "injection/outputs.json").read_text())}
        sequences = []
        for i, name in enumerate(self.config["record_ids"]):
            tree = planted(given, records[name], vocabulary, visible_matrix)
            n = self.lengths[i]
            text = tree.streams["text"]
            assert text["input_ids"].tolist() == self.inputs["src"][i, :n].tolist()
            assert text["position_ids"].tolist() == self.inputs["pos"][i, :n].tolist()
            if segments:
                text["token_type_ids"] = self.inputs["seg"][i, :n].numpy() - 1
            sequences.append(tree)
        return collate(sequences)

    def rows(self, padded: Tensor) -> Tensor:
        return torch.cat([padded[i, :n] for i, n in enumerate(self.lengths)])


def planted(given: dict, record: dict, vocabulary: dict[str, int], visible_matrix: bool) -> Sequence:
    """The tree of one injection record of Chinese characters."""
    language = given[record["language"]]
    trunk: list[int] = []
    mentions = []
    for segment in language["sentences"][record["sentence_index"]]:
        pieces = [segment] if segment in given["special_tokens"] else list(segment)
        start = len(trunk)
        trunk += [vocabulary[p] for p in pieces]
        spelt = dict.fromkeys(p + o for s, p, o in language["triples"] if s == segment)
        branches = tuple(tuple(vocabulary[c] for c in text) for text in list(spelt)[: record["max_entities"]])
        mentions.append(Mention(start, len(trunk), branches))
    tree = Sequence({"text": text_fields(np.array(trunk))}, (0,))
    plant(tree, mentions, visible_matrix)
    take(tree, np.arange(min(tree.length("text"), record["max_length"])))
    return tree


@pytest.fixture(scope="module")
def golden(shared: Path) -> Golden:
    return Golden(shared / "golden/kbert")


@torch.no_grad()
@pytest.mark.parametrize("matrix", ["vm", "no_vm"])
def test_states_and_classifier(golden: Golden, matrix: str) -> None:
    batch = golden.batch(matrix == "vm")
    seen = []
    layers = golden.network.layers
    hooks = [layer.register_forward_hook(lambda m, a, out: seen.append(out["text"])) for layer in layers]
    embedded = golden.network.embeddings["text"](batch.streams["text"].fields)
    torch.testing.assert_close(embedded, golden.rows(golden.outputs["embedding"]), **CLOSE)
    states = golden.network(batch)
    for hook in hooks:
        hook.remove()
    for i, hidden in enumerate(seen):
        torch.testing.assert_close(hidden, golden.rows(golden.outputs[f"{matrix}.hidden.{i}"]), **CLOSE)
    w = golden.original
    first = torch.tanh(
        F.linear(golden.network.first_rows(states, batch), w["output_layer_1.weight"], w["output_layer_1.bias"])
    )
    logits = F.linear(first, w["output_layer_2.weight"], w["output_layer_2.bias"])
    torch.testing.assert_close(logits, golden.outputs[f"{matrix}.logits.first"], **CLOSE)
    loss = F.cross_entropy(logits, golden.inputs["label"])
    torch.testing.assert_close(loss, golden.outputs[f"{matrix}.loss.first"], **CLOSE)


@torch.no_grad()
def test_sequence_labelling_head(golden: Golden) -> None:
    folder = golden.folder / "ner_head"
    weights, inputs, outputs = (load_file(folder / f"{n}.safetensors") for n in ("weights", "inputs", "outputs"))
    states = golden.network(golden.batch(True, segments=False))["text"]
    logits = F.linear(states, weights["output_layer.weight"], weights["output_layer.bias"])
    labels = golden.rows(inputs["label"])
    assert torch.equal(logits.argmax(-1), golden.rows(outputs["predictions"]))
    counted = labels > 0
    assert int((logits.argmax(-1) == labels)[counted].sum()) == int(outputs["correct"])
    loss = F.cross_entropy(logits[counted], labels[counted], reduction="sum") / (counted.sum() + 1e-6)
    torch.testing.assert_close(loss, outputs["loss"], **CLOSE)
