"""What benchmarks write of raw files is what the files say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.joint_vectors import read_twice
from benchmarks.reviews import write_polarities, write_reviews
from benchmarks.sense_examples import write_sense_examples


def test_ratings_become_five_classes(tmp_path: Path) -> None:
    rated = {"-3.9": "1", "-3.1": "1", "-2.9": "2", "-0.9": "3", "0.9": "3", "1.1": "4", "3.4": "5"}
    (tmp_path / "r").write_text("".join(f"{i}\t{rating}\ttext {rating}\n" for i, rating in enumerate(rated)))
    write_reviews(tmp_path / "r", tmp_path / "reviews.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "reviews.jsonl").read_text().splitlines()]
    assert rows == [{"text": f"text {rating}", "labels": {"label": label}} for rating, label in rated.items()]


def test_polarities_stand_in_the_order_of_the_parts_of_speech(tmp_path: Path) -> None:
    scores = (("NN", 0.1), ("JJ", 0.4), ("JJ", -0.2))
    known = "".join(f'<word form="fast" pos="{part}" polarity="{score}" />' for part, score in scores)
    (tmp_path / "s.xml").write_text(f"<sentiment>{known}</sentiment>")
    senses = ("fast%3:00:01:: 01 1 5", "fast%5:00:01:: 02 2 1", "fast%4:02:00:: 03 1 9", "run%2:38:00:: 04 1 7")
    (tmp_path / "index.sense").write_text("\n".join((*senses, "run_fast%2:38:00:: 05 1 1")) + "\n")
    write_polarities(tmp_path / "s.xml", tmp_path, tmp_path / "p.tsv")
    rows = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()]
    assert rows == [["fast", *row] for row in (["r", "0.0"], ["a", "0.4"], ["a", "-0.2"], ["n", "0.1"])] + [
        ["run", "v", "0.0"]
    ]


def test_an_example_is_linked_to_its_sense(tmp_path: Path) -> None:
    for name in ("verb", "adj", "adv"):
        (tmp_path / f"data.{name}").write_text("  1 the licence\n")
    gloss = 'where people live; "an ancient City"; "they moved"; "a market town"'
    (tmp_path / "data.noun").write_text(f"00000001 15 n 02 city 0 market_town 0 000 | {gloss}  \n")
    write_sense_examples(tmp_path, tmp_path / "e.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    found = [(row["text"][start:end], entity) for row in rows for start, end, entity, _ in row["spans"]]
    assert found == [("City", "00000001-n"), ("market town", "00000001-n")]


def test_entities_stand_among_the_words_around_them() -> None:
    spans = [[0, 4, "Q585", 1.0], [0, 4, "Q2", 0.5], [16, 22, "Q20", 1.0]]
    assert [*read_twice({"text": "Oslo, a city in Norway", "spans": spans})] == [
        ["oslo", "a", "city", "in", "norway"],
        ["Q585", "a", "city", "in", "Q20"],
    ]
