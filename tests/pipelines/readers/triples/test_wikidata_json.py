"""The triples format `wikidata-json`."""

from __future__ import annotations

import bz2
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines
from workbench.core.errors import WorkbenchError


def snak(relation: str, item: str) -> dict[str, Any]:
    value = {"entity-type": "item", "id": item}
    return {"snaktype": "value", "property": relation, "datavalue": {"value": value, "type": "wikibase-entityid"}}


def claim(relation: str, item: str, rank: str = "normal", **qualifiers: str) -> dict[str, Any]:
    reported = {name: [snak(name, tail)] for name, tail in qualifiers.items()}
    return {"mainsnak": snak(relation, item), "rank": rank, "qualifiers": reported or []}


def entity(name: str, label: str = "", *claims: dict[str, Any], language: str = "en", **more: Any) -> str:
    by_relation: dict[str, list[dict[str, Any]]] = {}
    for one in claims:
        by_relation.setdefault(one["mainsnak"]["property"], []).append(one)
    labels = {language: {"language": language, "value": label}} if label else []
    kind = "property" if name.startswith("P") else "item"
    return json.dumps({"type": kind, "id": name, "labels": labels, "claims": by_relation or [], **more})


CASE = ReaderCase(text=lines(lambda i: entity(f"Q{i}", "one " * 20, claim("P1", "Q0")) + ","), file="dump.json")
TIME = {"snaktype": "value", "property": "P569", "datavalue": {"value": {"time": "+1952"}, "type": "time"}}
ADAMS = entity(
    "Q42",
    "Douglas Adams",
    claim("P31", "Q5"),
    claim("P69", "Q691", "preferred", P512="Q1765"),
    claim("P69", "Q4961"),
    claim("P69", "Q1", "deprecated"),
    {"mainsnak": TIME},
    aliases={"en": [{"language": "en", "value": "DNA"}]},
    descriptions={"en": {"language": "en", "value": "writer"}, "de": {"language": "de", "value": "Autor"}},
)
DUMP = [
    ADAMS,
    entity("Q5", "human", language="mul"),
    entity("P69", "educated at"),
    entity("Q691", "St John's"),
]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "latest-all.json.bz2"
    path.write_bytes(bz2.compress(("[\n" + ",\n".join(DUMP) + "\n]\n").encode()))
    return path


def test_items_with_texts_types_and_facts(dump, read):
    adams, human, college = read("triples", dump)
    assert (adams["label"], adams["aliases"], adams["description"]) == ("Douglas Adams", ["DNA"], "writer")
    assert (adams["types"], adams["meta"]["type_labels"]) == (["Q5"], ["human"])
    assert human["label"] == "human"  # a label for all languages
    assert (college["id"], college["triples"]) == ("Q691", [])
    instance, educated = adams["triples"]
    assert (instance["relation"], instance["tail"]) == ("P31", "Q5")
    assert educated == {
        "relation": "P69",
        "relation_text": "educated at",
        "tail": "Q691",
        "tail_text": "St John's",
        "qualifiers": [{"relation": "P512", "tail": "Q1765", "tail_text": "Q1765"}],
    }
    german = read("triples", dump, language="de")[0]
    assert (german["label"], german["description"]) == ("Q42", "Autor")


def test_ranks(dump, read, drops):
    tails = [t["tail"] for t in read("triples", dump, rank="all")[0]["triples"]]
    assert tails == ["Q5", "Q691", "Q4961"]
    reasons = [
        "a claim of a lower rank",
        "a claim whose value is no item",
        "a property, whose label names its relation",
    ]
    assert drops("triples", dump) == reasons


@pytest.mark.parametrize("claims", [{"P1": [{"rank": "normal"}]}, {"P1": [7]}, {"P1": 7}])
def test_claims_that_are_none(dump, read, claims):
    path = dump.with_name("bad.json")
    path.write_text(json.dumps({"type": "item", "id": "Q1", "claims": claims}) + "\n")
    with pytest.raises(MalformedError, match=r"bad\.json:1: no entity as Wikidata writes it"):
        read("triples", path)


def test_a_cut_off_archive_is_named(dump, read):
    dump.write_bytes(dump.read_bytes()[:-20])
    with pytest.raises(WorkbenchError, match=r"latest-all\.json\.bz2 is damaged or cut off"):
        read("triples", dump, format="wikidata-json")
    dump.write_bytes(b"BZh9" + b"x" * 100)
    with pytest.raises(WorkbenchError, match=r"latest-all\.json\.bz2 is damaged or cut off"):
        read("triples", dump, format="wikidata-json")
