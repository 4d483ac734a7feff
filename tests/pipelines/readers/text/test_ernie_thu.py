"""The text format `ernie-thu`: the published fine-tuning sets, from file to the network's input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kg.sequences.builders.marked_pair import MarkedPairBuilder
from kg.sequences.transforms.entity_stream import EntityStreamTransform
from pipelines.commands.corpora.text import text as prepare_text
from pipelines.readers.formats import detect
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.command import command
from workbench.corpora.corpus import Corpus
from workbench.text.tokenizer import Tokenizer

SENT = "Oslo lies in Norway ."
DRAWS = Draws("t", number=(0,))


def typed(i: int) -> dict[str, Any]:
    return {"sent": f"{i} {SENT}", "start": 2, "end": 6, "ents": [["Q585", 2, 6, 0.5]], "labels": ["city"]}


def related(i: int) -> dict[str, Any]:
    return {"text": SENT, "ents": [["Q20", 13, 19], ["Q585", 0, 4]], "label": "contains"}


CASE = ReaderCase(text=json_lines(typed))


def test_typing(tmp_path: Path, read: Any) -> None:
    """The published files are one list each."""
    file = tmp_path / "test.json"
    file.write_text(json.dumps([{**typed(3), "labels": ["place", "city", "city"]}, {**typed(4), "ents": []}]))
    assert detect("text", [file]) == "ernie-thu"
    first, second = read("text", file)
    assert (first["text"], first["mention"]) == (f"3 {SENT}", [2, 6])
    assert (first["types"], first["spans"]) == (["city", "place"], [[2, 6, "Q585", 0.5]])
    assert (second["key"], second["spans"]) == ("test-2", [])


def test_an_entity_that_the_linker_did_not_know_is_no_link(tmp_path: Path, read: Any) -> None:
    file = tmp_path / "test.json"
    row = {**typed(1), "ents": [["#UNK#", 7, 11, 0.0], ["Q585", 2, 6, 0.5], ["#UNK#", 15, 21, 0.0]]}
    file.write_text(json.dumps([row, {**related(2), "ents": [["Q20", 13, 19], ["#UNK#", 0, 4]]}]))
    first, second = read("text", file)
    assert (first["spans"], second["spans"]) == ([[2, 6, "Q585", 0.5]], [[13, 19, "Q20", 1.0]])
    assert second["marks"] == [[0, 4, "tail"], [13, 19, "head"]], "it is the tail all the same"
    assert first["meta"]["left_out"] == {"a mention whose entity is #UNK#": 2}
    command(prepare_text)(inputs=[str(file)], output=tmp_path / "corpus", workers=1)
    assert Corpus.open(tmp_path / "corpus").manifest.dropped == {"ErnieThuText: a mention whose entity is #UNK#": 3}


def test_relations(tmp_path: Path, read: Any) -> None:
    """Of FewRel the two mentions are linked, of TACRED whatever the linker found."""
    file = tmp_path / "dev.json"
    file.write_text(json.dumps([related(0), {**related(1), "ann": [["Q585", 0, 4, 0.2]]}], indent=1))
    assert detect("text", [file]) == "ernie-thu"
    few, tacred = read("text", file)
    assert few["marks"] == [[0, 4, "tail"], [13, 19, "head"]]
    assert few["spans"] == [[0, 4, "Q585", 1.0], [13, 19, "Q20", 1.0]]
    assert few["labels"] == {"relation": "contains"}
    assert tacred["spans"] == [[0, 4, "Q585", 0.2]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**typed(1), "end": 99}, r"set\.jsonl:1: a mention must be .*99\] of 23 characters"),
        ({**typed(1), "ents": [["Q585", 2, 6, "high"]]}, "a mention must be"),
        ({**related(1), "ents": [["Q20", 13, 19]]}, "must be the head and the tail"),
        ({**typed(1), "labels": [3]}, "labels must be strings"),
    ],
)
def test_what_does_not_fit(json_lines: Any, read: Any, row: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        read("text", json_lines("set.jsonl", [row]), format="ernie-thu")


@pytest.mark.parametrize("name", ["fewrel", "tacred"])
def test_the_input_equals_the_release(shared: Path, tmp_path: Path, read: Any, name: str) -> None:
    """Tokens with the markers, and the entities on the first tokens of their mentions."""
    folder = shared / "golden/ernie_thu/data_conventions"
    golden = json.loads((folder / f"{name}.json").read_text())
    (tmp_path / "set.json").write_text(json.dumps([row["example"] for row in golden["rows"]]))
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    rows = dict(line.split("\t") for line in (folder / "entity2id.tsv").read_text().splitlines() if "\t" in line)
    builder = MarkedPairBuilder(tokenizer, golden["max_seq_length"])
    table = {entity: int(row) for entity, row in rows.items()}
    step = EntityStreamTransform(table, min_score=golden.get("threshold", 0.0))
    found, wanted = 0, sum(sum(row["features"]["ent_mask"]) for row in golden["rows"])
    for sample, row in zip(read("text", tmp_path / "set.json"), golden["rows"], strict=True):
        features = row["features"]
        (made,) = step(builder([{**sample, "draw": (0,)}], DRAWS), DRAWS)
        length = sum(features["input_mask"])
        assert made.streams["text"]["input_ids"].tolist() == features["input_ids"][:length]
        assert golden["label_list"][features["label_id"]] == sample["labels"]["relation"]
        stream = made.streams["entity"]
        ours = dict(zip(stream["token"].index.tolist(), (stream["entity_ids"] - 1).tolist(), strict=True))
        theirs = {i: features["input_ent"][i] for i, mask in enumerate(features["ent_mask"]) if mask}
        assert theirs == ours
        found += len(theirs)
    assert found == wanted > 0
