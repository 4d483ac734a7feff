"""Tiny samples, sequences and fields for the contracts, a tokenizer of their words, and a network that reads them."""

from __future__ import annotations

import dataclasses
import io
import pickle
import re
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vision.images.boxes import WHOLE, grid_boxes
from workbench.core.keyed import Draws, Numbers
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.protocols import Masking
from workbench.sequences.sequence import Fields, Rows, Sample, Sequence, text_fields
from workbench.text.tokenizer import Tokenizer, train_tokenizer

FEATURES, VECTORS, ENTITIES, GRID, PATCH, CLASSES = 6, 4, 9, 2, 4, 3
TABLE = torch.randn(ENTITIES, VECTORS, generator=torch.Generator().manual_seed(0))
VOCABULARY = """the old river flows past harbours and bridges while people in small boats look for songs about questions
nobody answered before winter came to Hamburg Dresden Warsaw Paris and every other city near water"""
WORDS = VOCABULARY.split()
CITIES = ("Hamburg", "Dresden", "Warsaw", "Paris")
CAPTIONS = [
    "a river",
    "two old boats",
    "a bridge at night",
    "",
    "the harbour of a city",
    "people",
    "songs",
    "old songs",
]
ANSWERS = [["yes"] * 5, ["no"] * 2 + ["red"] * 3, ["unknown"]]
TRIPLE = {"relation": "P1", "relation_text": "flows past", "tail": "Q2", "tail_text": "Hamburg"}


# ---- samples


def make_text(rng: np.random.Generator, words: int) -> str:
    """Sentences of ordinary words."""
    listed = [WORDS[i] for i in rng.integers(len(WORDS), size=words)]
    return " ".join(w + ("." if i % 9 == 8 else "") for i, w in enumerate(listed))


@cache
def tokenizer() -> Tokenizer:
    rng = np.random.default_rng(0)
    return Tokenizer(train_tokenizer([make_text(rng, 40) for _ in range(30)], "wordpiece", 120))


def photograph(seed: int, height: int = 12, width: int = 10) -> bytes:
    """A noisy image, as PNG."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def text_samples(count: int, words: int = 60, seed: int = 1) -> list[Sample]:
    """Texts with mentions of every city, tagged, their first word to be masked."""
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(count):
        text = make_text(rng, words)
        starts = sorted((text.find(city), city) for city in CITIES if city in text)
        spans = [[start, start + len(city), f"Q-{city}", 1.0] for start, city in starts]
        masks = [[0, len(text.split()[0])]] if text else []
        about = {"key": f"r{i}", "corpus": "c", "draw": (0, i)}
        tags = [[start, end, "city"] for start, end, *_ in spans]
        annotated = {**about, "tags": tags, "dependencies": chain(text)}
        samples.append({**annotated, "text": text, "spans": spans, "mask_spans": masks})
    return samples


def chain(text: str) -> list[list[Any]]:
    """Dependencies: the head of each word is the next one, and the last word is the root."""
    places = [match.span() for match in re.finditer(r"\S+", text)]
    nexts = [start for start, _ in places[1:]]
    return [[start, end, (nexts[i] - start) if i < len(nexts) else 0, "dep"] for i, (start, end) in enumerate(places)]


def make_samples(count: int = 8, regions: int = 5) -> list[Sample]:
    """Samples with a text, a caption, an image and its regions; from the eighth on they repeat the first images."""
    samples = []
    for i, sample in enumerate(text_samples(count)):
        rng = np.random.default_rng(i % 7)
        stored = {
            "features": rng.normal(size=(regions, FEATURES)).astype(np.float32),
            "boxes": np.sort(rng.random((regions, 2, 2)).astype(np.float32), axis=1).reshape(regions, 4),
            "confidence": rng.random(regions).astype(np.float32),
            "classes": rng.integers(CLASSES, size=regions),
            "attributes": rng.integers(CLASSES, size=regions),
            "attribute_confidence": rng.random(regions).astype(np.float32),
            "scores": rng.dirichlet(np.ones(CLASSES), regions).astype(np.float32),
        }
        clips = {
            "features": rng.normal(size=(regions, FEATURES)).astype(np.float32),
            "times": np.arange(2 * regions, dtype=np.float32).reshape(regions, 2),
            "codes": np.arange(regions, dtype=np.int32),
        }
        seen = {"image": photograph(i % 7), "captions": [CAPTIONS[i % 8]], "regions": stored, "clips": clips}
        samples.append(
            {
                **sample,
                **seen,
                "key": f"k{i % 7}",
                "labels": {"label": i % 3},
                "meta": {"backbone": "made-up", "codes": "tree"},
            }
        )
    return samples


def small_samples() -> list[Sample]:
    """No token, one token, and white space alone, with an image of one region."""
    texts, captions = ("", "river", " \n "), ("", "river", "")
    bare = {"spans": [], "mask_spans": []}
    given = zip(make_samples(3, 1), texts, captions, strict=True)
    return [
        {**sample, **bare, "text": text, "dependencies": chain(text), "captions": [caption]}
        for sample, text, caption in given
    ]


# ---- sequences


def image_fields(sample: Sample, content: str = "features") -> Fields:
    """The image's regions, or patches built from them."""
    stored = sample["regions"]
    if content == "features":
        return {name: values.copy() for name, values in stored.items()}
    drawn = np.resize(stored["features"], (1 + GRID * GRID, 3 * PATCH * PATCH)) * 40 + 128
    boxes = np.concatenate([np.asarray([WHOLE], np.float32), grid_boxes(GRID)])
    return {"patches": drawn.clip(0, 255).astype(np.uint8), "boxes": boxes, "special": np.arange(len(drawn)) == 0}


