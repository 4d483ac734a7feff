"""The image-text format `labelled-sentences`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from tests.contracts.raw_inputs import json_lines as rows
from workbench.core.errors import WorkbenchError

SNLI = {
    "Flickr30K_ID": "4705552913",
    "annotator_labels": ["neutral", "entailment", "neutral", "neutral", "neutral"],
    "captionID": "4705552913.jpg#2",
    "gold_label": "neutral",
    "pairID": "4705552913.jpg#2r1n",
    "sentence1": "Two women are embracing while holding to go packages.",
    "sentence2": "The sisters are hugging goodbye.",
}


def row(i: int) -> dict[str, Any]:
    return {"Flickr30K_ID": str(i), "pairID": f"{i}.png#0", "sentence2": "A dog.", "gold_label": "entailment"}


CASE = ReaderCase(
    {"image_name": "{id}.png"}, {"streams": "the list of the photographs is held"}, text=rows(row), alongside=images
)


def test_snli_ve_as_it_is_published(json_lines, tar, photograph, read, drops):
    unsure = SNLI | {"gold_label": "-", "pairID": "4705552913.jpg#2r1e"}
    other = SNLI | {"gold_label": "contradiction", "pairID": "4705552913.jpg#2r1c", "Flickr30K_ID": 4705552913}
    path = json_lines("snli_ve_dev.jsonl", [SNLI, unsure, other])
    tar("images.tar", {"flickr30k/4705552913.jpg": photograph(1)})
    found = read("image-text", path)
    assert [s["labels"]["label"] for s in found] == ["neutral", "contradiction"]
    assert found[0]["captions"] == ["The sisters are hugging goodbye."], "the premise is the image"
    assert found[0]["meta"]["premise"] == SNLI["sentence1"]
    assert found[0]["image"] == photograph(1)
    assert {s["meta"]["document"] for s in found} == {"4705552913"}
    assert drops("image-text", path) == ["no gold label ('-')"]


def test_the_lists_of_albef_and_blip(json_lines, tar, photograph, read):
    """https://github.com/salesforce/ALBEF: ve_train.json and nlvr_train.json are lists of such objects."""
    tar("images.tar", {f"{name}.png": photograph(i) for i, name in enumerate(("a-img0", "a-img1", "b"))})
    pair = {"sentence": "Both show dogs.", "label": "False", "images": ["a-img0.png", "a-img1.png"]}
    one = {"sentence": "A dog.", "label": "entailment", "image": "b.png"}
    both, alone = read("image-text", json_lines("list.json", [pair, one]))
    assert (both["media"], both["labels"]) == ({"left": photograph(0), "right": photograph(1)}, {"label": 0})
    assert (alone["image"], alone["labels"], alone["captions"]) == (photograph(2), {"label": "entailment"}, ["A dog."])


def test_nlvr_with_its_drawing_named(json_lines, tar, photograph, read):
    tar("images.tar", {"dev-1572-0-0.png": photograph(1)})
    drawn = {"id": "dev-1572-0", "sentence": "A box is blue.", "label": True, "images": ["dev-1572-0-0.png"]}
    (sample,) = read("image-text", json_lines("dev.jsonl", [drawn]))
    assert (sample["key"], sample["labels"]) == ("dev-1572-0", {"label": 1})
    hidden = {**drawn, "label": None}
    assert "labels" not in read("image-text", json_lines("test.jsonl", [hidden]))[0]
    with pytest.raises(WorkbenchError, match=r"three\.jsonl:1: images must be one or two names of files"):
        read("image-text", json_lines("three.jsonl", [{**drawn, "images": ["a", "b", "c"]}]))
