"""The Hugging Face classes next to which text systems are measured (`benchmarks.text_steps`), on our own micro-batches,
padded: the same tokens, the same corruption, the same labels. Attention is SDPA, which the classes choose themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.sequences.batch import Batch, MicroBatch

HIDDEN, INNER, HEADS, LAYERS, KV_HEADS = 256, 1024, 4, 4, 2
IGNORED = -100
Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Peer:
    """A class of Hugging Face, its configuration, and how a batch of ours becomes its inputs.

    `head` is the module that projects states to the vocabulary, where labels stand at the positions of its input.
    """

    model: str
    config: str
    options: dict[str, Any]
    inputs: Callable[[MicroBatch], Inputs]
    head: str = ""

    def made(self, vocabulary: int) -> nn.Module:
        """The model, with fresh weights and the dropout of its configuration's defaults set to 0.1."""
        config = getattr(transformers, self.config)(vocab_size=vocabulary, **self.options)
        model: nn.Module = (ElectraPeer if self.model == "ElectraPeer" else getattr(transformers, self.model))(config)
        return model.train()


class ElectraPeer(nn.Module):
    """ELECTRA's two models: what the generator draws at masked positions, the discriminator finds."""

    def __init__(self, config: transformers.ElectraConfig) -> None:
        super().__init__()
        self.generator = transformers.ElectraForMaskedLM(config)
        self.discriminator = transformers.ElectraForPreTraining(config)
        self.discriminator.electra.embeddings = self.generator.electra.embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Any:
        hidden = labels != IGNORED
        words = self.generator(input_ids, attention_mask).logits
        words = words[hidden] if words.dim() == 3 else words  # a hook has left the masked ones alone (`loss_of`)
        with torch.no_grad():
            drawn = torch.distributions.Categorical(logits=words.float()).sample()
        replaced = input_ids.masked_scatter(hidden, drawn)
        original = torch.where(hidden, labels, input_ids)
        found = self.discriminator(replaced, attention_mask, labels=(replaced != original).long())
        loss = F.cross_entropy(words, labels[hidden]) + 50 * found.loss
        return transformers.modeling_outputs.MaskedLMOutput(loss=loss)


CLASSES = {
    "next_sentence_label": "seq_relationship_logits",
    "sentence_order_label": "sop_logits",
    "sentence_image_labels": "seq_relationship_logits",
}
"""Labels of pairs, and the logits that they belong to."""


def loss_of(model: nn.Module, inputs: dict[str, Any], head: str = "") -> Tensor:
    """The loss of a peer; with `head` the vocabulary is computed at labelled positions alone, which takes own code."""
    if not head:
        loss: Tensor = model(**inputs).loss
        return loss
    labels = inputs["labels"]
    chosen = labels != IGNORED
    given = inputs if isinstance(model, ElectraPeer) else {name: v for name, v in inputs.items() if name != "labels"}
    with model.get_submodule(head).register_forward_pre_hook(lambda _, states: (states[0][chosen], *states[1:])):
        found = model(**given)
    losses = [found.loss] if found.loss is not None else []
    if "labels" not in given:
        losses.append(F.cross_entropy(found.get("prediction_logits", found.get("logits")), labels[chosen]))
    losses += [F.cross_entropy(found[logits], given[name]) for name, logits in CLASSES.items() if name in given]
    return torch.stack(losses).sum()


def padded(batch: Batch, stream: str, values: Tensor, fill: int = 0) -> Tensor:
    """Values of the rows of a stream [rows] as [sequences, longest]."""
    lengths = batch.streams[stream].lengths
    return nn.utils.rnn.pad_sequence(list(values.split(lengths)), batch_first=True, padding_value=fill)


def tokens(batch: Batch, stream: str = "text") -> Inputs:
    """The tokens of a stream and where there are any."""
    ids = batch.streams[stream].fields["input_ids"]
    return {"input_ids": padded(batch, stream, ids), "attention_mask": padded(batch, stream, torch.ones_like(ids))}


