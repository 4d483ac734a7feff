"""Every field of the schema can be filled from JSON lines, by command options alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.row_fields import fillable
from tests.videos import tone, video
from workbench.core.errors import WorkbenchError
from workbench.corpora.schema.schema import KINDS, fields_of
from workbench.sequences.missing_fields import LINES, how_to_prepare


def test_fields_of_the_same_name_are_taken_over(json_lines: Any, read: Any) -> None:
    row = {
        "text": "Ann met Bob.",
        "second": "Who?",
        "second_spans": [[0, 3, "Q1", 1.0]],
        "choices": ["a", "b"],
        "answer": 1,
        "answers": "Ann",
        "answer_spans": [[0, 3]],
        "marks": [[0, 3, "head"], [8, 11, "tail"]],
        "labels": {"relation": "knows", "true": True, "none": None},
    }
    (sample,) = read("text", json_lines("d.jsonl", [row]))
    assert {name: sample[name] for name in row} == {
        **row,
        "answers": ["Ann"],
        "labels": {"relation": "knows", "true": 1},
    }
    assert sample["meta"] == {"source": "d.jsonl", "line": 1}


def test_fields_of_other_names(json_lines: Any, read: Any) -> None:
    row = {
        "words": ["Ann", "met", "Bob"],
        "ner": ["P", "O", "P"],
        "relation": "R1",
        "a": "x",
        "b": "y",
        "tags": ["news"],
    }
    options = {"text_field": "words", "fields": {"tags": "ner", "labels": ["relation"], "choices": ["a", "b"]}}
    (sample,) = read("text", json_lines("d.jsonl", [row]), **options)
    assert (sample["text"], sample["tags"]) == ("Ann met Bob", [[0, 3, "P"], [4, 7, "O"], [8, 11, "P"]])
    assert (sample["labels"], sample["choices"]) == ({"relation": "R1"}, ["x", "y"])
    (plain,) = read("text", json_lines("d.jsonl", [row]), text_field="a", fields={"tags": None})
    assert (plain["meta"]["tags"], "tags" in plain) == (["news"], False)


def test_translations_need_no_text(json_lines: Any, read: Any) -> None:
    options = {"fields": {"translations": {"en": "english", "de": "german"}}}
    (sample,) = read("text", json_lines("d.jsonl", [{"english": "a dog", "german": "ein Hund"}]), **options)
    assert sample["translations"] == {"en": "a dog", "de": "ein Hund"}
    assert "text" not in sample


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tags": ["news", "uk"]}, r"d\.jsonl:1: the number of tags differs from the number of words .*tags: null"),
        ({"answer": "Paris"}, r"d\.jsonl:1: field 'answer' has the wrong type.*answer: null"),
        ({"spans": [[0, 99, "Q1", 1.0]]}, r"d\.jsonl:1: the field 'spans' does not fit.*lies outside its text"),
        (
            {"answers": ["Rome"], "answer_spans": [[5, 9]]},
            r"d\.jsonl:1: the field 'answer_spans' does not fit .*reads 'text', but answers has 'Rome'",
        ),
        ({"tags": [[4, 5, "x"]]}, r"d\.jsonl:1: the field 'tags' does not fit .*is white space"),
        ({"labels": {"score": float("nan")}}, r"d\.jsonl:1: .*(NaN|not a finite number)"),
        (
            {"labels": {"score": float("inf")}},
            r"d\.jsonl:1: the field 'labels' does not fit .*'score' = inf is not a finite",
        ),
        (
            {"labels": {"score": " "}},
            r"d\.jsonl:1: the field 'labels' does not fit .*is empty; give the name of the class",
        ),
        ({"choices": ["a"], "answer": 1}, r"d\.jsonl:1: the field 'answer' does not fit .*not an index of choices"),
    ],
)
def test_what_does_not_fit_says_where_and_the_way_out(json_lines: Any, read: Any, row: Any, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        read("text", json_lines("d.jsonl", [{"text": "some text here", **row}]))


def test_only_bytes_and_arrays_have_no_column() -> None:
    rest = {kind: fields_of(kind).keys() - fillable(kind).keys() for kind in KINDS}
    assert rest == {
        "text": {"meta"},
        "image-text": {"meta", "image", "media", "regions"},
        "video-text": {"meta", "video", "clips"},
        "speech-text": {"meta", "sound", "frames"},
        "triples": {"meta"},
    }


def test_media_by_name_or_listed(json_lines: Any, read: Any, tar: Any, photograph: Any, tmp_path: Path) -> None:
    left, right = photograph(1), photograph(2, format="PNG")
    tar("images.tar", {"a.jpg": left, "b.png": right, "s.wav": b"RIFF\x04\x00\x00\x00WAVE"})
    rows = [
        {"id": "p1", "media": {"left": "a.jpg", "right": "b.png"}, "sentence": "Two dogs.", "label": True, "web": "x"},
        {"media": ["a.jpg", "s.wav"], "sentence": "A sound.", "label": False},
    ]
    path = json_lines("pairs.jsonl", rows)
    first, second = read("image-text", path, fields={"captions": "sentence", "labels": ["label"]})
    assert (first["key"], first["media"], first["captions"]) == ("p1", {"left": left, "right": right}, ["Two dogs."])
    assert (first["labels"], first["meta"]["web"]) == ({"label": 1}, "x")
    assert list(second["media"]) == ["medium0", "medium1"]
    assert first["meta"]["sha256"] != second["meta"]["sha256"]
    with pytest.raises(WorkbenchError, match="no record has all its media in"):
        read("image-text", json_lines("lost.jsonl", [{"media": ["nowhere.jpg"]}]))
    with pytest.raises(WorkbenchError, match="names no files"):
        read("image-text", json_lines("empty.jsonl", [{"media": []}]))


def test_facts_with_qualifiers(json_lines: Any, read: Any) -> None:
    qualifier = {"relation": "P580", "tail": "1900"}
    fact = {"relation": "P26", "tail": "Q2", "qualifiers": [qualifier]}
    path = json_lines("facts.jsonl", [{"id": "Q1", "extract": "a queen", "triples": [fact], "rank": 3}])
    (sample,) = read("triples", path, fields={"description": "extract"})
    assert (sample["key"], sample["description"], sample["triples"]) == ("Q1", "a queen", [fact])
    assert sample["meta"]["rank"] == 3
    with pytest.raises(WorkbenchError, match=r"bad\.jsonl:1: the field 'triples' does not fit .*has no 'tail'"):
        read("triples", json_lines("bad.jsonl", [{"id": "Q1", "triples": [{"relation": "P1"}]}]))


def test_questions_on_texts_are_found(json_lines: Any, read: Any) -> None:
    row = {"text": "Ann met Bob.", "question": "Whom did Ann meet?", "answers": ["Bob"], "answer_spans": [[8, 11]]}
    (sample,) = read("text", json_lines("qa.jsonl", [row]), fields={"second": "question"})
    assert (sample["second"], sample["answer_spans"]) == ("Whom did Ann meet?", [[8, 11]])


@pytest.mark.parametrize("field", sorted(LINES))
def test_lines_that_messages_show_bring_the_field(field: str, json_lines: Any, photograph: Any, read: Any) -> None:
    command, _, line = how_to_prepare(field).partition(" with lines such as ")
    path = json_lines("shown.jsonl", [json.loads(line)])
    for name, data in {"oslo.jpg": photograph(), "oslo.mp4": video(), "oslo.wav": tone()}.items():
        (path.parent / name).write_bytes(data)
    kind = command.split()[2]
    media = {"image-text": "images", "video-text": "videos", "speech-text": "sounds"}.get(kind)
    (sample,) = read(kind, path, **({media: [str(path.parent)]} if media else {}))
    assert sample[field] or sample[field] == 0
