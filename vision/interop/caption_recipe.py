"""The recipe for training vision-language checkpoints further: a caption with its image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.interop.family import CheckpointFamily, FamilyConfig, with_name
from workbench.recipe.spec import Spec

REGIONS: Spec = {"image_processor": "vision.regions", "backbone": "${vars.backbone}", "max_regions": 100}
"""Stored features; `vars.backbone: null` accepts those of the corpora."""


def captions(
    checkpoint_family: CheckpointFamily, config: FamilyConfig, heads: Sequence[str], image: Spec, **more: Any
) -> Spec:
    """The task of captions and images (`CheckpointFamily.task`).

    Args:
        heads: heads of the family, whose objectives are trained.
        image: the image processor.
        more: options of the builder.
    """
    known = checkpoint_family.heads(config)
    sequence = {**checkpoint_family.sequence(config), "builder": "image_caption", "image_processor": image, **more}
    return {"sequence": sequence, "objectives": [with_name(name, known[name]) for name in heads]}
