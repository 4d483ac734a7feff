"""Scenes and captions: true, distinguishable, the same every time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.demo.scenes import (
    COLOURS,
    PIXELS,
    Claim,
    Phrase,
    Scene,
    Thing,
    captions,
    ceiling,
    make_scenes,
    render,
    write_scenes,
)
from workbench.core.keyed import generator


def scene() -> Scene:
    return Scene((Thing("circle", "red", "small", 0, 0), Thing("square", "blue", "large", 1, 2)), 170)


def test_held_out_scenes_differ_from_each_other_and_from_training() -> None:
    train, held_out = make_scenes(300, 100, seed=3)
    looks = [s.looks for s in held_out]
    assert (len(train), len(set(looks))) == (300, 100)
    assert not set(looks) & {s.looks for s in train}
    assert make_scenes(300, 100, seed=3) == (train, held_out)
    assert make_scenes(300, 100, seed=4) != (train, held_out)


def test_things_of_a_scene_are_in_different_cells() -> None:
    for made in make_scenes(200, 10, seed=0)[0]:
        cells = {(t.row, t.column) for t in made.things}
        assert len(cells) == len(made.things) in (3, 4)


def test_rendering_puts_the_colour_where_the_thing_is() -> None:
    pixels = np.asarray(render(scene()))
    assert pixels.shape == (PIXELS, PIXELS, 3)
    assert pixels[10, 10].tolist() == list(COLOURS["red"])
    assert pixels[32, 53].tolist() == list(COLOURS["blue"])
    assert pixels[53, 10].tolist() == [170, 170, 170]


def test_captions_are_true_and_no_two_are_alike() -> None:
    for number, made in enumerate(make_scenes(200, 10, seed=0)[0]):
        said = captions(made, generator(0, number))
        assert len({text for text, _ in said}) == 5
        for text, claim in said:
            assert claim.fits(made), text
            assert text[0].isupper()
            for phrase in claim.phrases:
                assert phrase.shape in text
                assert str(phrase.colour) in text.lower()


def test_a_claim_needs_different_things_and_its_relation() -> None:
    red, blue = Phrase("circle", "red"), Phrase("square", "blue")
    assert Claim((red, blue)).fits(scene())
    assert Claim((red, blue), "left").fits(scene())
    assert Claim((red, blue), "above").fits(scene())
    assert not Claim((blue, red), "left").fits(scene())
    assert not Claim((red, red)).fits(scene())
    assert not Claim((Phrase("circle", "red", "large"),)).fits(scene())
    assert not Claim((Phrase("circle", "red", None, "middle"),)).fits(scene())


def test_the_ceiling_counts_the_scenes_a_caption_fits() -> None:
    other = Scene((Thing("circle", "red", "large", 2, 2), Thing("star", "blue", "large", 0, 2)), 170)
    claims = [[Claim((Phrase("circle", "red"),)), Claim((Phrase("square"),))], [Claim((Phrase("star"),))]]
    assert ceiling(claims, [scene(), other]) == pytest.approx((0.5 + 1 + 1) / 3)


def test_files(tmp_path: Path) -> None:
    summary = write_scenes(tmp_path / "a", seed=1, train=20, held_out=10)
    write_scenes(tmp_path / "b", seed=1, train=20, held_out=10)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) == 33
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert summary["heldout"]["captions"] == 50
    assert 0.5 < summary["heldout"]["image_retrieval_r1_ceiling"] <= 1
    for line in (tmp_path / "a" / "captions_heldout.jsonl").read_text().splitlines():
        record = json.loads(line)
        with Image.open(tmp_path / "a" / "images_heldout" / record["image"]) as image:
            assert image.size == (PIXELS, PIXELS)
        assert len(record["captions"]) == 5