def sequence_of(sample: Sample, content: str = "features") -> Sequence:
    """A special row and a row per word of the caption, an entity at every other row, the image."""
    words = [zlib.crc32(word.encode()) for word in sample["captions"][0].split()]
    ids = np.array([1, *(5 + word % 25 for word in words)])
    tokens = np.arange(0, len(ids), 2)
    entity: Fields = {"entity_ids": np.array([0, *(1 + word % ENTITIES for word in words)])[tokens]}
    entity["token"] = Rows("text", tokens, bound=True)
    meta = {"answers": ANSWERS[len(words) % 3], "labels": np.array([1.0, 0.0, len(words) % 2], np.float32)}
    text = text_fields(ids, special=np.arange(len(ids)) == 0)
    streams = {"text": text, "entity": entity, "image": image_fields(sample, content)}
    return Sequence(streams, sample["draw"], sample["key"], labels=dict(sample.get("labels", {})), meta=meta)


def draws(seed: int = 0, number: tuple[int, ...] = (0,)) -> Draws:
    return Draws(seed, "task", number=number)


# ---- tensors


def tiny_network(content: str = "features") -> Network:
    """A joint layer over text and image, entities next to them, poolers; no dropout."""
    torch.manual_seed(0)
    patches = {"embedding": "vision.patches", "grid": GRID, "patch": PATCH}
    regions = {"embedding": "vision.regions", "feature_size": FEATURES, "dropout": 0.0}
    text = {"embedding": "token", "hidden_size": 16, "max_positions": 600, "dropout": 0.0}
    streams = {
        "text": {**text, "vocab_size": tokenizer().vocab_size},
        "image": {**(patches if content == "patches" else regions), "hidden_size": 16},
        "entity": {"embedding": "kg.entity_table", "path": TABLE},
    }
    quiet = {"intermediate_size": 32, "dropout": 0.0, "attention_dropout": 0.0}
    layer = {"layer": "joint", "streams": ["text", "image"], "num_heads": 2, **quiet}
    return Network(NetworkSpec(streams, [layer], ["text", "image"], init_range=0.2))


def embedded_fields(content: str, count: int = 3) -> dict[str, Tensor]:
    """Fields of four rows for each of `count` sequences (images)."""
    g = torch.Generator().manual_seed(1)
    rows = GRID * GRID * count
    more: dict[str, Tensor] = {}
    if content == "input_ids":
        ids = torch.randint(0, 30, (rows,), generator=g)
        types = {"token_type_ids": ids % 2, "language_ids": ids % 3}
        return {"input_ids": ids, "position_ids": torch.arange(rows) % 4, **types}
    if content == "entity_ids":
        first = torch.arange(rows) % 3
        places = {"position_ids": first, "last_position_ids": first + 1, "token_type_ids": torch.arange(rows) % 2}
        return {"entity_ids": torch.arange(rows) % (ENTITIES + 1), "token": torch.arange(rows), **places}
    if content == "pixels":
        made = torch.randint(0, 256, (count, 3, 64, 64), dtype=torch.uint8, generator=g)
        more["first"] = torch.arange(rows) % (GRID * GRID) == 0
    else:
        made = torch.randn(rows, FEATURES if content == "features" else 3 * PATCH * PATCH, generator=g)
    boxes = torch.from_numpy(grid_boxes(GRID)).repeat(count, 1)
    return {content: made, "boxes": boxes, "position_ids": torch.arange(rows) % 4, **more}


# ---- comparing


def selected(
    masking: Masking, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """The groups of rows that a masking strategy selects in one sequence, with numbers that the generator decides."""
    [groups] = masking([sequence], stream, rate, Numbers.of(rng)).by_sequence(np.zeros(1, np.int64))
    return groups


def plain(value: Any) -> Any:
    """The value in Python's own types, to compare it and to remember it."""
    if isinstance(value, Tensor):
        return plain(value.detach().numpy())
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tolist())
    if dataclasses.is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def travelled(value: Any) -> Any:
    """As a worker gets it."""
    return pickle.loads(pickle.dumps(value))


def token_originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray], ahead: int = 0) -> None:
    """The labels are the originals of exactly the rows that are taken; with them the sequence is as it was.

    `ahead` says how far a label's token stands behind the row that predicts it.
    """
    old, new, target = before.streams["text"], after.streams["text"], after.targets["it"]
    labelled = target["rows"].index + ahead
    assert (np.diff(labelled) > 0).all()
    np.testing.assert_array_equal(target["labels"], old["input_ids"][labelled])
    np.testing.assert_array_equal(np.flatnonzero(new["taken"]), labelled)
    recovered = new["input_ids"].copy()
    recovered[labelled] = target["labels"]
    np.testing.assert_array_equal(recovered, old["input_ids"])
