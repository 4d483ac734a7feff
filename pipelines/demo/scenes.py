"""Rendered scenes: a few objects on a plain ground, drawn from a keyed generator.

A scene is three or four objects in different cells of a 3 x 3 grid; an object has a shape, a colour and a size, and
no two objects of a scene share both shape and colour. No two held-out scenes have the same colours and shapes, and
none has those of a training scene.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

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
        """Colours and shapes without places: what makes two scenes different."""
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
