"""The models of the padded peers (`benchmarks.padded_loops`): padded batches in, a loss and the real tokens out."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
from transformers.models.bert.modeling_bert import BertAttention

from benchmarks.padded_batches import Batch
from benchmarks.whole_run_inputs import ENTITY_HEADS, ENTITY_SIZE, FEATURES, HEADS, HIDDEN, INNER, LAYERS
from kg.vectors.vectors import load_vectors


class Plain(nn.Module):
    """BERT: the encoder and its vocabulary."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, vocabulary: str) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=INNER,
        )  # fmt: skip
        self.model = BertForMaskedLM(config)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss and the number of real tokens."""
        states = self.model.bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        return self.masked_words(states, batch["labels"]), batch["attention_mask"].sum()

    def masked_words(self, states: Tensor, labels: Tensor) -> Tensor:
        """The loss over masked words."""
        chosen = labels != -100
        if self.vocabulary == "masked":
            return F.cross_entropy(self.model.cls(states[chosen]), labels[chosen])
        return F.cross_entropy(self.model.cls(states).flatten(0, 1), labels.flatten())


class Tree(Plain):
    """K-BERT: the encoder with soft positions and a dense mask."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}
        return self.masked_words(self.model.bert(**inputs).last_hidden_state, batch["labels"]), batch["rows"].sum()


class Aggregator(nn.Module):
    """ERNIE-THU's layer on padded streams; `first` is the released code's "mix" layer, `last` has no entity output."""

    def __init__(self, config: BertConfig, entity: BertConfig, first: bool, last: bool) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.entity_attention = None if first else BertAttention(entity)
        self.inner, self.entity_inner = nn.Linear(HIDDEN, INNER), nn.Linear(ENTITY_SIZE, INNER)
        self.outer, self.norm = nn.Linear(INNER, HIDDEN), nn.LayerNorm(HIDDEN, 1e-12)
        self.entity_outer = None if last else nn.Linear(INNER, ENTITY_SIZE)
        self.entity_norm = nn.LayerNorm(ENTITY_SIZE, 1e-12)

    def forward(self, text: Tensor, entity: Tensor, mask: Tensor, entity_mask: Tensor) -> tuple[Tensor, Tensor]:
        text = self.attention(text, mask)[0]
        if self.entity_attention is not None:
            entity = self.entity_attention(entity, entity_mask)[0]
        fused = F.gelu(self.inner(text) + self.entity_inner(entity))
        text = self.norm(text + F.dropout(self.outer(fused), 0.1, self.training))
        if self.entity_outer is not None:
            entity = self.entity_norm(entity + F.dropout(self.entity_outer(fused), 0.1, self.training))
        return text, entity


class Fused(Plain):
    """ERNIE-THU: plain layers, then aggregators; masked words and entities predicted at every position."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, vocabulary: str) -> None:
        super().__init__(folder, tokenizer, vocabulary)
        vectors = load_vectors(folder / "entities.safetensors").vectors
        self.table = nn.Embedding.from_pretrained(torch.cat([torch.zeros(1, ENTITY_SIZE), vectors]))
        config = self.model.config
        entity = BertConfig(hidden_size=ENTITY_SIZE, num_attention_heads=ENTITY_HEADS)
        entity._attn_implementation = config._attn_implementation
        plain = self.model.bert.encoder.layer
        self.model.bert.encoder.layer = plain[: LAYERS - 3]
        self.fusion = nn.ModuleList(Aggregator(config, entity, i == 0, i == 2) for i in range(3))
        self.dense, self.norm = nn.Linear(HIDDEN, ENTITY_SIZE), nn.LayerNorm(ENTITY_SIZE, 1e-12)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        ids, mask, entities = batch["input_ids"], batch["attention_mask"], batch["entities"]
        text = self.model.bert(ids, mask).last_hidden_state
        linked = entities > 0
        linked[:, 0] = True  # the released code's entity mask is 1 at [CLS]
        entity, seen = self.table(entities), mask[:, None, None].bool()
        for layer in self.fusion:
            text, entity = layer(text, entity, seen, linked[:, None, None])
        words = self.masked_words(text, batch["labels"])
        meant = self.norm(F.gelu(self.dense(text))) @ self.table(batch["candidates"]).T
        return words + _mean_loss(meant, batch["entity_labels"]), mask.sum() + linked.sum()


class Regions(Plain):
    """UNITER: words and regions in one sequence."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, vocabulary: str) -> None:
        super().__init__(folder, tokenizer, vocabulary)
        self.project, self.box = nn.Linear(FEATURES, HIDDEN), nn.Linear(7, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN, 1e-12) for _ in range(3))
        self.kind = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        words = self.model.bert.embeddings(batch["input_ids"])
        regions = self.norms[0](self.project(batch["features"])) + self.norms[1](self.box(batch["boxes"])) + self.kind
        regions = F.dropout(self.norms[2](regions), 0.1, self.training)
        both = torch.cat([words, regions], 1)
        both = both.gather(1, batch["gather"][..., None].expand(-1, -1, HIDDEN))
        mask = batch["attention_mask"]
        states = self.model.bert.encoder(both, mask[:, None, None].bool()).last_hidden_state
        return self.masked_words(states[:, : batch["labels"].shape[1]], batch["labels"]), mask.sum()


def _mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over labels; 0 where the batch has none."""
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum().clamp_min(1)
