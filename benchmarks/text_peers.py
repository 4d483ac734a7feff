"""The Hugging Face classes beside which text systems are measured (`benchmarks.text_steps`), on our own micro-batches,
padded: the same tokens, the same corruption, the same labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from workbench.sequences.batch import Batch, MicroBatch

HIDDEN, INNER, HEADS, LAYERS = 256, 1024, 4, 4
IGNORED = -100
Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Peer:
    """A class of Hugging Face, its configuration, and how a batch of ours becomes its inputs."""

    model: str
    config: str
    options: dict[str, Any]
    inputs: Callable[[MicroBatch], Inputs]

    def made(self, vocabulary: int) -> nn.Module:
        """The model, with fresh weights and the dropout of its configuration's defaults set to 0.1."""
        config = getattr(transformers, self.config)(vocab_size=vocabulary, **self.options)
        model: nn.Module = getattr(transformers, self.model)(config)
        return model.train()


def padded(batch: Batch, stream: str, values: Tensor, fill: int = 0) -> Tensor:
    """Values of the rows of a stream [rows] as [sequences, longest]."""
    lengths = batch.streams[stream].lengths
    return nn.utils.rnn.pad_sequence(list(values.split(lengths)), batch_first=True, padding_value=fill)


def tokens(batch: Batch, stream: str = "text") -> Inputs:
    """The tokens of a stream and where there are any."""
    ids = batch.streams[stream].fields["input_ids"]
    return {"input_ids": padded(batch, stream, ids), "attention_mask": padded(batch, stream, torch.ones_like(ids))}


def labels(batch: Batch, objective: str, stream: str = "text") -> Tensor:
    """The labels of an objective at their rows [sequences, longest], IGNORED elsewhere."""
    targets = batch.targets[objective]
    found = torch.full_like(batch.streams[stream].fields["input_ids"], IGNORED)
    found[targets["rows"]] = targets["labels"]
    return padded(batch, stream, found, IGNORED)


def masked(micro: MicroBatch) -> Inputs:
    """Masked words, wherever an objective predicts tokens of the text."""
    (batch,) = micro.views.values()
    name = next(name for name, of in batch.targets.items() if "rows" in of)
    return {**tokens(batch), "labels": labels(batch, name)}


def causal(micro: MicroBatch) -> Inputs:
    """Every token by those before it; the class moves the labels itself."""
    (batch,) = micro.views.values()
    found = tokens(batch)
    return {**found, "labels": found["input_ids"].masked_fill(found["attention_mask"] == 0, IGNORED)}


def with_ranks(micro: MicroBatch) -> Inputs:
    """Masked words where a row sees those of its own rank and below, as a mask of three dimensions."""
    found = masked(micro)
    (batch,) = micro.views.values()
    rank = padded(batch, "text", batch.streams["text"].fields["rank"])
    seen = (rank[:, None, :] <= rank[:, :, None]) & (found["attention_mask"][:, None, :] > 0)
    return {**found, "attention_mask": seen.long()}


def translated(micro: MicroBatch) -> Inputs:
    """An encoder's tokens and a decoder's."""
    (batch,) = micro.views.values()
    (name,) = batch.targets
    decoder = tokens(batch, "target")["input_ids"]
    return {**tokens(batch), "decoder_input_ids": decoder, "labels": labels(batch, name, "target")}


BERT = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
}
PEERS = {
    "bert": Peer("BertForMaskedLM", "BertConfig", BERT, masked),
    "roberta": Peer("RobertaForMaskedLM", "RobertaConfig", {**BERT, "max_position_embeddings": 514}, masked),
    "gpt": Peer(
        "OpenAIGPTLMHeadModel", "OpenAIGPTConfig", {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS}, causal
    ),
    "t5": Peer(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "d_model": HIDDEN,
            "d_ff": INNER,
            "d_kv": HIDDEN // HEADS,
            "num_heads": HEADS,
            "num_layers": LAYERS,
            "num_decoder_layers": LAYERS,
        },
        translated,
    ),
}
