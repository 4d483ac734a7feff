"""Hugging Face BERT <-> a network of one text stream with `self` layers and the mlm and nsp heads.

Names are those of `transformers.BertForPreTraining`, `BertForMaskedLM` and `BertModel` (the latter without the
prefix `bert.`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.files.drafts import write_text
from workbench.files.json_values import parse_json
from workbench.interop.names import Fuse, Rename, Rule, convert, restore
from workbench.models.blocks import ACTIVATIONS as FUNCTIONS
from workbench.models.blocks import Activation
from workbench.models.embeddings.token import Token
from workbench.models.layers.self import Self
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.runs.weights import save_tensors

_ATTENTION = "bert.encoder.layer.{i}.attention"
BODY: list[Rule] = [
    Rename("bert.embeddings.word_embeddings.weight", "embeddings.text.token.weight"),
    Rename("bert.embeddings.position_embeddings.weight", "embeddings.text.position.weight"),
    Rename("bert.embeddings.token_type_embeddings.weight", "embeddings.text.token_type.weight"),
    *(
        rule
        for p in ("weight", "bias")
        for rule in (
            Rename(f"bert.embeddings.LayerNorm.{p}", f"embeddings.text.norm.{p}"),
            Fuse(
                tuple(f"{_ATTENTION}.self.{n}.{p}" for n in ("query", "key", "value")),
                f"layers.{{i}}.attention.attention.qkv.{p}",
            ),
            Rename(f"{_ATTENTION}.output.dense.{p}", f"layers.{{i}}.attention.attention.output.{p}"),
            Rename(f"{_ATTENTION}.output.LayerNorm.{p}", f"layers.{{i}}.attention.residual.norm.{p}"),
            Rename(f"bert.encoder.layer.{{i}}.intermediate.dense.{p}", f"layers.{{i}}.feed_forward.network.inner.{p}"),
            Rename(f"bert.encoder.layer.{{i}}.output.dense.{p}", f"layers.{{i}}.feed_forward.network.outer.{p}"),
            Rename(f"bert.encoder.layer.{{i}}.output.LayerNorm.{p}", f"layers.{{i}}.feed_forward.residual.norm.{p}"),
            Rename(f"bert.pooler.dense.{p}", f"poolers.text.dense.{p}"),
        )
    ),
]
HEADS: list[Rule] = [
    Rename("cls.predictions.bias", "mlm.bias"),
    *(
        rule
        for p in ("weight", "bias")
        for rule in (
            Rename(f"cls.predictions.transform.dense.{p}", f"mlm.dense.{p}"),
            Rename(f"cls.predictions.transform.LayerNorm.{p}", f"mlm.norm.{p}"),
            Rename(f"cls.seq_relationship.{p}", f"nsp.classifier.{p}"),
        )
    ),
]
IGNORED = ("bert.embeddings.position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def spec_from_config(config: dict[str, Any]) -> NetworkSpec:
    """The network that a Hugging Face BERT `config.json` describes.

    Raises:
        WorkbenchError: it is the configuration of another architecture.
    """
    if config.get("model_type") != "bert":
        raise WorkbenchError(f"model_type is {config.get('model_type')!r}; this imports 'bert'")
    eps = config.get("layer_norm_eps", 1e-12)
    text = {
        "embedding": "token",
        "hidden_size": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "max_positions": config["max_position_embeddings"],
        "token_types": config["type_vocab_size"],
        "dropout": config["hidden_dropout_prob"],
        "norm_eps": eps,
    }
    layer = {
        "layer": "self",
        "stream": "text",
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "dropout": config["hidden_dropout_prob"],
        "attention_dropout": config["attention_probs_dropout_prob"],
        "activation": ACTIVATIONS[config["hidden_act"]],
        "norm_eps": eps,
        "repeat": config["num_hidden_layers"],
    }
    return NetworkSpec(streams={"text": text}, layers=[layer], poolers=["text"])


def read_folder(folder: str | Path) -> dict[str, Tensor]:
    """The weights of a Hugging Face BERT folder under our names: a network's, and `mlm.*`, `nsp.*` of the heads.

    Raises:
        WorkbenchError: no config.json or model.safetensors there, or another architecture.
    """
    config_file, weights = Path(folder) / "config.json", Path(folder) / "model.safetensors"
    for file in (config_file, weights):
        if not file.is_file():
            raise WorkbenchError(f"{folder}: there is no {file.name}; a Hugging Face folder has both it and its twin")
    read_spec(folder)
    return from_hugging_face(load_file(weights))


def read_spec(folder: str | Path) -> NetworkSpec:
    """The network that the folder's config.json describes.

    Raises:
        WorkbenchError: it is damaged, or describes another architecture.
    """
    file = Path(folder) / "config.json"
    try:
        config = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WorkbenchError(f"{file} is not valid JSON: {error}; fetch the folder again") from error
    if not isinstance(config, dict):
        raise WorkbenchError(f"{file} holds a {type(config).__name__}, not an object; fetch the folder again")
    return spec_from_config(config)


def from_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A Hugging Face BERT state dict under our names; what we have no place for is left out."""
    if "embeddings.word_embeddings.weight" in state:
        state = {f"bert.{name}": tensor for name, tensor in state.items()}
    return convert({n: t for n, t in state.items() if n not in IGNORED}, [*BODY, *HEADS])[0]


