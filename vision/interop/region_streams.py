"""Names shared by checkpoints of vision-language models: the stream of image regions, and classifiers of answers."""

from __future__ import annotations

from typing import Any

from workbench.interop.bert_names import both
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import Rule
from workbench.recipe.spec import Spec

IMAGE = "embeddings.image"


def regions(hidden_size: int, feature_size: int, config: FamilyConfig, **variant: Any) -> Spec:
    """The embedding of regions, in one of its variants (`vision.regions`)."""
    return {
        "embedding": "vision.regions",
        "hidden_size": hidden_size,
        "feature_size": feature_size,
        "dropout": config.get("hidden_dropout_prob", 0.1),
        **variant,
    }


def class_head(theirs: str, ours: str, dense: str, norm: str | None, output: str) -> list[Rule]:
    """A head that classifies regions: below `theirs` are its map, its norm (VL-BERT has none) and its output."""
    names = {"dense": dense, "norm": norm, "output": output}
    return [rule for part, name in names.items() if name for rule in both(f"{theirs}.{name}", f"{ours}.{part}")]


def answer_head(theirs: str) -> list[Rule]:
    """Linear, gelu, norm, linear: entries 0, 2 and 3 of a sequence."""
    return [
        *both(f"{theirs}.0", "answers.inner"),
        *both(f"{theirs}.2", "answers.norm"),
        *both(f"{theirs}.3", "answers.outer"),
    ]
