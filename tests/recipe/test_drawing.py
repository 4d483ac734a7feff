"""Drawings of recipes: every layer of every recipe stands in its own, and the documentation's are up to date."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.app import app, main
from workbench.core.errors import WorkbenchError
from workbench.recipe.drawing import _WIDTH as WIDTH
from workbench.recipe.drawing import BOX, drawing
from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.stacks import BEGIN, END, FOLDER, drawn, shown

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str, kind: str) -> list[str]:
    return [str(found.text) for found in ET.fromstring(svg).iter(f"{SVG}text") if found.get("class") == kind]


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of each box of a layer, of a stacked one the front alone, and of a stream."""
    found = [rect for rect in ET.fromstring(svg).iter(f"{SVG}rect") if rect.get("height") == str(BOX)]
    places = [tuple(float(str(rect.get(key))) for key in ("x", "y", "width")) for rect in found]
    all_ = [(x, y, x + width, y + BOX) for x, y, width in places]
    return [box for box in all_ if not any(0 < box[0] - other[0] <= 8 and 0 < other[1] - box[1] <= 8 for other in all_)]


def flat(layers: list[Any]) -> list[Any]:
    return [each for layer in layers for each in (flat(layer["group"]) if "group" in layer else [layer])]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_stream_and_layer_is_there_and_none_lies_on_another(name: str) -> None:
    recipe = load_recipe(name)
    svg = drawing(recipe)
    said = texts(svg, "name")
    for network in recipe.networks.values():
        for stream in network.streams:
            assert stream in said
        for layer in flat(network.layers):
            assert layer["layer"] in said
    placed = boxes(svg)
    assert len(placed) >= sum(len(n.streams) + len(flat(n.layers)) for n in recipe.networks.values())
    for i, one in enumerate(placed):
        for other in placed[:i]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart, (one, other)
    width, height = (float(found) for found in re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    assert all(0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height for x1, y1, x2, y2 in placed)


def test_repeated_layers_and_groups_say_how_often() -> None:
    assert sorted(texts(drawing(load_recipe("lxmert")), "times")) == ["×5", "×5", "×9"]
    assert texts(drawing(load_recipe("uniter")), "times") == ["×12"]
    assert "momentum follows main (decay 0.995)" in texts(drawing(load_recipe("albef")), "small")


@pytest.mark.parametrize("name", ["coca", "knowbert", "lxmert", "univl"])
def test_streams_have_a_colour_each_and_names_fit_their_boxes(name: str) -> None:
    recipe = load_recipe(name)
    drawn = ET.fromstring(drawing(recipe))
    colours = [rect.get("fill") for rect in drawn.iter(f"{SVG}rect") if rect.get("rx") == f"{BOX / 2:g}"]
    assert len(colours) == len(set(colours)) == len(recipe.networks["main"].streams)
    for found in drawn.iter(f"{SVG}text"):
        size = float((re.findall(r"font-size:([\d.]+)px", found.get("style") or "") or ["13"])[0])
        if found.get("class") == "name":
            assert 0.55 * size * len(str(found.text)) < WIDTH - 20, found.text


def test_objectives_of_a_kind_and_visibilities_are_distinguished() -> None:
    assert "pairs: itm, mlm, mrfr, objects (mrc), attributes (mrc)" in texts(drawing(load_recipe("lxmert")), "small")
    assert "causal visibility of the text" in texts(drawing(load_recipe("clip")), "small")
    assert "causal visibility" in texts(drawing(load_recipe("gpt")), "small")


def test_who_attends_to_whom() -> None:
    """In ALBEF text reads the image, one way; in LXMERT both read each other; in CLIP none does."""

    def across(name: str) -> int:
        return len(re.findall(r'd="M[^"]* H', drawing(load_recipe(name))))

    assert (across("albef"), across("lxmert"), across("clip"), across("uniter")) == (1, 2, 0, 0)


def test_the_documentations_drawings_are_up_to_date() -> None:
    pages = drawn()
    recipes = [recipe for of_page in pages.values() for recipe in of_page]
    assert {path.stem for path in (DOCS / FOLDER).glob("*.svg")} == {recipe.name for recipe in recipes}, "make pages"
    for recipe in recipes:
        assert (DOCS / FOLDER / f"{recipe.name}.svg").read_text("utf-8") == drawing(recipe), "make pages"
    for name, of_page in pages.items():
        page = (DOCS / name).read_text("utf-8")
        assert page.partition(BEGIN)[2].partition(END)[0] == "".join(f"{line}\n" for line in shown(name, of_page)), (
            "make pages"
        )
        assert all(f"| `{recipe.name}`" in page or f"`{recipe.name}` " in page for recipe in of_page)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["workbench", "recipes", "--draw", "vilbert"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert (tmp_path / "vilbert.svg").read_text("utf-8") == drawing(load_recipe("vilbert"))
    for wrong, said in ((["--draw", "vilbart"], "vilbert"), (["--output", "x.svg"], "--draw RECIPE")):
        with pytest.raises(WorkbenchError, match=said):
            app.run(["recipes", *wrong], "workbench")
