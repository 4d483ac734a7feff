"""The image-text format `docvqa`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.readers.formats import make_reader
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def row(i: int, image: str = "") -> dict[str, Any]:
    return {
        "questionId": 337 + i,
        "question": "what is the date mentioned in this letter?",
        "question_types": ["handwritten", "form"],
        "image": image or f"documents/{i}.png",
        "docId": 279,
        "ucsf_document_id": "xnbl0037",
        "ucsf_document_page_no": "1",
        "answers": ["1/8/93", "January 8, 1993"],
        "data_split": "val",
    }


def published(rows: list[dict[str, Any]]) -> str:
    reported = {"dataset_name": "SP-DocVQA", "dataset_version": "1.0", "dataset_split": "val", "data": rows}
    return json.dumps(reported, indent=1)


CASE = ReaderCase(
    {},
    {"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=lambda records: published([row(i) for i in range(records)]),
    file="val_v1.0.json",
    alongside=images,
)
PAGE = {
    "page": 1,
    "width": 200,
    "height": 100,
    "unit": "pixel",
    "lines": [{"text": "Jan 8", "words": [{"text": "Jan", "boundingBox": [20, 10, 60, 12, 60, 30, 20, 28]}]}],
}


def test_pages_with_the_words_of_their_files(tmp_path, tar, photograph, read):
    tar("images.tar", {"xnbl0037_1.png": photograph(1), "b.png": photograph(2)})
    path = tmp_path / "val_v1.0_withQT.json"
    test = {name: value for name, value in row(1, "documents/b.png").items() if name != "answers"}
    path.write_text(published([row(0, "documents/xnbl0037_1.png"), test]))
    (tmp_path / "ocr_results").mkdir()
    page = tmp_path / "ocr_results" / "xnbl0037_1.json"
    page.write_text(json.dumps({"status": "Succeeded", "recognitionResults": [PAGE]}))
    first, second = read("image-text", path)
    assert first["questions"] == [
        {
            "question_id": 337,
            "question": "what is the date mentioned in this letter?",
            "answers": ["1/8/93", "January 8, 1993"],
            "question_type": "handwritten/form",
        }
    ]
    assert (first["ocr_tokens"], first["ocr_boxes"]) == (["Jan"], [[0.1, 0.1, 0.3, 0.3]])
    assert (first["meta"]["document"], first["meta"]["split"]) == ("xnbl0037", "val")
    assert (second["questions"][0]["answers"], "ocr_tokens" in second) == ([], False)
    reader = make_reader("image-text", None, [path], {})
    assert reader.about() == {"vqa_variant": "anls"}
    assert page in reader.inputs([path])
    page.write_text("{")
    with pytest.raises(WorkbenchError, match=r"xnbl0037_1\.json:1: words that were read, and no JSON"):
        read("image-text", path)
    with pytest.raises(WorkbenchError, match=r"there is no folder .*elsewhere.*--option ocr=FOLDER"):
        read("image-text", path, ocr=str(tmp_path / "elsewhere"))


def test_infographics_and_scene_texts(tmp_path, tar, photograph, read):
    tar("images.tar", {"10065.jpeg": photograph(1), "coco-text/COCO_train2014_1.jpg": photograph(2)})
    (tmp_path / "words").mkdir()
    box = {"Width": 0.25, "Height": 0.125, "Left": 0.5, "Top": 0.25}
    found = {"PAGE": [{}], "LINE": [], "WORD": [{"Text": "55%", "Geometry": {"BoundingBox": box}}]}
    (tmp_path / "words" / "10065.json").write_text(json.dumps(found))
    infographic = {"questionId": 1, "question": "How many?", "image_local_name": "10065.jpeg", "answers": ["55%"]}
    scene = {
        "file_path": "coco-text/COCO_train2014_1.jpg",
        "question_id": 2,
        "question": "Where does the train go?",
        "answers": ["Heysham"],
        "set_name": "train",
    }
    (tmp_path / "i.json").write_text(published([infographic | {"ocr_output_file": "10065.json"}]))
    (tmp_path / "s.json").write_text(json.dumps({"data": [scene]}))
    first, second = read("image-text", tmp_path / "i.json", tmp_path / "s.json", ocr=str(tmp_path / "words"))
    assert (first["ocr_tokens"], first["ocr_boxes"]) == (["55%"], [[0.5, 0.25, 0.75, 0.375]])
    assert (second["questions"][0]["question_id"], second["meta"]["split"]) == (2, "train")
