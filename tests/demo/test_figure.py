"""The demo's figure: its bars are the summary's numbers, and its example is a held-out fact of the graph."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kg.graph.store import GraphStore
from pipelines.demo.figure import LEFT, LONGEST, ROWS, WIDTH, Example, example_fact, facts_figure
from tests.demo.test_story import evaluations

SHARES = {"k-bert": 0.9, "bert": 0.1, "k-bert-shuffled-graph": 0.25}
EXAMPLE = Example("Oslo", "lies in", "country", "Norway & Co", "<Peru>")


def drawn() -> str:
    def share(run: str, corpus: str, control: str | None) -> float:
        return SHARES.get(run, 0.5) if corpus == "facts-heldout" else 0.8

    return facts_figure({"evaluations": evaluations(share)}, EXAMPLE)


def test_a_bar_is_as_long_as_its_share() -> None:
    rectangles = ElementTree.fromstring(drawn()).iter("{http://www.w3.org/2000/svg}rect")
    lengths = [float(r.attrib["width"]) for r in rectangles if r.attrib["class"] == "known"]
    assert lengths == pytest.approx([LONGEST * SHARES[run] for run in ROWS])
    assert LEFT + LONGEST < WIDTH


def test_no_line_is_cut_off_in_a_wide_font_and_a_phone_shows_legible_letters() -> None:
    """DejaVu Sans has letters of 0.61 of their height on average, and of 0.69 if they are bold."""
    sizes = {"title": (18, 0.69), "small": (13, 0.61), "name": (14, 0.69), "": (14, 0.61)}
    for text in ElementTree.fromstring(drawn()).iter("{http://www.w3.org/2000/svg}text"):
        height, share = sizes[text.attrib["class"]]
        width = height * share * len(text.text or "")
        assert float(text.attrib["x"]) + width / (2 if text.attrib["text-anchor"] == "middle" else 1) < WIDTH, text.text
        assert height * 358 / WIDTH > 9  # a phone of 390 pixels, less its margins


def test_a_model_is_shown_with_what_it_reads() -> None:
    texts = [t.text for t in ElementTree.fromstring(drawn()).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("Oslo") == texts.count("[MASK]") == 3
    assert texts.count("Norway & Co") == texts.count("<Peru>") == 1
    assert "90.0 % of facts that only the graph states" in texts
    assert any("Country of 200 cities" in str(text) for text in texts)


def test_light_and_dark_pages_have_the_same_classes() -> None:
    light, dark = re.findall(r"<style>(.*)@media\(prefers-color-scheme:dark\){(.*)}</style>", drawn())[0]
    filled = set(re.findall(r"\.(\w+){[^}]*fill:#", light))
    assert {"page", "token", "true", "false", "known"} <= filled
    assert filled == set(re.findall(r"\.(\w+){[^}]*fill:#", dark))


def test_the_example_is_a_held_out_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    countries = ["Norway", "Peru", "Chad", "Cuba", "Iran", "Mali"]
    triples = [(f"city:{n}", "country", f"country:{n}") for n in range(6)]
    texts = {f"country:{n}": {"label": name} for n, name in enumerate(countries)}
    texts |= {f"city:{n}": {"label": f"Town {n}"} for n in range(6)}
    (tmp_path / "corpora" / "graph").mkdir(parents=True)
    (tmp_path / "raw" / "world").mkdir(parents=True)
    GraphStore.build(
        triples, tmp_path / "corpora/graph/graph", entity_texts=texts, relation_labels={"country": "is in"}
    )
    behind = {"text": "In Peru lies Town 1.", "spans": [[3, 7], [13, 19]], "mask_spans": [[3, 7]]}
    first = {"text": "Town 0 lies in Norway.", "spans": [[0, 6], [15, 21]], "mask_spans": [[15, 21]]}
    rows = [
        {**row, "subject": f"city:{n}", "relation": "country", "object": f"country:{n}"}
        for n, row in ((1, behind), (0, first))
    ]
    (tmp_path / "raw/world/facts_heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    found = example_fact()
    assert (found.city, found.between, found.relation, found.country) == ("Town 0", "lies in", "is in", "Norway")
    assert found.shuffled in countries[1:]
