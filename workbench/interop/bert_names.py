"""The names of the modules of an encoder in BERT's published code, which most later checkpoints have: tables of rules.

A family adds its own prefixes: `bert.encoder.layer.0`, `lxmert.encoder.r_layers.0`, `uniter.embeddings`.
"""

from __future__ import annotations

from workbench.interop.rules import Copy, Rule, SameTensor, Stack

PARAMETERS = ("weight", "bias")
QKV = ("query", "key", "value")


def both(theirs: str, ours: str) -> list[Rule]:
    """The rules of a weight and its bias."""
    return [SameTensor(f"{theirs}.{p}", f"{ours}.{p}") for p in PARAMETERS]


def stacked(theirs: tuple[str, ...], ours: str, parameters: tuple[str, ...] = PARAMETERS) -> list[Rule]:
    """The rules of several linear layers that are one here."""
    return [Stack(tuple(f"{name}.{p}" for name in theirs), f"{ours}.{p}") for p in parameters]


def attention(theirs: str, ours: str, inside: str = "self") -> list[Rule]:
    """Self-attention with its norm; `inside` is the module of query, key and value."""
    return [
        *stacked(tuple(f"{theirs}.{inside}.{name}" for name in QKV), f"{ours}.attention.qkv"),
        *both(f"{theirs}.output.dense", f"{ours}.attention.output"),
        *both(f"{theirs}.output.LayerNorm", f"{ours}.residual.norm"),
    ]


def feed_forward(inner: str, outer: str, ours: str) -> list[Rule]:
    """The two linear layers of a feed-forward block with its norm."""
    return [
        *both(f"{inner}.dense", f"{ours}.network.inner"),
        *both(f"{outer}.dense", f"{ours}.network.outer"),
        *both(f"{outer}.LayerNorm", f"{ours}.residual.norm"),
    ]


def layer(theirs: str, ours: str) -> list[Rule]:
    """A layer of BERT."""
    return [
        *attention(f"{theirs}.attention", f"{ours}.attention"),
        *feed_forward(f"{theirs}.intermediate", f"{theirs}.output", f"{ours}.feed_forward"),
    ]


def layers(theirs: str, count: int, first: int = 0) -> list[Rule]:
    """A stack of them, which begins with layer `first` here."""
    return [rule for i in range(count) for rule in layer(f"{theirs}.{i}", f"layers.{first + i}")]


def embeddings(theirs: str, ours: str = "embeddings.text") -> list[Rule]:
    """Tables of words, positions and segments, and their norm."""
    return [
        SameTensor(f"{theirs}.word_embeddings.weight", f"{ours}.token.weight"),
        SameTensor(f"{theirs}.position_embeddings.weight", f"{ours}.position.weight"),
        SameTensor(f"{theirs}.token_type_embeddings.weight", f"{ours}.token_type.weight"),
        *both(f"{theirs}.LayerNorm", f"{ours}.norm"),
    ]


def span_head(words: str, theirs: str = "cls.pair_target_predictions") -> list[Rule]:
    """SpanBERT's head that predicts the tokens of a masked span from the tokens around it."""
    layers = f"{theirs}.mlp_layer_norm"
    return [
        SameTensor(f"{theirs}.bias", "sbo.bias"),
        SameTensor(f"{theirs}.position_embeddings.weight", "sbo.place.weight"),
        *both(f"{layers}.linear1", "sbo.first"),
        *both(f"{layers}.layer_norm1", "sbo.first_norm"),
        *both(f"{layers}.linear2", "sbo.second"),
        *both(f"{layers}.layer_norm2", "sbo.second_norm"),
        Copy(f"{theirs}.decoder.weight", words, written_with=f"{theirs}.bias"),
    ]


def word_head(
    words: str, theirs: str = "cls.predictions", dense: str = "transform.dense", norm: str = "transform.LayerNorm"
) -> list[Rule]:
    """The head that predicts masked words; its decoder is the table of `words`, unless the two differ."""
    return [
        SameTensor(f"{theirs}.bias", "mlm.bias"),
        *both(f"{theirs}.{dense}", "mlm.dense"),
        *both(f"{theirs}.{norm}", "mlm.norm"),
        Copy(f"{theirs}.decoder.weight", words, f"{theirs}.bias", own="mlm.output.weight"),
    ]


def decoder_bias(theirs: str = "cls.predictions") -> Rule:
    """The second name of the bias of masked words, where their decoder has it too."""
    return Copy(f"{theirs}.decoder.bias", f"{theirs}.bias", own="mlm.bias")
