"""`prepare entity-vocabulary`, from linked texts to a run that reads its entities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kg.sequences.entity_vocabulary import EntityVocabulary
from pipelines.commands.knowledge.entity_vocabulary import entities_in
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError


def test_links_are_found_whatever_texts_they_are_of() -> None:
    link = [0, 3, "Q1", 0.5]
    assert [*entities_in([link, [0, 3, "Q2", 0.4], [4, 5, "Q1"]])] == ["Q1", "Q1"]  # candidates: the first
    assert [*entities_in([[link], [], [[0, 3, "Q3"]]])] == ["Q1", "Q3"]  # a list for each caption
    assert sorted(entities_in({"en": [link], "fr": [[0, 3, "Q4"]]})) == ["Q1", "Q4"]


@pytest.fixture
def linked(tmp_path: Path, json_lines: Any) -> Path:
    rows = [{"text": "oslo lies in norway", "spans": [[0, 4, "Q1", 1.0], [13, 19, "Q2", 1.0]]}] * 3
    rows += [{"text": "oslo and lima", "spans": [[0, 4, "Q1", 1.0], [9, 13, "Q3", 1.0]]}]
    prepare("text", json_lines("towns.jsonl", rows), "-o", tmp_path / "text", "--workers", 1)
    return tmp_path


def test_entities_are_counted_and_the_frequent_ones_kept(linked: Path) -> None:
    file = linked / "entities.safetensors"
    for options, kept in (((), ["Q1", "Q2", "Q3"]), (("--size", 1), ["Q1"]), (("--min-count", 3), ["Q1", "Q2"])):
        prepare("entity-vocabulary", linked / "text", "-o", file, *options)
        found = EntityVocabulary.open(file)
        assert {name: found.row(name) for name in kept} == {name: 3 + i for i, name in enumerate(kept)}
        assert len(found) == 3 + len(kept)


def test_texts_without_links_and_other_endings_are_refused(linked: Path, json_lines: Any) -> None:
    prepare("text", json_lines("plain.jsonl", [{"text": "the river"}]), "-o", linked / "plain", "--workers", 1)
    with pytest.raises(WorkbenchError, match=r"no entity has 1 links in .*plain; .*prepare link"):
        prepare("entity-vocabulary", linked / "plain", "-o", linked / "e.safetensors")
    with pytest.raises(WorkbenchError, match=r"e\.json: an entity vocabulary is written to a \.safetensors file"):
        prepare("entity-vocabulary", linked / "text", "-o", linked / "e.json")
    assert not [*linked.glob("e.*")]


SPECIAL_ROWS = {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2}
RELEASES = {
    "entity_vocab.json": json.dumps({**SPECIAL_ROWS, "Norway": 4, "Oslo: a city": 3}),
    "entity_vocab.tsv": "[PAD]\t0\n[UNK]\t0\n[MASK]\t0\nOslo: a city\t9\nNorway\t7\n",
    "entity_vocab.jsonl": "".join(
        json.dumps({"id": row, "entities": titles, "count": 5}) + "\n"
        for row, titles in enumerate(
            [
                *([[name, None]] for name in SPECIAL_ROWS),
                [["Oslo (Norge)", "no"], ["Oslo: a city", "en"]],
                [["Norway", "en"], ["Noreg", "nn"]],
            ]
        )
    ),
    "mluke.json": json.dumps({**SPECIAL_ROWS, "no:Oslo": 3, "en:Oslo: a city": 3, "en:Norway": 4, "[MASK2]": 5}),
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_luke_keeps_its_rows(tmp_path, name):
    """A row of the vocabulary is the row of the released code's table of entities, whatever the writing."""
    place = tmp_path / name
    place.write_text(RELEASES[name])
    prepare("entity-vocabulary", "--published", place, "-o", tmp_path / "v.safetensors")
    made = EntityVocabulary.open(tmp_path / "v.safetensors")
    assert [made.row("Oslo: a city"), made.row("Norway")] == [3, 4]
    assert len(made) == (6 if name.startswith("mluke") else 5)
    (tmp_path / "keys.tsv").write_text("Norway\tQ20\nParis\tQ90\n")
    prepare(
        "entity-vocabulary", "--published", place, "--keys", tmp_path / "keys.tsv", "-o", tmp_path / "k.safetensors"
    )
    made = EntityVocabulary.open(tmp_path / "k.safetensors")
    assert [made.row("Q20"), made.row("Norway"), made.row("Oslo: a city")] == [4, None, 3]


def test_other_releases_are_refused(tmp_path):
    place, output = tmp_path / "entity_vocab.json", tmp_path / "v.safetensors"
    for text, message in [
        (
            '{"Oslo": 0, "[MASK]": 1, "x": 2}',
            r"begins with the rows Oslo, \[MASK\], x; allowed: \[PAD\]",
        ),
        ('{"[PAD]": 0, "Oslo": 2}', "the row 1 has no entity"),
        ('["Oslo"]', "no mapping of titles to rows"),
    ]:
        place.write_text(text)
        with pytest.raises(WorkbenchError, match=message):
            prepare("entity-vocabulary", "--published", place, "-o", output)
    with pytest.raises(WorkbenchError, match="give linked corpora, or --published FILE"):
        prepare("entity-vocabulary", "-o", output)
