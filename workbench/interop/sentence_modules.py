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

from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.interop.checkpoint_files import SENTENCES
from workbench.models.feed_forward import Ungated
from workbench.models.pooler import Pooler
from workbench.recipe.spec import POOLER, Spec
from workbench.runs.weights import save_tensors

WITH = "sentence-transformers"
Rows = Literal["first", "last", "mean", "max"]
POOLING = {"first": "cls_token", "last": "lasttoken", "mean": "mean_tokens", "max": "max_tokens"}
FUNCTIONS: dict[Ungated | None, str] = {
    None: "linear.Identity",
    "tanh": "activation.Tanh",
    "relu": "activation.ReLU",
    "gelu": "activation.GELU",
}
"""The library's names of activations."""


class VectorLayers(NamedTuple):
    """How the vector of a text is computed from the states of its rows.

    Attributes:
        rows: the row, or the mean or maximum of all.
        norm, linear, activation: layers of a contrastive head, or of a pooler.
        cosine: whether the vector is normalised behind them, or compared by products; None: neither, without a
            contrastive head.
    """

    rows: Rows
    norm: nn.LayerNorm | None = None
    linear: nn.Linear | None = None
    activation: Ungated | None = None
    cosine: bool | None = None


def vector_layers(
    heads: nn.ModuleDict, streams: Sequence[str], pool: str | None, causal: bool, poolers: nn.ModuleDict
) -> VectorLayers:
    """The layers of a pooling: `mean`, `summary`, `pooled`, or an objective with vectors; by default that one, or
    `mean`.

    Args:
        heads, streams, poolers: of the network; streams that are exported alone.
        causal: whether texts are read from left to right, so that their last row is the summary.

    Raises:
        WorkbenchError: there is no such pooling, several objectives have vectors, the network reads more than texts, or
            the library has no form for its pooler.
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
    if pool == "pooled" and "text" in poolers:
        pooler = poolers["text"]
        assert isinstance(pooler, Pooler)
        return _pooled(pooler, causal)
    if pool not in ("mean", "summary"):
        raise WorkbenchError(
            f"--pool {pool}: {WITH} has no form for it; allowed: {', '.join(('mean', 'summary', *own))}"
            ", and pooled where the network has a pooler"
        )
    return VectorLayers("mean" if pool == "mean" else "last" if causal else "first")


def _pooled(pooler: Pooler, causal: bool) -> VectorLayers:
    """The layers of a pooler.

    Raises:
        WorkbenchError: the library has no form for them.
    """
    name, options = KINDS["pooler"].name(type(pooler)), pooler.options
    rows: Rows | None = _ROWS.get("last" if causal and name == POOLER else name)
    if rows is None or options.activation not in (FUNCTIONS if options.dense else (None,)) or options.norm_eps:
        raise WorkbenchError(
            f"--pool pooled: {WITH} has no form for the pooler {name!r} with dense = {options.dense}, activation = "
            f"{options.activation} and norm_eps = {options.norm_eps}; allowed: {', '.join(_ROWS)} with the activation "
            f"{', '.join(map(str, FUNCTIONS))} of a linear layer, and no norm. Pass --pool mean or summary"
        )
    return VectorLayers(rows, None, pooler.dense if options.dense else None, options.activation)


_ROWS: dict[str, Rows] = {POOLER: "first", "first": "first", "last": "last", "mean": "mean", "max": "max"}
"""By pooler, the rows of the library."""


def write_modules(folder: Path, text: Spec, layers: VectorLayers, longest: int | None = None) -> None:
    """Write the modules behind the network into an exported folder.

    Args:
        text: the stream, which has positions for so many tokens.
        longest: tokens of a text of the run. The library cuts a text there that `encode` reads in several sequences.
    """
    names = ["Transformer", "Pooling"]
    pooling = {f"pooling_mode_{each}": rows == layers.rows for rows, each in POOLING.items()}
    _write(folder / "1_Pooling", {"word_embedding_dimension": text["hidden_size"], **pooling})
    if layers.norm is not None:
        _write(folder / f"{len(names)}_LayerNorm", {"dimension": text["hidden_size"]}, _weights(layers.norm, "norm"))
        names.append("LayerNorm")
    if layers.linear is not None:
        sizes = {"in_features": layers.linear.in_features, "out_features": layers.linear.out_features}
        function = _function(layers.activation)
        stated = {**sizes, "bias": layers.linear.bias is not None, "activation_function": function}
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
    cut = min((each for each in (text["max_positions"], longest) if each), default=None)
    write_text(folder / network, json.dumps({"max_seq_length": cut, "do_lower_case": False}))
    write_text(folder / model, json.dumps({"similarity_fn_name": "dot" if layers.cosine is False else "cosine"}))
    write_text(folder / listed, json.dumps(modules, indent=2) + "\n")


def _function(name: Ungated | None) -> str:
    """The class of an activation.

    Raises:
        WorkbenchError: the library has no module for it.
    """
    if name not in FUNCTIONS:
        allowed = ", ".join(str(each or "null") for each in FUNCTIONS)
        raise WorkbenchError(f"--also {WITH}: activation = {name}; allowed: {allowed}. Pass --pool mean or summary")
    return f"torch.nn.modules.{FUNCTIONS[name]}"


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    if tensors is not None:
        save_tensors(folder / "model.safetensors", tensors, {"format": "pt"})


def _weights(module: nn.Module, name: str) -> dict[str, Tensor]:
    return {f"{name}.{part}": tensor.detach().cpu().contiguous() for part, tensor in module.state_dict().items()}
