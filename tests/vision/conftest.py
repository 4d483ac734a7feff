"""Fixtures of the vision tests: encoded images, samples, batches from padded arrays, a tiny network."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from workbench.sequences.batch import Batch, Stream
from workbench.sequences.sequence import Sample, Sequence, text_fields

Jagged = Callable[..., Batch]


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """An array [height, width, 3] or an image -> encoded bytes."""

    def encoded(image: np.ndarray | Image.Image, kind: str = "PNG", **options: object) -> bytes:
        buffer = io.BytesIO()
        photograph = image if isinstance(image, Image.Image) else Image.fromarray(image)
        photograph.save(buffer, kind, **options)
        return buffer.getvalue()

    return encoded


@pytest.fixture(scope="session")
def photo(encode: Callable[..., bytes]) -> Callable[[int], bytes]:
    """A different noisy image for each number."""
    return lambda seed: encode(np.random.default_rng(seed).integers(0, 256, (40, 56, 3), dtype=np.uint8))


@pytest.fixture
def samples(photo: Callable[[int], bytes]) -> list[Sample]:
    """Eight image-text samples; 6 and 7 are two captions of one image."""
    made = []
    for i in range(8):
        rng = np.random.default_rng(min(i, 6))
        corners = np.sort(rng.random((5, 2, 2)).astype(np.float32), axis=1)
        made.append(
            {
                "key": str(min(i, 6)),
                "corpus": "tiny",
                "draw": (0, i),
                "image": photo(min(i, 6)),
                "captions": [f"caption number {i}"],
                "regions": {
                    "features": rng.normal(size=(5, 12)).astype(np.float32),
                    "boxes": corners.reshape(5, 4),
                    "confidence": rng.random(5).astype(np.float32),
                    "classes": rng.integers(4, size=5),
                    "attributes": rng.integers(4, size=5),
                    "attribute_confidence": rng.random(5).astype(np.float32),
                    "scores": rng.dirichlet(np.ones(4), 5).astype(np.float16),
                },
                "meta": {"backbone": "made-up"},
            }
        )
    return made


@pytest.fixture
def sequences(samples: list[Sample]) -> list[Sequence]:
    """The samples as sequences of a text and an image stream with stored regions."""
    made = []
    for i, sample in enumerate(samples):
        text = text_fields(np.arange(5, 8 + i % 3))
        regions = {name: sample["regions"][name].copy() for name in ("features", "boxes")}
        made.append(
            Sequence(
                {"text": text, "image": regions}, sample["draw"], sample["key"], labels={**sample.get("labels", {})}
            )
        )
    return made


@pytest.fixture(scope="session")
def jagged() -> Jagged:
    """Padded arrays [batch, length, ...] with masks [batch, length] -> a jagged batch.

    `jagged(text=(mask, {field: array}), image=(mask, {field: array}))`
    """

    def made(**streams: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> Batch:
        collated = {}
        for name, (mask, fields) in streams.items():
            mask = mask.bool()
            lengths = mask.sum(1).tolist()
            offsets = torch.tensor([0, *np.cumsum(lengths).tolist()])
            collated[name] = Stream({f: value[mask] for f, value in fields.items()}, offsets, lengths)
        return Batch(collated)

    return made
