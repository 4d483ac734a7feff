"""Small corpora of each kind, and WebDataset shards written with other tools."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter

Write = Callable[..., Corpus]


def image_bytes(size: tuple[int, int] = (8, 6), kind: str = "JPEG", colour: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (colour % 256, 100, 50)).save(buffer, kind)
    return buffer.getvalue()


def text_samples(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of 0 to 200 words with mentions of several words."""
    rng = random.Random(seed)
    words = ["Paris", "a small town", "river", "the Kingdom of Norway", "Zug.", "flows on.", "北京市。"]
    samples = []
    for _ in range(count):
        parts, spans, at = [], [], 0
        for _ in range(rng.randint(0, 40)):
            word = rng.choice(words)
            if rng.random() < 0.3:
                spans.append([at, at + len(word), f"Q{rng.randint(1, 9)}", 0.5])
            parts.append(word)
            at += len(word) + 1
        samples.append({"text": " ".join(parts), "spans": spans, "meta": {"source": "made"}})
    return samples


def image_samples(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": image_bytes(kind="PNG" if i % 2 else "JPEG", colour=i),
            "captions": [f"caption {j} of image {i}" for j in range(i % 4)],
            "caption_spans": [[[0, 7, "Q1", 1.0]] for _ in range(i % 4)],
            "regions": {
                "features": rng.normal(size=(3, 5)).astype(np.float16),
                "boxes": np.array([[0, 0, 0.5, 0.5], [0.1, 0.2, 0.3, 1], [0, 0, 1, 1]], np.float32),
                "classes": np.arange(3),
            },
        }
        for i in range(count)
    ]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a corpus: `write(samples, kind="text", shard_size=7, name="corpus")`."""

    def write_corpus(
        samples: list[dict[str, Any]], *, kind: str = "text", shard_size: int = 7, name: str = "a corpus"
    ) -> Corpus:
        folder = tmp_path / name
        infos = []
        for first in range(0, len(samples), shard_size):
            with ShardWriter(folder / f"part-{first:06d}.tar", kind=kind) as writer:
                for i, sample in enumerate(samples[first : first + shard_size], first):
                    writer.add(f"r{i}", sample)
            assert writer.info is not None
            infos.append(writer.info)
        finish_corpus(folder, kind=kind, shards=infos, provenance={"command": "test", "inputs": []})
        return Corpus.open(folder)

    return write_corpus


@pytest.fixture
def make_tar(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tar with these (name, data) members, in order."""

    def make(members: list[tuple[str, bytes]], name: str = "set/part-0.tar", mode: str = "w") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
            for member, data in members:
                entry = tarfile.TarInfo(member)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        return path

    return make


@pytest.fixture
def texts() -> Callable[..., list[dict[str, Any]]]:
    return text_samples


@pytest.fixture
def images() -> Callable[..., list[dict[str, Any]]]:
    return image_samples


@pytest.fixture
def encoded() -> Callable[..., bytes]:
    return image_bytes
