"""Helpers of the commands that run a backbone over a corpus."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from pipelines.commands.options import ShardSize, Workers, WritingOptions
from workbench.core.packages import extra


@dataclass(frozen=True, kw_only=True)
class FeatureWriting(WritingOptions):
    """Default number of records per shard: features are large, and each process holds the backbone."""

    workers: Workers = 1
    shard_size: ShardSize = 1_000


def feature_stage(name: str, what: str, *, device: str, **settings: Any) -> Any:
    """The stage `module:Class` on the named device; the vision packages are an optional extra.

    Raises:
        WorkbenchError: they are not installed; `what` names the feature that needs them.
    """
    module, _, kind = name.partition(":")
    with extra("vision", f"{what} need"):
        import torch

        found = importlib.import_module(module)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return getattr(found, kind)(device=device, **settings)
