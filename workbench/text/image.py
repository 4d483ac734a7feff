"""The image stream of a text builder: the `image:` part of its spec, and the sequence of a text with an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench import parts
from workbench.sequences import Fields, Sample

Image = Callable[[Sample, np.random.Generator], Fields]


def image_part(spec: str | dict[str, Any] | None) -> Image | None:
    """The part that makes the `image` stream of a sample, by import path; None where the recipe wants no images."""
    return None if spec is None else parts.build("image", spec, "sequence")
