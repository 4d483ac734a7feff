"""How checkpoints that read images with texts are trained further: a caption next to its image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.interop.family import CheckpointFamily, FamilyConfig, with_name
from workbench.recipe.spec import Spec

REGIONS: Spec = {"image_processor": "vision.regions", "backbone": "${vars.backbone}", "max_regions": 100}
"""Stored features; `vars.backbone: null` takes those that the corpora have."""


def captions(
    checkpoint_family: CheckpointFamily, config: FamilyConfig, heads: Sequence[str], image: Spec, **more: Any
) -> Spec:
    """The task of captions and images (`CheckpointFamily.task`).

    Args:
        heads: of the family, whose objectives are learned.
        image: how an image becomes rows.
        more: options of the builder.
    """
    known = checkpoint_family.heads(config)
    sequence = {**checkpoint_family.sequence(config), "builder": "image_caption", "image_processor": image, **more}
    return {"sequence": sequence, "objectives": [with_name(name, known[name]) for name in heads]}
