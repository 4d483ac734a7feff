"""Every field of the schema is written, read back exactly, checked, shown, and moved with the windows of its text."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.corpora.conftest import image_bytes
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.corpora.preview import preview
from workbench.corpora.schema.places import take, with_texts
from workbench.corpora.schema.schema import KINDS, SCHEMA
from workbench.corpora.shards.record import encode
from workbench.corpora.verify import verify

WAV, MP4 = b"RIFF\x04\x00\x00\x00WAVEfmt ", b"\x00\x00\x00\x18ftypmp42"
LEFT, RIGHT = image_bytes(), image_bytes(kind="PNG", colour=7)
QUALIFIER = {"relation": "P580", "relation_text": "start", "tail": "Q3", "tail_text": "1900"}
TEXT: dict[str, Any] = {
    "text": "Ann met Bob. He left.",
    "spans": [[0, 3, "Q1", 0.5], [8, 11, "Q2", 1]],
    "mask_spans": [[8, 11, "Q2"]],
    "mention": [0, 3],
    "types": ["person"],
    "tags": [[0, 3, "B-PER"], [4, 7, "O"], [8, 11, "B-PER"]],
    "dependencies": [[0, 3, 4, "nsubj"], [4, 7, 0, "root"], [8, 11, -4, "obj"]],
    "marks": [[8, 11, "head"], [13, 15, "pronoun"]],
    "second": "Whom did Ann meet?",
    "second_spans": [[9, 12, "Q1", 1.0]],
    "second_mask_spans": [[0, 4]],
    "answers": ["Bob", "He"],
    "answer_spans": [[8, 11], [13, 15]],
    "choices": ["Ann", "Bob"],
    "choice_spans": [[[0, 3, "Q1", 1.0]], []],
    "answer": 1,
    "language": "en",
    "translations": {"de": "Anna traf Bob.", "fr": "Anne a rencontré Bob."},
    "translation_spans": {"fr": [], "de": [[0, 4, "Q1", 1.0]]},
    "turns": ["Whom did she meet?", "Bob."],
    "speakers": ["Cid", "Ann"],
    "cooccurrences": [["met", 2.0], ["him", 0.5]],
    "labels": {"relation": "knows", "entailment": 2, "score": 0.5},
    "meta": {"source": "made"},
}
IMAGE = {
    "image": LEFT,
    "media": {"left": LEFT, "right": RIGHT, "sound": WAV, "video": MP4},
    "captions": ["the same house twice"],
    "caption_spans": [[[9, 14, "Q2", 1.0]]],
    "caption_boxes": [[0.25, 0, 1, 0.5]],
    "caption_marks": [[[4, 8, "thing/same", "7", []], [9, 14, "thing", "1", [[0.25, 0, 1, 0.5], [0, 0, 1, 1]]]]],
    "questions": [{"question_id": 1, "question": "Red?", "answers": ["no"]}],
    "ocr_tokens": ["EXIT", "12"],
    "ocr_boxes": [[0.5, 0, 1, 0.25], []],
    "regions": {"features": np.ones((1, 2), np.float32), "boxes": np.array([[0, 0, 1, 1]], np.float32)},
    "choices": ["a", "b"],
    "choice_spans": [[], []],
    "answer": 0,
    "labels": {"true": 1},
    "meta": {},
}
TRIPLES = {
    "id": "Q1",
    "label": "Ann",
    "aliases": ["Anna"],
    "description": "a person",
    "types": ["Q5"],
    "triples": [{"relation": "P26", "relation_text": "spouse", "tail": "Q2", "qualifiers": [QUALIFIER]}],
    "labels": {},
    "meta": {},
}
CLIPS = {"features": np.ones((2, 3), np.float16), "times": np.float32([[0, 1.5], [1.5, 2]]), "codes": np.int32([3, 0])}
VIDEO = {
    "video": MP4,
    "clips": CLIPS,
    "captions": ["a house", "a door"],
    "caption_spans": [[[2, 7, "Q2", 1.0]], []],
    "caption_times": [[0, 1.5], [1, 2.25]],
    "labels": {},
    "meta": {},
}
SPEECH = {
    "sound": WAV,
    "frames": {"features": np.ones((4, 3), np.float16), "step": np.float32(0.01)},
    "transcript": "Ann met Bob.",
    "words": [[0, 3, 0.0, 0.25], [4, 7, 0.25, 0.5]],
    "labels": {},
    "meta": {},
}
SAMPLES = {"text": TEXT, "image-text": IMAGE, "video-text": VIDEO, "speech-text": SPEECH, "triples": TRIPLES}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_comes_back_exactly_and_is_shown(write: Any, kind: str) -> None:
    assert {field.name for field in SCHEMA if kind in field.kinds} == SAMPLES[kind].keys(), "a field without an example"
    corpus = write([SAMPLES[kind]], kind=kind)
    read = corpus.read(0, 0)
    for name, value in SAMPLES[kind].items():
        if name in ("regions", "clips", "frames"):
            assert all(np.array_equal(read[name][array], value[array]) for array in value)
        else:
            assert read[name] == value, name
            assert str(list(read[name])) == str(list(value)) if isinstance(value, dict) else True, name
    assert list(verify(corpus, {"Q1", "Q2", "Q3"})) == []
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(preview(read))
    shown = console.export_text()
    for words in {
        "text": [
            "Ann [Q1] met Bob [Q2]",
            "Ann [B-PER] met [O]",
            "He [pronoun]",
            "Whom did Ann [Q1] meet?",
            "Anna [Q1] traf",
        ],
        "image-text": ["left: JPEG 8 x 6", "right: PNG 8 x 6", "sound: wav, 16 B", "video: mp4", "house [Q2]"],
        "video-text": [
            "mp4",
            "features [2, 3] float16, times [2, 2] float32, codes [2] int32",
            "[1, 2.25]",
            "house [Q2]",
        ],
        "speech-text": ["wav, 16 B", "features [4, 3] float16", "Ann met Bob.", "[4, 7, 0.25, 0.5]"],
        "triples": ["P580", "a person"],
    }[kind]:
        assert words in shown, words


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("text", {"tags": [[0, 3, 1]]}, r"tags: \[0, 3, 1\] is not \[start, end, name\]"),
        ("text", {"tags": [[4, 7, "O"], [0, 3, "O"]]}, "sort them"),
        ("text", {"marks": [[0, 99, "head"]]}, "marks: .* lies outside its text of 21 characters"),
        ("text", {"second_spans": [[0, 99, "Q1", 1.0]]}, "second_spans: .* lies outside its text of 18"),
        ("text", {"second": None}, "'second' is of type NoneType"),
        ("text", {"answer_spans": [[3, 3]]}, "answer_spans: .* lies outside"),
        ("text", {"answers": ["Bob", "he"]}, r"answer_spans: 1 reads 'He', but answers has 'he' at this index"),
        ("text", {"answers": ["Bob "], "answer_spans": [[8, 11]]}, "answer_spans: 0 reads 'Bob', but .* 'Bob '"),
        ("text", {"answer_spans": [[8, 11]]}, "answer_spans: 1 for 2 answers; give none, or one for each"),
        ("text", {"answers": []}, "answer_spans: 2 for 0 answers"),
        ("text", {"tags": [[3, 4, "O"]]}, r"tags: \[3, 4\) is white space"),
        ("text", {"tags": [[0, 3, ""]]}, r"tags: the name in \[0, 3, ''\] is empty"),
        ("text", {"tags": [[0, 3, "B-\x00"]]}, r"tags: the name in \[0, 3, 'B-\\x00'\] has control characters"),
        ("text", {"marks": [[0, 3, "\x1b[1m"]]}, r"marks: .* has control characters"),
        ("text", {"answer": 2}, "answer: 2 is not an index of choices"),
        ("text", {"answer": -1}, "answer: -1 is not a number from 0"),
        ("text", {"choices": ["a", 3]}, "choices: '3' is of type int, not a string"),
        ("text", {"choice_spans": [[]]}, "1 lists in choice_spans for 2 choices"),
        ("text", {"translations": {"de": 1}}, "translations: '1' is of type int"),
        ("text", {"translation_spans": {"de": []}}, "translation_spans has de for the translations de, fr"),
        ("text", {"translation_spans": []}, "'translation_spans' is of type list"),
        ("text", {"labels": {"x": [1]}}, "label 'x' = .* is neither a number nor the name of a class"),
        ("image-text", {"media": {"a.b": LEFT}}, "'a.b' cannot name a medium"),
        ("image-text", {"media": {"left": "left.jpg"}}, "the medium 'left' is of type str"),
        ("image-text", {"media": {"left": b"<html>"}}, "the medium 'left' starts with b'<html>'"),
        ("image-text", {"media": {}}, "media is empty"),
        ("image-text", {"ocr_boxes": [[]]}, "ocr_boxes: 1 for 2 ocr_tokens; give one for each"),
        ("image-text", {"ocr_boxes": [[], [0, 0, 2, 1]]}, r"\[0, 0, 2, 1\] is not x1 < x2 and y1 < y2 in 0..1"),
        ("image-text", {"caption_marks": [[[0, 3, "thing", "1"]]]}, "is not .start, end, name, number, boxes"),
        ("image-text", {"caption_marks": [[[0, 3, "", "1", []]]]}, r"the name in \[0, 3, ''\] is empty"),
        ("image-text", {"caption_marks": [[[0, 3, "thing", "1", [[1]]]]]}, r"\[1\] is neither \[x1, y1, x2, y2\]"),
        ("image-text", {"caption_marks": [[[0, 99, "thing", "1", []]]]}, "lies outside its text of 20 characters"),
        ("video-text", {"video": LEFT}, "the video is jpg; allowed: mp4, webm, avi"),
        ("video-text", {"caption_times": [[0, 1]]}, "caption_times: 1 for 2 captions; give one for each"),
        ("video-text", {"caption_times": [[0, 1], [2, 1]]}, r"\[2, 1\] is not \[from, to\] in seconds"),
        ("speech-text", {"sound": MP4}, "the sound is mp4; allowed: wav, flac"),
        ("speech-text", {"words": [[0, 3, 1.0, 0.5]]}, r"words: \[1.0, 0.5\] is not \[from, to\]"),
        ("speech-text", {"words": [[0, 99, 0.0, 0.5]]}, "words: .* lies outside its text of 12 characters"),
        ("image-text", {"questions": [{"question": "Red?"}]}, "has no 'answers'"),
        ("triples", {"triples": [{"relation": "P1"}]}, "has no 'tail'"),
        ("triples", {"triples": [{"relation": "P1", "tail": "Q1", "qualifiers": [{}]}]}, "has no 'relation'"),
    ],
)
def test_what_the_schema_does_not_allow_is_refused(kind: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        encode({**SAMPLES[kind], **changed}, kind)


def test_places_of_answers_may_be_unknown_and_tags_be_nested() -> None:
    encode({**TEXT, "answer_spans": []}, "text")
    encode({**TEXT, "tags": [[0, 3, "person"], [0, 7, "event"]]}, "text")


def test_one_required_field_may_stand_for_another() -> None:
    encode({"translations": {"en": "a", "de": "b"}}, "text")
    encode({"media": {"left": LEFT, "right": RIGHT}, "captions": ["x"]}, "image-text")
    with pytest.raises(WorkbenchError, match="lacks text or translations"):
        encode({"second": "x"}, "text")
    with pytest.raises(WorkbenchError, match="lacks image or media"):
        encode({"captions": ["x"]}, "image-text")


def test_a_window_has_the_stretches_inside_it_and_none_is_cut() -> None:
    window = take(TEXT, "text", 8, 21)
    assert (window["text"], window["tags"]) == ("Bob. He left.", [[0, 3, "B-PER"]])
    assert (window["marks"], window["answer_spans"]) == ([[0, 3, "head"], [5, 7, "pronoun"]], [[0, 3], [5, 7]])
    assert "mention" not in window
    assert window["second_spans"] == TEXT["second_spans"]
    long = {"text": "x " * 300, "tags": [[99, 470, "name"]]}
    cuts = [point >> 1 for point in encode(long, "text").cuts or ()]
    assert cuts
    assert not any(99 < cut < 470 for cut in cuts)


def test_a_text_that_is_not_there_is_whole() -> None:
    sample = {"translations": {"en": "a"}}
    assert take(sample, "text", 0, 0) == sample


def test_media_of_a_foreign_set(make_tar: Any) -> None:
    tar = make_tar([("a.before.jpg", LEFT), ("a.after.png", RIGHT), ("a.txt", b"paint it")])
    assert index_foreign([tar], tar.parent).kind == "image-text"
    corpus = Corpus.open(tar.parent)
    sample = corpus.read(0, 0)
    assert (sample["media"], sample["captions"]) == ({"before": LEFT, "after": RIGHT}, ["paint it"])
    assert list(verify(corpus)) == []


def test_a_damaged_medium_is_found(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write([{"media": {"left": LEFT[:-40], "right": RIGHT}}], kind="image-text")
    (problem,) = verify(corpus)
    assert problem.reason.startswith("left: the image cannot be decoded")


def test_other_texts_have_none_of_the_marks_and_as_many_keep_their_times() -> None:
    video = {"captions": ["Oslo", "Rome"], "caption_spans": [[[0, 4, "Q1", 1]], []], "caption_times": [[0, 1], [1, 2]]}
    assert with_texts(video, "captions", ["a", "b"]) == {"captions": ["a", "b"], "caption_times": [[0, 1], [1, 2]]}
    assert with_texts(video, "captions", [""]) == {"captions": [""]}
    assert video["captions"] == ["Oslo", "Rome"]
