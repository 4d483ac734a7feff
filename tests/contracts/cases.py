"""A case for every part that kg and vision give to recipes, and the tiny samples, sequences and fields they get."""

from __future__ import annotations

import dataclasses
import io
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from kg.graph.facts import Fact
from vision.images.boxes import WHOLE, grid_boxes
from workbench.keyed import Draws
from workbench.parts.building import build
from workbench.sequences.sequence import Sample, Sequence, Span, text_fields

FEATURES, VECTORS, VOCABULARY, ENTITIES, GRID, PATCH = 6, 4, 30, 9, 2, 4
TABLE = torch.randn(ENTITIES, VECTORS, generator=torch.Generator().manual_seed(0))
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

Recover = Callable[[Sequence, Sequence, Mapping[str, np.ndarray]], None]


class Graph:
    """Triples of three entities."""

    def facts(self, entity: str, direction: str, relations: object) -> list[Fact]:
        triples = {"Q1": [("P1", "Q2"), ("P2", "Q3")], "Q2": [("P1", "Q1")]}.get(entity, [])
        return [Fact(relation, tail, False) for relation, tail in triples]

    def name_of(self, entity: str) -> str:
        return f"{entity} x"

    relation_label = name_of


class Words:
    """A tokenizer of blank-separated words."""

    def encode_batch(self, texts: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(ids=np.array([100 + zlib.crc32(w.encode()) % 50 for w in t.split()])) for t in texts]


@dataclass(frozen=True)
class Case:
    """How to make a part, and what the contracts have to know of it.

    `excused` is contract -> why it does not apply; the tests hold the reason against the part where they can.
    """

    options: dict[str, Any] = field(default_factory=dict)
    excused: dict[str, str] = field(default_factory=dict)
    adds: tuple[str, ...] = ()  # fields (`text.rank`) or streams (`entity`) that it adds in place, as it says
    reads: tuple[str, ...] = ("text",)  # objectives: the streams that its loss reads
    labels: int = 1  # objectives: labels per row that it reads
    recover: Recover | None = None  # objectives: compares the originals with what can be recovered
    content: str = "features"  # objectives, embeddings: the field of the image or of the embedded rows
    needs: str = ""  # images: the field of the sample


def mrfr_originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    image, target = before.streams["image"], after.targets["it"]
    wanted = image["patches" if "patches" in image else "features"]
    np.testing.assert_array_equal(target["features"], wanted[target["rows"].index])


def dea_originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    entity, target = before.streams["entity"], after.targets["it"]
    ids = dict(zip(target["rows"].index.tolist(), shared["candidates"][target["labels"]].tolist(), strict=True))
    assert [ids.get(token, 0) for token in entity["token"].tolist()] == entity["entity_ids"].tolist()
    np.testing.assert_array_equal(after.streams["text"]["input_ids"], before.streams["text"]["input_ids"])


STILL = {"seed": "nothing is drawn"}
UNCHANGED = {"originals": "no row is changed"}
CONTRAST = {"additive": "the rivals of a pair are the other pairs", "no image": "a pair without an image is refused"}
LENDING = {"company": "hidden rows borrow features of the micro-batch's other images"}

OBJECTIVES: dict[str, Case] = {
    "kg.dea": Case(
        {"replaced": 0.4, "removed": 0.3},
        {
            "earlier hooks": "it changes entity rows alone, also those of tokens that mlm masked, as released",
            "company": "replacements are entities of the micro-batch",
        },
        recover=dea_originals,
    ),
    "kg.types": Case({"num_types": 3, "dropout": 0.0}, STILL | UNCHANGED, labels=3),
    "vision.itm": Case({}, UNCHANGED),
    "vision.itm vilbert": Case(
        {"exchange": "image", "pool": ["text", "image"]},
        UNCHANGED | {"no image": "a product of pooled outputs needs both"},
        reads=("text", "image"),
    ),
    "vision.itc": Case({"size": 8}, STILL | UNCHANGED | CONTRAST, reads=("text", "image")),
    "vision.itc apart": Case(
        {"size": 8, "apart": True, "norm": True, "negatives": "micro-batch", "same_image": "negative"},
        STILL | UNCHANGED | CONTRAST,
        adds=("text.doc", "image.doc"),
        reads=("text", "image"),
    ),
    "vision.mrfr": Case({"rate": 0.4}, reads=("image",), recover=mrfr_originals),
    "vision.mrfr lxmert": Case(
        {"rate": 0.4, "zero": 0.5, "random": 0.3, "loss": "smooth_l1", "tied": False},
        LENDING,
        reads=("image",),
        recover=mrfr_originals,
    ),
    "vision.mrfr patches": Case({"rate": 0.4}, reads=("image",), recover=mrfr_originals, content="patches"),
    "vision.answers": Case({"answers": ["yes", "no", "red"]}, STILL | UNCHANGED),
    "vision.answers best": Case({"answers": ["yes", "no", "red"], "loss": "cross_entropy"}, STILL | UNCHANGED),
}