def to_hugging_face(
    network: Network, head: dict[str, Tensor] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state dict and config of the equal Hugging Face BERT. `head`: tensors `mlm.*`, `nsp.*`, where wanted.

    Raises:
        WorkbenchError: the network is no BERT (other streams or layers, pre-norm, rotary positions, ...).
    """
    config = _config(network)
    body, left = restore(network.state_dict(), BODY)
    if left:
        raise WorkbenchError(f"Hugging Face's BERT has no place for {', '.join(left[:5])}")
    state, _ = restore(head or {}, HEADS)
    if "cls.predictions.bias" in state:
        state["cls.predictions.decoder.weight"] = body["bert.embeddings.word_embeddings.weight"].clone()
        state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    return {**body, **state}, config


def _config(network: Network) -> dict[str, Any]:
    embedding: Any = dict(network.embeddings.named_children()).get("text")
    layers = list(network.layers)
    plain = isinstance(embedding, Token) and len(network.embeddings) == 1
    plain = plain and embedding.position is not None and embedding.project is None
    if not plain or not layers or not all(isinstance(layer, Self) for layer in layers):
        raise WorkbenchError("only a network of one text stream with learned positions and 'self' layers is a BERT")
    first: Any = layers[0]
    attention, inner = first.attention.attention, first.feed_forward.network
    act = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    name = next((n for n in act if inner.activation is FUNCTIONS[n]), None)
    if first.attention.residual.pre or attention.rotary is not None or inner.gated or name is None:
        raise WorkbenchError("BERT has post-norm layers, learned positions and a gelu or relu feed-forward network")
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "hidden_size": embedding.hidden_size,
        "vocab_size": embedding.token.num_embeddings,
        "max_position_embeddings": embedding.max_positions,
        "type_vocab_size": embedding.token_type.num_embeddings if embedding.token_type is not None else 0,
        "num_hidden_layers": len(layers),
        "num_attention_heads": attention.num_heads,
        "intermediate_size": inner.outer.in_features,
        "hidden_act": act[name],
        "hidden_dropout_prob": embedding.dropout,
        "attention_probs_dropout_prob": attention.dropout,
        "layer_norm_eps": embedding.norm.eps,
        "initializer_range": 0.02,
        "pad_token_id": 0,
    }


def write_folder(folder: str | Path, network: Network, head: dict[str, Tensor] | None = None) -> None:
    """Write `config.json` and `model.safetensors` so that `transformers.AutoModel` loads them."""
    state, config = to_hugging_face(network, head)
    tensors = {n: t.detach().cpu().contiguous() for n, t in state.items()}
    save_tensors(Path(folder) / "model.safetensors", tensors, {"format": "pt"})
    write_text(Path(folder) / "config.json", json.dumps(config, indent=2) + "\n")