def labels(batch: Batch, stream: str = "text") -> Tensor:
    """The labels of all objectives at their rows of a stream [sequences, longest], IGNORED elsewhere."""
    found = torch.full_like(batch.streams[stream].fields["input_ids"], IGNORED)
    for name, targets in batch.targets.items():
        if batch.links.get(name, {}).get("rows") == stream:
            found[targets["rows"]] = targets["labels"]
    return padded(batch, stream, found, IGNORED)


def masked(micro: MicroBatch) -> Inputs:
    """Masked words, wherever objectives predict tokens of the text."""
    (batch,) = micro.views.values()
    return {**tokens(batch), "labels": labels(batch)}


def masked_pair(micro: MicroBatch, name: str = "next_sentence_label") -> Inputs:
    """Masked words, and the class of a pair."""
    (batch,) = micro.views.values()
    (classes,) = (of["labels"] for of in batch.targets.values() if "rows" not in of)
    types = padded(batch, "text", batch.streams["text"].fields["token_type_ids"])
    return {**masked(micro), "token_type_ids": types, name: classes}


def in_languages(micro: MicroBatch) -> Inputs:
    """Masked words, each with its position and its language."""
    (batch,) = micro.views.values()
    fields = batch.streams["text"].fields
    more = {"position_ids": "position_ids", "langs": "language_ids"}
    return {**masked(micro), **{name: padded(batch, "text", fields[own]) for name, own in more.items()}}


def permuted(micro: MicroBatch) -> Inputs:
    """Words in the order that was drawn, each predicted at its position by the second stream."""
    (batch,) = micro.views.values()
    found = tokens(batch)
    rank = padded(batch, "text", batch.streams["text"].fields["rank"])
    asked = batch.streams["query"]
    places = nn.utils.rnn.pad_sequence(list(asked.fields["position_ids"].split(asked.lengths)), batch_first=True)
    targets = nn.functional.one_hot(places, rank.shape[1]).float()
    hidden = (rank[:, None, :] > rank[:, :, None]) | torch.eye(rank.shape[1], dtype=torch.bool) & (rank > 0)[:, None]
    return {**found, "perm_mask": hidden.float(), "target_mapping": targets, "labels": labels(batch, "query")}


def masked_behind(micro: MicroBatch) -> Inputs:
    """The rows of the text and the masks behind it, in one stream: the class has no second one."""
    (batch,) = micro.views.values()
    text, asked = batch.streams["text"], batch.streams["query"]
    found = torch.full_like(text.fields["input_ids"], IGNORED)
    last = [range(end - count, end) for end, count in zip(text.starts[1:], asked.lengths, strict=True)]
    found[torch.tensor([row for rows in last for row in rows])] = batch.targets["mlm"]["labels"]
    return {**tokens(batch), "labels": padded(batch, "text", found, IGNORED)}


def causal(micro: MicroBatch) -> Inputs:
    """Every token by those before it; the class moves the labels itself."""
    (batch,) = micro.views.values()
    found = tokens(batch)
    return {**found, "labels": found["input_ids"].masked_fill(found["attention_mask"] == 0, IGNORED)}


def three_classes(micro: MicroBatch) -> Inputs:
    """As `masked_pair`; the class has two answers, so that the third is asked for as the first."""
    found = masked_pair(micro)
    return {**found, "next_sentence_label": found["next_sentence_label"].clamp_max(1)}


def with_ranks(micro: MicroBatch) -> Inputs:
    """Masked words where a row sees those of its own rank and below, as a mask [sequences, 1, queries, keys]."""
    (batch,) = micro.views.values()
    pairs = any("rows" not in of for of in batch.targets.values())
    found = masked_pair(micro) if pairs else masked(micro)
    rank = padded(batch, "text", batch.streams["text"].fields["rank"])
    seen = (rank[:, None, :] <= rank[:, :, None]) & (found["attention_mask"][:, None, :] > 0)
    return {**found, "attention_mask": seen[:, None]}


