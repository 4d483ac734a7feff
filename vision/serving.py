"""Tabs for images: questions and captions, and search of images by texts and of texts by images."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from workbench.core.errors import WorkbenchError
from workbench.serving.tab import Served, Tab
from workbench.serving.tabs import PredictionTab

THUMBNAIL = 160
"""The longest side of an image on the page, in pixels."""


class ImagePredictionTab(PredictionTab):
    """What a run answers to a question about an image, or writes of it."""

    images: ClassVar[bool] = True

    def first(self) -> Any:
        import gradio

        return gradio.Image(type="pil", label="Image", height=280)


class SearchTab(Tab):
    """Which of some images fits a text best, and which of some texts an image."""

    title = "Search"

    @classmethod
    def of(cls, runs: Sequence[Served]) -> list[Tab]:
        able = [run for run in runs if any(hasattr(head, "vectors") or hasattr(head, "match") for head in _heads(run))]
        able = [run for run in able if "image" in run.model.torch.network(run.model.torch.network_name(None)).sizes]
        return [cls(able)] if able else []

    def inputs(self) -> list[Any]:
        import gradio

        return [
            gradio.File(file_count="multiple", file_types=["image"], label="Images"),
            gradio.Textbox(lines=3, label="Texts, one in each line"),
        ]

    def answer(self, run: Served, control: str | None, *asked: Any) -> str:
        files, lines = asked
        texts = [line.strip() for line in str(lines).splitlines() if line.strip()]
        if not files or not texts:
            raise WorkbenchError("one image and one text are needed at least")
        scores = run.under(control).similarity(texts, [Path(file) for file in files])
        images = [_thumbnail(Path(file)) for file in files]
        by_text = [_ranked(html.escape(text), row, images) for text, row in zip(texts, scores, strict=True)]
        named = [html.escape(text) for text in texts]
        by_image = [_ranked(image, column, named) for image, column in zip(images, scores.T, strict=True)]
        return f"<h4>Images of each text</h4>{''.join(by_text)}<h4>Texts of each image</h4>{''.join(by_image)}"


def _heads(run: Served) -> list[Any]:
    heads: dict[str, Any] = dict(run.model.torch.heads.items())
    return [*heads.values()]


def _ranked(asked: str, scores: np.ndarray, found: list[str]) -> str:
    """A row: what was asked, and what was found, the best first, with its score."""
    order = np.argsort(-scores, kind="stable")
    cells = "".join(f"<td>{found[i]}<br>{scores[i]:.3f}</td>" for i in order)
    return f'<div style="overflow-x:auto"><table><tr><th>{asked}</th>{cells}</tr></table></div>'


def _thumbnail(place: Path) -> str:
    with Image.open(place) as image:
        small = image.convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(place.name)}" src="data:image/jpeg;base64,{data}">'


TABS: list[type[Tab]] = [ImagePredictionTab, SearchTab]
