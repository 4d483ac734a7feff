"""The Hugging Face classes next to which vision-language systems are measured (`benchmarks.vision_steps`), on our own
micro-batches, padded: the same tokens, the same regions, the same corruption, the same labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LxmertConfig, LxmertForPreTraining, VisualBertConfig, VisualBertForPreTraining

from pipelines.gpu.text_peers import IGNORED, Inputs, labels, padded, tokens
from workbench.sequences.batch import Batch, MicroBatch

FEATURES, OBJECTS, ATTRIBUTES = 2048, 1600, 400
MATCHES = 1
"""The class of a pair that belongs together, in LXMERT as here; VisualBERT counts the other way."""


@dataclass(frozen=True)
class VisionPeer:
    """As `pipelines.gpu.text_peers.Peer`: how a class is made in so many layers, its inputs, its head of words."""

    model: str
    made: Callable[[int, int], nn.Module]
    inputs: Callable[[MicroBatch], dict[str, Any]]
    head: str = "cls.predictions"


def deep(layers: int) -> dict[str, int]:
    """LXMERT's layers of the text, of the image and of both, as many as its paper's 9, 5 and 5 next to a stack of
    12."""
    return {name: max(1, round(of * layers / 12)) for name, of in (("l_layers", 9), ("r_layers", 5), ("x_layers", 5))}


def lxmert(layers: int, vocabulary: int) -> nn.Module:
    """LXMERT of base width, without its head of answers."""
    config = LxmertConfig(vocab_size=vocabulary, **deep(layers), visual_feat_dim=FEATURES, task_qa=False)
    return LxmertForPreTraining(config).train()


def visual_bert(layers: int, vocabulary: int) -> nn.Module:
    """VisualBERT of base width."""
    config = VisualBertConfig(vocab_size=vocabulary, num_hidden_layers=layers, visual_embedding_dim=FEATURES)
    return VisualBertForPreTraining(config).train()


def joint(micro: MicroBatch) -> Inputs:
    """Words and regions as one sequence, and the masked words."""
    (batch,) = micro.views.values()
    features = regions(batch, "features")
    there = torch.ones(features.shape[:2], dtype=torch.long)
    found = {**tokens(batch), "visual_embeds": features, "visual_attention_mask": there, "visual_token_type_ids": there}
    found["token_type_ids"] = padded(batch, "text", batch.streams["text"].fields["token_type_ids"])
    return {**found, "labels": torch.cat([labels(batch), torch.full_like(there, IGNORED)], 1)}


def joint_pair(micro: MicroBatch) -> Inputs:
    """Also whether the second caption is of this photograph."""
    (batch,) = micro.views.values()
    return {**joint(micro), "sentence_image_labels": MATCHES - batch.targets["itm"]["labels"]}


def apart(micro: MicroBatch) -> dict[str, Any]:
    """Words and regions as two sequences, the masked words, whether they match, and what the hidden regions were."""
    (batch,) = micro.views.values()
    features, boxes = (regions(batch, name) for name in ("features", "boxes"))
    wanted = {"obj": batch.targets["objects"], "attr": batch.targets["attributes"]}
    given = {
        name: (at_rows(batch, of["rows"], of["labels"]), at_rows(batch, of["rows"], of["weights"]))
        for name, of in wanted.items()
    }
    hidden = batch.targets["mrfr"]["rows"]
    original = at_rows(batch, hidden, batch.targets["mrfr"]["features"].float())
    given["feat"] = (original, at_rows(batch, hidden, torch.ones(len(hidden))))
    found = {**tokens(batch), "visual_feats": features, "visual_pos": boxes, "labels": labels(batch)}
    found["token_type_ids"] = torch.zeros_like(found["input_ids"])
    return {**found, "obj_labels": given, "matched_label": batch.targets["itm"]["labels"]}


def regions(batch: Batch, name: str) -> Tensor:
    """A field of the regions [sequences, regions, numbers]; all images have equally many."""
    image = batch.streams["image"]
    return image.fields[name].float().unflatten(0, (len(image.lengths), -1))


def at_rows(batch: Batch, rows: Tensor, values: Tensor) -> Tensor:
    """Values of some regions [sequences, regions, ...], zero elsewhere."""
    image = batch.streams["image"]
    found = values.new_zeros(image.rows, *values.shape[1:])
    found[rows] = values
    return found.unflatten(0, (len(image.lengths), -1))


PEERS = {
    "uniter": VisionPeer("VisualBertForPreTraining", visual_bert, joint),
    "visualbert": VisionPeer("VisualBertForPreTraining", visual_bert, joint_pair),
    "lxmert": VisionPeer("LxmertForPreTraining", lxmert, apart),
}