def segments(micro: MicroBatch) -> Inputs:
    """Every token by those before it, of segments of one length; the class does not move the labels."""
    found = causal(micro)
    return {"input_ids": found["input_ids"], "labels": found["labels"].roll(-1, 1)}


def translated(micro: MicroBatch) -> Inputs:
    """An encoder's tokens and a decoder's."""
    (batch,) = micro.views.values()
    decoder = tokens(batch, "target")["input_ids"]
    return {**tokens(batch), "decoder_input_ids": decoder, "labels": labels(batch, "target")}


BERT = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
}
GROUPED = {"num_key_value_heads": KV_HEADS, "tie_word_embeddings": True}
GPT = {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS}
BART = {
    "d_model": HIDDEN,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER,
}
T5 = {
    "d_model": HIDDEN,
    "d_ff": INNER,
    "d_kv": HIDDEN // HEADS,
    "num_heads": HEADS,
    "num_layers": LAYERS,
    "num_decoder_layers": LAYERS,
}
WORDS = Peer("BertForMaskedLM", "BertConfig", BERT, masked, "cls.predictions")
PAIRS = Peer("BertForPreTraining", "BertConfig", BERT, masked_pair, "cls.predictions")
XLNET = {
    "d_model": HIDDEN,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "d_inner": INNER,
}
XLM = {"emb_dim": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS, "n_langs": 15}
ALBERT = {**BERT, "embedding_size": HIDDEN, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
PEERS = {
    "albert": Peer(
        "AlbertForPreTraining",
        "AlbertConfig",
        ALBERT,
        partial(masked_pair, name="sentence_order_label"),
        "predictions",
    ),
    "bart": Peer("BartForConditionalGeneration", "BartConfig", BART, translated, "lm_head"),
    "bert": PAIRS,
    "bert-wwm": PAIRS,
    "ernie-baidu": WORDS,
    "electra": Peer(
        "ElectraPeer", "ElectraConfig", {**BERT, "embedding_size": HIDDEN}, masked, "generator.generator_predictions"
    ),
    "glm": Peer("BertForMaskedLM", "BertConfig", BERT, with_ranks, "cls.predictions"),
    "gpt": Peer("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", GPT, causal),
    "gpt-2": Peer("GPT2LMHeadModel", "GPT2Config", GPT, causal),
    "llama": Peer("LlamaForCausalLM", "LlamaConfig", {**BERT, **GROUPED}, causal),
    "macbert": PAIRS,
    "mass": Peer("BartForConditionalGeneration", "BartConfig", BART, translated, "lm_head"),
    "modernbert": Peer("ModernBertForMaskedLM", "ModernBertConfig", {**BERT, "pad_token_id": 0}, masked, "head"),
    "mpnet": Peer("MPNetForMaskedLM", "MPNetConfig", BERT, masked_behind, "lm_head"),
    "roberta": Peer("RobertaForMaskedLM", "RobertaConfig", {**BERT, "max_position_embeddings": 514}, masked, "lm_head"),
    "spanbert": WORDS,
    "structbert": Peer("BertForPreTraining", "BertConfig", BERT, three_classes, "cls.predictions"),
    "t5": Peer("T5ForConditionalGeneration", "T5Config", T5, translated, "lm_head"),
    "t5-v1_1": Peer(
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        translated,
        "lm_head",
    ),
    "transformer-xl": Peer("XLNetLMHeadModel", "XLNetConfig", {**XLNET, "attn_type": "uni"}, segments),
    "unilm": Peer("BertForPreTraining", "BertConfig", {**BERT, "type_vocab_size": 6}, with_ranks, "cls.predictions"),
    "xlm": Peer("XLMWithLMHeadModel", "XLMConfig", XLM, in_languages, "pred_layer"),
    "xlnet": Peer("XLNetLMHeadModel", "XLNetConfig", XLNET, permuted),
}
