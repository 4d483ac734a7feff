"""How releases that read images with texts are trained further: a caption beside its image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.interop.release import Config, Release, with_name
from workbench.recipe.spec import Spec

REGIONS: Spec = {"image": "vision.regions", "backbone": "${vars.backbone}", "max_regions": 100}
"""Stored features; `vars.backbone: null` takes those that the corpora have."""


def captions(release: Release, config: Config, heads: Sequence[str], image: Spec, **more: Any) -> Spec:
    """The task of captions and images (`Release.task`).

    Args:
        heads: of the family, whose objectives are learnt.
        image: how an image becomes rows.
        more: options of the builder.
    """
    known = release.heads(config)
    sequence = {**release.sequence(config), "builder": "image_caption", "image": image, **more}
    return {"sequence": sequence, "objectives": [with_name(name, known[name]) for name in heads]}
