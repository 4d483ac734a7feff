"""Images of examples: kept in the run folder, shown in its report."""

from __future__ import annotations

import hashlib
from pathlib import Path

from workbench.core.images import open_image
from workbench.report.examples import example_image, save_example_image
from workbench.report.run import Record, Run


def keep_image(run: Path, data: bytes) -> str | None:
    """Keep an image (encoded bytes) under its hash; what goes into an example's `image`, None where there is none."""
    if not data:
        return None
    with open_image(data) as image:
        kind = str(image.format).lower()
    return save_example_image(run, f"{hashlib.sha256(data).hexdigest()[:16]}.{kind}", data)


def shown_image(run: Run, example: Record, alt: str) -> str:
    """The image of an example as HTML; empty where it has none."""
    return example_image(run, example["image"], alt) if example.get("image") else ""
