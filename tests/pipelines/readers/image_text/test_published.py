"""Sets as they are published, a tiny sample of each: `workbench prepare image-text` reads them unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing.chunks import Limits
from pipelines.readers.formats import make_reader
from pipelines.stages.pair_filters import clean_captions
from pipelines.stages.text_cleaning import NormaliseText
from tests.contracts.material import photograph
from tests.pipelines.jobs import Job
from tests.pipelines.jobs import prepare as prepare_job
from tests.pipelines.readers.image_text import (
    test_aokvqa,
    test_docvqa,
    test_flickr30k_entities,
    test_labelled_sentences,
    test_llava,
    test_ocr_vqa,
    test_refcoco,
    test_textvqa,
    test_vqa_jsonl,
)
from tests.pipelines.test_commands import prepare
from workbench.corpora.corpus import Corpus

Sample = dict[str, Any]

PUBLISHED: dict[str, tuple[dict[str, Any], str, Callable[[Sample], bool]]] = {
    "vizwiz": (
        {"train.json": [test_vqa_jsonl.vizwiz(0)]},
        "VizWiz_train_00000000.jpg",
        lambda sample: len(sample["questions"][0]["answers"]) == 10,
    ),
    "textvqa": (
        {
            "TextVQA_0.5.1_val.json": {"dataset_name": "textvqa", "data": [test_textvqa.row(7)]},
            "TextVQA_Rosetta_OCR_v0.2_val.json": {"data": [test_textvqa.words("7")]},
        },
        "7.jpg",
        lambda sample: sample["ocr_tokens"] == ["DAKOTA", "DIGITAL"],
    ),
    "docvqa": (
        {"val_v1.0.json": {"dataset_name": "docvqa", "data": [test_docvqa.row(7)]}},
        "7.png",
        lambda sample: sample["questions"][0]["answers"][0] == "1/8/93",
    ),
    "aokvqa": (
        {"aokvqa_v1p0_val.json": [test_aokvqa.row(7)]},
        "000000000007.jpg",
        lambda sample: sample["choices"][sample["answer"]] == "cab",
    ),
    "ocr-vqa": (
        {"dataset.json": {"7": test_ocr_vqa.book(7)}},
        "7.png",
        lambda sample: len(sample["questions"]) == 2,
    ),
    "snli-ve": (
        {"snli_ve_dev.jsonl": [test_labelled_sentences.SNLI, test_labelled_sentences.SNLI | {"gold_label": "-"}]},
        "4705552913.jpg",
        lambda sample: sample["labels"] == {"label": "neutral"},
    ),
    "albef-vqa": (
        {"vqa_train.json": [{"question_id": 1, "question": "What?", "image": "7.jpg", "answer": ["net", "rope"]}]},
        "7.jpg",
        lambda sample: sample["questions"][0]["answers"] == ["net", "rope"],
    ),
    "albef-captions": (
        {"coco_test.json": [{"image": "7.jpg", "caption": ["a dog", "one dog"]}]},
        "7.jpg",
        lambda sample: sample["captions"] == ["a dog", "one dog"],
    ),
    "albef-nlvr": (
        {"nlvr_dev.json": [{"sentence": "Both show dogs.", "label": "True", "images": ["7.jpg", "7.jpg"]}]},
        "7.jpg",
        lambda sample: sample["media"].keys() == {"left", "right"},
    ),
    "nlvr": (
        {"dev.jsonl": [{"id": "dev-1-0", "sentence": "It is red.", "label": True, "images": ["7.png"]}]},
        "7.png",
        lambda sample: sample["labels"] == {"label": 1},
    ),
    "llava": (
        {"llava_instruct_150k.json": [test_llava.row(7)]},
        "7.png",
        lambda sample: len(sample["questions"]) == 2,
    ),
    "refcoco": (
        {"refs.json": [test_refcoco.row(7)], "instances.json": json.loads(test_refcoco.instances(8))},
        "7.png",
        lambda sample: sample["caption_boxes"][0] == [0.1, 0.1, 0.4, 0.5],
    ),
    "flickr30k-entities": (
        {"7.txt": test_flickr30k_entities.SENTENCE, "7.xml": test_flickr30k_entities.BOXES},
        "7.jpg",
        lambda sample: [mark[2] for mark in sample["caption_marks"][0]] == ["people", "bodyparts", "bodyparts/other"],
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_set_is_read_unasked(name: str, tmp_path: Path) -> None:
    files, image, right = PUBLISHED[name]
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / image).write_bytes(photograph(1))
    for file, content in files.items():
        (tmp_path / file).write_text(content if isinstance(content, str) else json.dumps(content))
    inputs = [tmp_path / file for file in files if not file.endswith(".xml")]
    named = ("--images", tmp_path / "photographs", "--output", tmp_path / "corpus", "--workers", 1)
    prepare("image-text", *inputs, *named)
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.records == 1
    assert right(corpus.read(0, 0))
    dropped = {"LabelledSentences: no gold label ('-')": 1} if name == "snli-ve" else {}
    assert corpus.manifest.dropped == dropped


def test_phrases_stay_where_they_are_when_a_text_is_cleaned(tmp_path: Path) -> None:
    """Offsets of marks follow the caption, as those of entities do."""
    (tmp_path / "7.jpg").write_bytes(photograph(1))
    sentence = "A  café of [/EN#1/people two\u00a0 men] ."
    (tmp_path / "7.txt").write_text(f"{sentence}\n  \n{sentence}\n")
    reader = make_reader("image-text", None, [tmp_path / "7.txt"], {"images": [str(tmp_path)]})
    job = Job(reader, "image-text", tmp_path / "corpus", stages=(NormaliseText(), clean_captions))
    prepare_job(job, [tmp_path / "7.txt"], Limits())
    sample = Corpus.open(tmp_path / "corpus").read(0, 0)
    assert len(sample["captions"]) == len(sample["caption_marks"]) == 2
    for caption, ((start, end, *_),) in zip(sample["captions"], sample["caption_marks"], strict=True):
        assert caption[start:end].split() == ["two", "men"]
