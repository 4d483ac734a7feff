"""The files that make an exported folder one of sentence-transformers: the modules behind the network, and weights.

The library runs the network, pools the states of its rows, and may project and normalise the vector. Its vectors are
those of `Model.encode` for texts of one sequence. It cuts longer ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.interop.checkpoint_files import SENTENCES
from workbench.models.blocks import Ungated
from workbench.recipe.spec import Spec
from workbench.runs.weights import save_tensors

WITH = "sentence-transformers"
Rows = Literal["first", "last", "mean"]
ACTIVATIONS: dict[Ungated | None, str] = {
    None: "linear.Identity",
    "tanh": "activation.Tanh",
    "relu": "activation.ReLU",
    "gelu": "activation.GELU",
}
POOLING = {"first": "cls_token", "last": "lasttoken", "mean": "mean_tokens"}


class VectorLayers(NamedTuple):
    """How the vector of a text is computed from the states of its rows.

    Attributes:
        rows: the row, or the mean of all.
        norm, linear, activation: layers of a contrastive head.
        cosine: whether the vector is normalised behind them, or compared by products; None: neither, without a head.
    """

    rows: Rows
    norm: nn.LayerNorm | None = None
    linear: nn.Linear | None = None
    activation: Ungated | None = None
    cosine: bool | None = None


def vector_layers(heads: nn.ModuleDict, streams: Sequence[str], pool: str | None, causal: bool) -> VectorLayers:
    """The layers of a pooling: `mean`, `summary`, or an objective with vectors; by default that one, or `mean`.

    Args:
        heads, streams: of the network; streams that are exported alone.
        causal: whether texts are read from left to right, so that their last row is the summary.

    Raises:
        WorkbenchError: there is no such pooling, several objectives have vectors, or the network reads more than texts.
    """
    if [*streams] != ["text"]:
        raise WorkbenchError(
            f"--also {WITH}: the network reads {', '.join(streams)}, and the library texts alone; pass --stream text"
        )
    own: dict[str, Any] = {name: head for name, head in heads.items() if hasattr(head, "vector_layers")}
    pool = pool or ("mean" if not own else next(iter(own)) if len(own) == 1 else None)
    if pool in own:
        layers: VectorLayers = own[pool].vector_layers("text")
        return layers
    if pool not in ("mean", "summary"):
        raise WorkbenchError(
            f"--pool {pool}: {WITH} has no form for it; allowed: {', '.join(('mean', 'summary', *own))}"
        )
    return VectorLayers("mean" if pool == "mean" else "last" if causal else "first")


def write_modules(folder: Path, text: Spec, layers: VectorLayers) -> None:
    """Write the modules behind the network into an exported folder.

    Args:
        text: the stream; its positions are the tokens at which the library cuts a text.
    """
    names = ["Transformer", "Pooling"]
    pooling = {f"pooling_mode_{each}": rows == layers.rows for rows, each in POOLING.items()}
    _write(folder / "1_Pooling", {"word_embedding_dimension": text["hidden_size"], **pooling})
    if layers.norm is not None:
        _write(folder / f"{len(names)}_LayerNorm", {"dimension": text["hidden_size"]}, _weights(layers.norm, "norm"))
        names.append("LayerNorm")
    if layers.linear is not None:
        sizes = {"in_features": layers.linear.in_features, "out_features": layers.linear.out_features}
        stated = {
            **sizes,
            "bias": layers.linear.bias is not None,
            "activation_function": _activation(layers.activation),
        }
        _write(folder / f"{len(names)}_Dense", stated, _weights(layers.linear, "linear"))
        names.append("Dense")
    if layers.cosine:
        (folder / f"{len(names)}_Normalize").mkdir(exist_ok=True)
        names.append("Normalize")
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(names) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    listed, network, model = SENTENCES
    write_text(folder / network, json.dumps({"max_seq_length": text["max_positions"], "do_lower_case": False}))
    write_text(folder / model, json.dumps({"similarity_fn_name": "dot" if layers.cosine is False else "cosine"}))
    write_text(folder / listed, json.dumps(modules, indent=2) + "\n")


def _activation(name: Ungated | None) -> str:
    """The class of an activation.

    Raises:
        WorkbenchError: the library has no module for it.
    """
    if name not in ACTIVATIONS:
        allowed = ", ".join(str(each or "null") for each in ACTIVATIONS)
        raise WorkbenchError(f"--also {WITH}: activation = {name}; allowed: {allowed}. Pass --pool mean or summary")
    return f"torch.nn.modules.{ACTIVATIONS[name]}"


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    if tensors is not None:
        save_tensors(folder / "model.safetensors", tensors, {"format": "pt"})


def _weights(module: nn.Module, name: str) -> dict[str, Tensor]:
    return {f"{name}.{part}": tensor.detach().cpu().contiguous() for part, tensor in module.state_dict().items()}
