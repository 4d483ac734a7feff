"""Hugging Face ERNIE, of Baidu (Sun et al., arXiv:1904.09223, 2.0: arXiv:1907.12412, 3.0: arXiv:2107.02137).

The names of its tensors and the keys of its configuration are BERT's. From 2.0 on each token has an embedding of its
training task. The field here is `task_type_ids`, which the transform `task_type` writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.interop.families.bert import Bert
from workbench.interop.family import FamilyConfig, TaskHeads
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Rule, SameTensor
from workbench.recipe.spec import NetworkSpec, Spec

TASKS = "task_type_ids"


class Ernie(Bert):
    """Hugging Face ERNIE (Baidu): a `text` stream, from 2.0 on with tasks, with `self` layers; heads mlm and nsp."""

    prefix = "ernie."
    library = "Ernie"
    task_heads = TaskHeads("Ernie", "ernie.pooler.dense")

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        return config.get("model_type") == "ernie"

    def network(self, config: FamilyConfig) -> NetworkSpec:
        network = super().network(config)
        if config.get("use_task_id"):
            network.streams["text"]["extra"] = {TASKS: config.get("task_type_vocab_size", 3)}
        return network

    def sequence(self, config: FamilyConfig) -> Spec:
        """The sequence; its code reads texts without a task as those of the first."""
        transforms = {"transforms": [{"transform": "task_type"}]} if config.get("use_task_id") else {}
        return {**super().sequence(config), **transforms}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        tasks = SameTensor("ernie.embeddings.task_type_embeddings.weight", f"embeddings.text.extra.{TASKS}.weight")
        return [*super().rules(config), tasks]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        extra = described.streams["text"].get("extra") or {}
        tasks = {"use_task_id": True, "task_type_vocab_size": extra[TASKS]} if TASKS in extra else {}
        return {**super().config(described), **tasks}