TEXT = {"masked": "hidden tokens have an id of their own"}
ALL_TRAINED = {"frozen": "every parameter is trained"}
EMBEDDINGS: dict[str, Case] = {
    "token": Case({"hidden_size": 8, "dropout": 0.0}, TEXT | ALL_TRAINED, content="input_ids"),
    "kg.entity_table": Case(
        {"path": TABLE},
        {"masked": "removed entities have no row", "gradients": "nothing is trained"},
        content="entity_ids",
    ),
    "kg.entity_table trained": Case(
        {"path": TABLE, "trainable": True},
        {"masked": "removed entities have no row", **ALL_TRAINED},
        content="entity_ids",
    ),
    "vision.patches": Case({"hidden_size": 8, "grid": GRID, "patch": PATCH, "norm": True}, content="patches"),
    "vision.regions": Case(
        {"hidden_size": 8, "feature_size": FEATURES, "dropout": 0.0}, ALL_TRAINED, content="features"
    ),
    "vision.grid": Case(
        {"hidden_size": 8, "backbone": "test_efficientnet", "size": 32, "grid": GRID, "dropout": 0.0},
        {"no rows": "every image gives the same number of rows"},
        content="pixels",
    ),
}

STEPS: dict[str, Case] = {
    "kg.sentence_tree": Case({"graph": Graph(), "max_length": 64}),
    "kg.sentence_tree drawn": Case(
        {"graph": Graph(), "max_length": 64, "sampling": "random", "max_triples": 1},
        excused={"seed": "its triples are drawn"},
    ),
    "kg.sentence_tree flat": Case({"graph": Graph(), "max_length": 12, "visible_matrix": False}),
    "kg.sentence_tree cut": Case(
        {"graph": Graph(), "max_length": 8, "overflow": "cut"}, {"keeps": "the release's rule cuts the sentence's tail"}
    ),
    "kg.entity_stream": Case({"table": {"Q1": 0, "Q2": 5}}, adds=("entity",)),
}

STORED = {"seed": "stored features are not augmented"}
IMAGES: dict[str, Case] = {
    "vision.patches": Case({"size": 8, "patch": 4, "crop_scale": 0.5, "flip": 0.5, "class_row": True}, needs="image"),
    "vision.patches plain": Case({"size": 8, "patch": 4}, {"seed": "no augmentation is asked for"}, needs="image"),
    "vision.pixels": Case({"size": 8, "grid": 2, "crop_scale": 0.5}, needs="image"),
    "vision.regions": Case({"backbone": "made-up"}, STORED, needs="regions"),
    "vision.regions best": Case({"backbone": "made-up", "max_regions": 3}, STORED, needs="regions"),
}

CASES: dict[str, dict[str, Case]] = {
    "objective": OBJECTIVES,
    "embedding": EMBEDDINGS,
    "step": STEPS,
    "image": IMAGES,
    "builder": {},  # of builders and policies there are only the core's (tests/objectives/test_contracts.py):
    "policy": {},  # the first one elsewhere has to join their contracts
}

CONTRACTS = {
    "objective": {"seed", "earlier hooks", "originals", "company", "additive", "no image"},
    "embedding": {"no rows", "gradients", "masked", "frozen"},
    "step": {"seed", "keeps", "dropped"},
    "image": {"seed"},
}
"""The contracts from which a part may be excused, by kind."""


def over(kind: str, contract: str = "") -> pytest.MarkDecorator:
    """The test is for every case of the kind that is not excused from the contract."""
    assert not contract or contract in CONTRACTS[kind]
    return pytest.mark.parametrize("name", [n for n, case in CASES[kind].items() if contract not in case.excused])


def make(kind: str, name: str) -> Any:
    """The part of a case; a word after its path only tells cases apart."""
    torch.manual_seed(0)
    given = {"tokenizer": Words(), "vocab_size": VOCABULARY}
    part = build(kind, {kind: name.split()[0], **CASES[kind][name].options}, "", **given)
    if kind == "objective":
        part.name = "it"
    return part


