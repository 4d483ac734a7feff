"""K-BERT's encoder and heads against the released code's numbers, from our sentence tree to the logits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from kg.sequences.tree import BranchedMention, plant
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.models.attention.visibility import visible
from workbench.models.network import Network
from workbench.objectives.classify import Classify
from workbench.objectives.token_classification import TokenClassification, TokenClassificationHead
from workbench.pretraining.forward import HeadInputs
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
        self.weights = read_checkpoint_folder(files).tensors
        self.lengths = (self.inputs["seg"] > 0).sum(1).tolist()
        self.network = self._network()
        self.network.load_state_dict(self.weights)

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
        return Network(NetworkSpec({"text": text}, [layer], ["text"])).eval()

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
            if visible_matrix:
                integers = {name: torch.from_numpy(text[name]) for name in ("branch", "anchor")}
                assert torch.equal(visible(integers, integers), self.inputs["vm"][i, :n, :n].bool())
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
        mentions.append(BranchedMention(start, len(trunk), branches))
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
    head = Classify([str(row) for row in range(golden.config["labels_num"])]).head(golden.network).eval()
    head.load_state_dict({n: golden.original[n.replace("classifier", "output_layer_2")] for n in head.state_dict()})
    seen = HeadInputs.of(golden.network, batch, {"labels": golden.inputs["label"]}, states)
    pooling = golden.config["pooling"]
    torch.testing.assert_close(head.logits(seen), golden.outputs[f"{matrix}.logits.{pooling}"], **CLOSE)
    loss = head(seen).loss / batch.size
    torch.testing.assert_close(loss, golden.outputs[f"{matrix}.loss.{pooling}"], **CLOSE)


@torch.no_grad()
def test_sequence_labelling_head(golden: Golden) -> None:
    """Ours is asked of the sentence's words; the released code also of what was injected, which has a label of its
    own."""
    folder = golden.folder / "ner_head"
    names = json.loads((folder / "config.json").read_text())["labels"]
    weights, inputs, outputs = (load_file(folder / f"{n}.safetensors") for n in ("weights", "inputs", "outputs"))
    assert all(torch.equal(inputs[name], golden.inputs[name]) for name in ("src", "pos", "vm"))
    batch = golden.batch(True, segments=False)
    labels, injected = golden.rows(inputs["label"]), batch.streams["text"].fields["branch"] > 0
    assert torch.equal(labels == names.index("[ENT]"), injected)
    head = TokenClassificationHead(golden.config["hidden_size"], TokenClassification(["O", *names[1:]])).eval()
    head.load_state_dict({n: weights[n.replace("classifier", "output_layer")] for n in head.state_dict()})
    states, correct, loss = golden.network(batch), 0, torch.zeros(())
    for asked in (~injected, injected):
        rows = torch.nonzero(asked & (labels > 0)).flatten()
        out = head(HeadInputs.of(golden.network, batch, tagging(rows, labels[rows]), states))
        assert torch.equal(out.outputs["predicted"], golden.rows(outputs["predictions"])[rows])
        correct, loss = correct + int(out.metrics["accuracy"][0]), loss + out.loss
    assert correct == int(outputs["correct"])
    torch.testing.assert_close(loss / ((labels > 0).sum() + 1e-6), outputs["loss"], **CLOSE)


def tagging(rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The targets of words that have one row each."""
    words, whole = torch.tensor([len(rows)]), torch.zeros(1, dtype=torch.long)
    read, places = torch.ones(len(rows), dtype=torch.bool), torch.stack([rows, rows + 1], 1)
    return {
        "rows": rows,
        "labels": labels,
        "gold": labels,
        "read": read,
        "places": places,
        "words": words,
        "part": whole,
    }
