"""Rendered scenes: a few objects on a plain ground, drawn from a keyed generator; their captions and their files.

A scene is three or four objects in different cells of a 3 x 3 grid; an object has a shape, a colour and a size, and
no two objects of a scene share both shape and colour. No two held-out scenes have the same colours and shapes, and
none has those of a training scene.

A caption describes some properties of some objects. They are stored as `Claim`s, so that the best possible retrieval
can be computed: if a caption fits n of the scenes, no model can do better than 1 in n.

The files are laid out like Flickr8k: `captions_<split>.jsonl` (image, captions), `images_<split>/`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from pipelines.demo.row_files import write_jsonl
from workbench.core.files.drafts import write_text
from workbench.core.keyed import generator

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLOURS = {
    "red": (214, 39, 40),
    "orange": (255, 140, 20),
    "yellow": (240, 215, 40),
    "green": (44, 140, 60),
    "blue": (40, 80, 200),
    "purple": (140, 70, 170),
    "black": (25, 25, 25),
    "white": (255, 255, 255),
}
SIZES = {"small": 5.5, "large": 9.5}
PLACES = (
    ("top left", "top", "top right"),
    ("left", "middle", "right"),
    ("bottom left", "bottom", "bottom right"),
)
PIXELS = 64
_FINE = 4
_GROUND = (150, 190)
_JITTER = 1.5


@dataclass(frozen=True)
class Thing:
    """An object of a scene; `row` and `column` are its cell, `shift` moves it by pixels inside the cell."""

    shape: str
    colour: str
    size: str
    row: int
    column: int
    shift: tuple[float, float] = (0.0, 0.0)

    @property
    def place(self) -> str:
        return PLACES[self.row][self.column]


@dataclass(frozen=True)
class Scene:
    """The objects and the grey level of the ground."""

    things: tuple[Thing, ...]
    ground: int

    @property
    def looks(self) -> tuple[tuple[str, str], ...]:
        """Colours and shapes without places: the identity of a scene."""
        return tuple(sorted((thing.colour, thing.shape) for thing in self.things))


def make_scenes(train: int, held_out: int, seed: int) -> tuple[list[Scene], list[Scene]]:
    """Training and held-out scenes, the same for the same seed."""
    stream = _stream(seed)
    test: dict[tuple[tuple[str, str], ...], Scene] = {}
    while len(test) < held_out:
        scene = next(stream)
        test.setdefault(scene.looks, scene)
    rest = (scene for scene in stream if scene.looks not in test)
    return [next(rest) for _ in range(train)], list(test.values())


def render(scene: Scene) -> Image.Image:
    """The image, 64 x 64 RGB with smooth edges."""
    side = PIXELS * _FINE
    image = Image.new("RGB", (side, side), (scene.ground,) * 3)
    draw = ImageDraw.Draw(image)
    cell = side / 3
    for thing in scene.things:
        x = (thing.column + 0.5) * cell + thing.shift[0] * _FINE
        y = (thing.row + 0.5) * cell + thing.shift[1] * _FINE
        _draw(draw, thing.shape, x, y, SIZES[thing.size] * _FINE, COLOURS[thing.colour])
    return image.reduce(_FINE)


def _stream(seed: int) -> Iterator[Scene]:
    number = 0
    while True:
        yield _scene(generator(seed, "scene", number))
        number += 1


def _scene(rng: np.random.Generator) -> Scene:
    count = 3 + int(rng.random() < 0.3)
    cells = sorted(rng.permutation(9)[:count].tolist())
    looks = rng.permutation(len(SHAPES) * len(COLOURS))[:count].tolist()
    things = []
    for cell, look in zip(cells, looks, strict=True):
        shape, colour = SHAPES[look % len(SHAPES)], list(COLOURS)[look // len(SHAPES)]
        size = list(SIZES)[int(rng.integers(len(SIZES)))]
        across, down = rng.uniform(-_JITTER, _JITTER, 2)
        things.append(Thing(shape, colour, size, cell // 3, cell % 3, (float(across), float(down))))
    return Scene(tuple(things), int(rng.integers(*_GROUND)))


def _draw(
    draw: ImageDraw.ImageDraw, shape: str, x: float, y: float, radius: float, colour: tuple[int, int, int]
) -> None:
    if shape == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        return
    if shape == "square":
        half = radius * 0.88
        draw.rectangle((x - half, y - half, x + half, y + half), fill=colour)
        return
    if shape == "cross":
        arm = radius * 0.36
        draw.rectangle((x - radius, y - arm, x + radius, y + arm), fill=colour)
        draw.rectangle((x - arm, y - radius, x + arm, y + radius), fill=colour)
        return
    corners = 3 if shape == "triangle" else 10
    radii = [radius * 1.15] if shape == "triangle" else [radius * 1.15, radius * 0.48]
    points = [
        (x + radii[i % len(radii)] * math.sin(turn), y - radii[i % len(radii)] * math.cos(turn))
        for i, turn in ((i, 2 * math.pi * i / corners) for i in range(corners))
    ]
    draw.polygon(points, fill=colour)


_LISTS = (
    "There is {0}.",
    "The picture shows {0}.",
    "{0}.",
    "I can see {0}.",
    "{0} on a grey ground.",
    "Someone drew {0}.",
    "An image with {0}.",
    "Look: {0}!",
)
_PAIRS = {
    "left": (
        "{0} is to the left of {1}.",
        "{1} is to the right of {0}.",
        "{0} on the left, {1} further right.",
        "To the right of {0} there is {1}.",
    ),
    "above": (
        "{0} is above {1}.",
        "{1} is below {0}.",
        "{0} with {1} further down.",
        "Over {1} there is {0}.",
    ),
}


@dataclass(frozen=True)
class Phrase:
    """The described properties of one object; None means that a property is not described."""

    shape: str
    colour: str | None = None
    size: str | None = None
    place: str | None = None

    def fits(self, thing: Thing) -> bool:
        return (
            self.shape == thing.shape
            and self.colour in (None, thing.colour)
            and self.size in (None, thing.size)
            and self.place in (None, thing.place)
        )

    def text(self) -> str:
        words = " ".join(word for word in (self.size, self.colour, self.shape) if word)
        article = "an" if words[0] in "aeiou" else "a"
        return f"{article} {words}" + (f" at the {self.place}" if self.place else "")


@dataclass(frozen=True)
class Claim:
    """The claimed objects, and a relation (left, above) of the first to the second."""

    phrases: tuple[Phrase, ...]
    relation: str | None = None

    def fits(self, scene: Scene) -> bool:
        """Whether different objects of the scene can be found for all phrases."""
        if not all(any(phrase.fits(thing) for thing in scene.things) for phrase in self.phrases):
            return False  # settles most scenes without trying every assignment
        return any(
            all(phrase.fits(thing) for phrase, thing in zip(self.phrases, things, strict=True))
            and (self.relation is None or _related(self.relation, things[0], things[1]))
            for things in permutations(scene.things, len(self.phrases))
        )


Caption = tuple[str, Claim]


def captions(scene: Scene, rng: np.random.Generator) -> list[Caption]:
    """Five different captions: three name every object, with more or less detail; two name only a pair."""
    kinds: list[Callable[[Scene, np.random.Generator], Caption]] = [
        lambda s, r: _listed(s, r, detail=0.0),
        lambda s, r: _listed(s, r, detail=0.5),
        _placed,
        _paired,
        lambda s, r: _listed(s, r, detail=1.0, count=2),
    ]
    made: dict[str, Claim] = {}
    for i in rng.permutation(len(kinds)):
        text, claim = kinds[i](scene, rng)
        while text in made:
            text, claim = kinds[i](scene, rng)
        made[text] = claim
    return list(made.items())


def ceiling(claims: Sequence[Sequence[Claim]], scenes: Sequence[Scene]) -> float:
    """The best image-retrieval R@1 (0..1) that the captions allow: the mean of 1 / (scenes that a caption fits)."""
    shares = [1 / sum(claim.fits(scene) for scene in scenes) for mine in claims for claim in mine]
    return float(np.mean(shares))


def _listed(scene: Scene, rng: np.random.Generator, detail: float, count: int | None = None) -> Caption:
    things = _shuffled(scene, rng)[:count]
    phrases = tuple(Phrase(t.shape, t.colour, t.size if rng.random() < detail else None) for t in things)
    return _sentence(_one(_LISTS, rng), _joined(phrases)), Claim(phrases)


def _placed(scene: Scene, rng: np.random.Generator) -> Caption:
    things = _shuffled(scene, rng)
    phrases = tuple(Phrase(t.shape, t.colour, None, t.place if rng.random() < 0.7 else None) for t in things)
    return _sentence(_one(_LISTS, rng), _joined(phrases)), Claim(phrases)


def _paired(scene: Scene, rng: np.random.Generator) -> Caption:
    pairs = [
        (relation, a, b) for a, b in permutations(scene.things, 2) for relation in _PAIRS if _related(relation, a, b)
    ]
    relation, a, b = pairs[int(rng.integers(len(pairs)))]
    sized = rng.random(2) < 0.5
    phrases = tuple(Phrase(t.shape, t.colour, t.size if s else None) for t, s in zip((a, b), sized, strict=True))
    return _sentence(_one(_PAIRS[relation], rng), *(p.text() for p in phrases)), Claim(phrases, relation)


def _related(relation: str, a: Thing, b: Thing) -> bool:
    return a.column < b.column if relation == "left" else a.row < b.row


def _shuffled(scene: Scene, rng: np.random.Generator) -> list[Thing]:
    return [scene.things[i] for i in rng.permutation(len(scene.things))]


def _one(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _joined(phrases: Sequence[Phrase]) -> str:
    texts = [phrase.text() for phrase in phrases]
    return ", ".join(texts[:-1]) + " and " + texts[-1]


def _sentence(template: str, *parts: str) -> str:
    text = template.format(*parts)
    return text[0].upper() + text[1:]


TRAIN, HELD_OUT = 3000, 500
_PROVENANCE = {"source": "rendered by the workbench", "license": "Apache-2.0"}


def write_scenes(folder: Path, seed: int = 0, train: int = TRAIN, held_out: int = HELD_OUT) -> dict[str, Any]:
    """Write both splits and `scenes.json`: the counts and the best image-retrieval R@1 that the captions allow."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = dict(zip(("train", "heldout"), make_scenes(train, held_out, seed), strict=True))
    summary: dict[str, Any] = {"seed": seed}
    for name, scenes in splits.items():
        claims = _write_split(folder, name, scenes, seed)
        summary[name] = {"images": len(scenes), "captions": sum(map(len, claims))}
        if name == "heldout":
            summary[name]["image_retrieval_r1_ceiling"] = round(ceiling(claims, scenes), 4)
    write_text(folder / "scenes.json", json.dumps(summary, indent=1) + "\n")
    return summary


def _write_split(folder: Path, name: str, scenes: list[Scene], seed: int) -> list[list[Claim]]:
    images = folder / f"images_{name}"
    images.mkdir(exist_ok=True)
    lines, claims = [], []
    for number, scene in enumerate(scenes):
        file = f"scene_{name}_{number:05d}.png"
        render(scene).save(images / file)
        said = captions(scene, generator(seed, "captions", name, number))
        lines.append({"image": file, "captions": [text for text, _ in said], **_PROVENANCE})
        claims.append([claim for _, claim in said])
    write_jsonl(folder / f"captions_{name}.jsonl", lines)
    return claims
