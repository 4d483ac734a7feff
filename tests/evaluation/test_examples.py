"""Images of examples: kept in the run's folder at the end of an evaluation, which nothing may then spoil."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.evaluation.scoring.example_images import keep_image
from workbench.report.html import image


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF"])
def test_whatever_can_be_evaluated_can_be_shown(kind: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(buffer, kind)
    data = buffer.getvalue()
    kept = keep_image(tmp_path, data)
    assert kept is not None
    assert (tmp_path / kept).read_bytes() == data
    assert "base64" in image(data, "a square", kept, side=360)


def test_there_may_be_no_image(tmp_path: Path) -> None:
    assert keep_image(tmp_path, b"") is None