def picture(seed: int, height: int = 12, width: int = 10) -> bytes:
    """A noisy image, as PNG."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def make_samples(count: int = 8, regions: int = 5) -> list[Sample]:
    """Image-text samples; from the eighth on they repeat the first images."""
    samples = []
    for i in range(count):
        rng = np.random.default_rng(i % 7)
        stored = {
            "features": rng.normal(size=(regions, FEATURES)).astype(np.float32),
            "boxes": np.sort(rng.random((regions, 2, 2)).astype(np.float32), axis=1).reshape(regions, 4),
            "confidence": rng.random(regions).astype(np.float32),
        }
        about = {"key": f"k{i % 7}", "corpus": "c", "draw": (0, i), "meta": {"backbone": "made-up"}}
        samples.append({**about, "image": picture(i % 7), "captions": [CAPTIONS[i % 8]], "regions": stored})
    return samples


def sequence_of(sample: Sample, content: str = "features") -> Sequence:
    """The sequence of a sample: a special row and a row per word, an entity at every other row, the image."""
    words = [zlib.crc32(word.encode()) for word in sample["captions"][0].split()]
    ids = np.array([1, *(5 + word % (VOCABULARY - 5) for word in words)])
    tokens = np.arange(0, len(ids), 2)
    entity = {"entity_ids": np.array([0, *(1 + word % ENTITIES for word in words)])[tokens], "token": tokens}
    stored = sample["regions"]
    image = {"features": stored["features"].copy(), "boxes": stored["boxes"].copy()}
    if content == "patches":
        patches = (
            (np.resize(stored["features"], (1 + GRID * GRID, 3 * PATCH * PATCH)) * 40 + 128)
            .clip(0, 255)
            .astype(np.uint8)
        )
        image = {"patches": patches, "boxes": np.concatenate([np.asarray([WHOLE], np.float32), grid_boxes(GRID)])}
        image["special"] = np.arange(len(patches)) == 0
    meta = {"answers": ANSWERS[len(words) % 3], "labels": np.array([1.0, 0.0, len(words) % 2], np.float32)}
    streams = {"text": text_fields(ids, special=np.arange(len(ids)) == 0), "entity": entity, "image": image}
    return Sequence(streams, sample["draw"], sample["key"], labels=dict(sample.get("labels", {})), meta=meta)


def linked(length: int, spans: list[tuple[int, int, str]], mask: tuple[int, int] | None = None, **doc: Any) -> Sequence:
    """A sequence for steps: text with mentions, a stretch to be masked, a mention to be typed, an entity stream."""
    text = {**text_fields(np.arange(1, length + 1)), **doc}
    tokens = np.unique(np.array([0, *(start for start, _, _ in spans)], np.int64))[:length]
    entity = {"entity_ids": np.arange(len(tokens)), "token": tokens}
    image = {"features": np.ones((2, FEATURES), np.float32), "boxes": np.zeros((2, 4), np.float32)}
    masks = [Span(*mask, "")] if mask else []
    meta = {"mention": (length - 2, length)} if length > 2 else {}
    return Sequence(
        {"text": text, "entity": entity, "image": image},
        (length,),
        f"k{length}",
        [Span(*span) for span in spans],
        mask_spans=masks,
        meta=meta,
    )


def step_sequences() -> list[Sequence]:
    """No token, one token, plain mentions, mentions in mentions, several documents, and what is to be masked."""
    packed = np.array([1, 1, 1, 2, 2, 2, 2])
    return [
        linked(0, []),
        linked(1, []),
        linked(1, [(0, 1, "Q1")]),
        linked(9, [(1, 3, "Q1"), (4, 5, "Q2"), (6, 7, "Q9")], (7, 8)),
        linked(10, [(1, 5, "Q9"), (2, 3, "Q2"), (5, 8, "Q1"), (6, 7, "Q2")]),
        linked(7, [(1, 2, "Q1"), (5, 7, "Q2")], (1, 3), doc=packed),
        linked(6, []),
    ]


def embedded_fields(content: str, count: int = 3) -> dict[str, Tensor]:
    """Fields of four rows for each of `count` sequences (images)."""
    g = torch.Generator().manual_seed(1)
    rows = GRID * GRID * count
    if content == "input_ids":
        ids = torch.randint(0, VOCABULARY, (rows,), generator=g)
        return {"input_ids": ids, "position_ids": torch.arange(rows) % 4, "token_type_ids": ids % 2}
    if content == "entity_ids":
        return {"entity_ids": torch.arange(rows) % (ENTITIES + 1), "token": torch.arange(rows)}
    if content == "pixels":
        made = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=g)
    else:
        made = torch.randn(rows, FEATURES if content == "features" else 3 * PATCH * PATCH, generator=g)
    return {content: made, "boxes": torch.from_numpy(grid_boxes(GRID)).repeat(count, 1)}


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


def draws(seed: int = 0) -> Draws:
    return Draws(seed, "task", number=(0,))
