"""Starting from the weights of a run or of a Hugging Face folder (`init_from` of a network)."""

from __future__ import annotations

import logging
from pathlib import Path

from torch import Tensor, nn

from workbench.errors import WorkbenchError, unknown
from workbench.interop.bert import read_folder
from workbench.models.root import Root
from workbench.training.checkpoint import MODEL, Checkpoints
from workbench.training.weights import check_shapes, copy_weights, read_weights

logger = logging.getLogger(__name__)
SHOWN = 8


def initialise_from(root: Root, network: str, folder: str) -> list[str]:
    """Copy what matches from a folder into a network and the heads that read it; returns the matched names.

    A run gives the network of the same name, or its only one; heads match by their objectives' names.

    Raises:
        WorkbenchError: neither a run nor a Hugging Face folder, nothing matched, or a shape differs.
    """
    tensors = _read(Path(folder), network)
    heads = {name: head for name, head in root.heads.items() if root.places[name].network == network}
    target = _Target(root.networks[network], heads)
    own = target.state_dict()
    matched = sorted(set(own) & set(tensors))
    missing, unexpected = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    for what, names in (("matched", matched), ("missing", missing), ("unexpected", unexpected)):
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        logger.info(
            "init_from %s: %d %s%s%s", folder, len(names), what, ": " * bool(names), ", ".join(names[:SHOWN]) + more
        )
    if not matched:
        raise WorkbenchError(
            f"init_from {folder}: none of its {len(tensors)} tensors fits network {network!r}. It has names such as "
            f"{', '.join(unexpected[:3]) or 'none'}; the network has {', '.join(missing[:3])}"
        )
    check_shapes(target, tensors, f"init_from {folder}")
    copy_weights(target, tensors)
    return matched


def _read(folder: Path, network: str) -> dict[str, Tensor]:
    """Tensors named as in a network, and those of heads with the objective's name in front."""
    if (folder / "recipe.yaml").is_file():
        return _from_run(folder, network)
    if (folder / "config.json").is_file():
        return read_folder(folder)
    raise WorkbenchError(
        f"init_from {str(folder)!r}: allowed are a run folder (with recipe.yaml) or a Hugging Face folder (with "
        f"config.json and model.safetensors); {'neither is in it' if folder.is_dir() else 'there is no such folder'}"
    )


def _from_run(folder: Path, network: str) -> dict[str, Tensor]:
    best, latest = folder / "best", Checkpoints(folder).latest()
    source = best if best.is_dir() else latest
    if source is None:
        raise WorkbenchError(f"init_from {folder}: the run has no checkpoint yet")
    tensors = read_weights(source / MODEL)
    names = sorted({name.split(".")[1] for name in tensors if name.startswith("networks.")})
    chosen = network if network in names else names[0] if len(names) == 1 else None
    if chosen is None:
        raise unknown("network", network, names, f"init_from {folder}")
    prefix = f"networks.{chosen}."
    body = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    heads = {name.removeprefix("heads."): t for name, t in tensors.items() if name.startswith("heads.")}
    return body | heads


class _Target(nn.Module):
    """A network and heads under the names that `_read` gives."""

    def __init__(self, network: nn.Module, heads: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, child in [*network.named_children(), *heads.items()]:
            self.add_module(name, child)
