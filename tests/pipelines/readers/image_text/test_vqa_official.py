"""The image-text format `vqa-official`."""

from __future__ import annotations

import json

import pytest

from pipelines.readers.formats import make_reader
from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def text(records: int) -> str:
    questions = [{"image_id": i, "question": "What?", "question_id": 10 * i} for i in range(records)]
    return json.dumps({"data_subtype": "train2014", "task_type": "Open-Ended", "questions": questions}, indent=1)


CASE = ReaderCase(
    {"image_name": "{id}.png"},
    {"streams": "a JSON document is read whole", "long lines": "a JSON document has no lines"},
    text=text,
    file="questions.json",
    alongside=images,
)


def test_images_of_test_dev_are_those_of_test(tmp_path, tar, photograph, read):
    asked = [{"image_id": 7, "question": "What?", "question_id": 70}]
    tree = {"data_subtype": "test-dev2015", "task_type": "Open-Ended", "questions": asked}
    (tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json").write_text(json.dumps(tree))
    tar("images.tar", {"COCO_test2015_000000000007.jpg": photograph(1)})
    (sample,) = read("image-text", tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json")
    assert sample["questions"] == [{"question_id": 70, "question": "What?", "answers": []}]


def rows(*numbers: int) -> list[dict[str, object]]:
    return [{"image_id": 7, "question": "What?", "question_id": number} for number in numbers]


def reported(number: int, answer: str = "cat", image: int = 7) -> dict[str, object]:
    return {"image_id": image, "question_id": number, "answers": [{"answer": answer}]}


@pytest.fixture
def pair(tmp_path, tar, photograph):
    """Write questions and annotations of image 7."""

    def write(questions: list[dict[str, object]], annotations: list[dict[str, object]], subset: str = "train2014"):
        tar("images.tar", {"7.png": photograph(1, format="PNG")})
        tree = {"data_subtype": subset, "task_type": "Open-Ended", "questions": questions}
        (tmp_path / "q.json").write_text(json.dumps(tree))
        (tmp_path / "a.json").write_text(json.dumps({"data_subtype": subset, "annotations": annotations}))
        return tmp_path / "q.json", tmp_path / "a.json"

    return write


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        (
            [reported(1), reported(1, "dog")],
            r"a\.json:annotations\[1\]: a second annotation of a question \(question_id 1, see",
        ),
        (
            [reported(1, image=8)],
            r"a\.json:annotations\[0\]: an annotation of another image than its question \(.* 8, the",
        ),
    ],
)
def test_annotations_that_are_not_their_questions_alone(pair, read, annotations, match):
    files = pair(rows(1), annotations)
    with pytest.raises(WorkbenchError, match=match):
        read("image-text", *files, image_name="{id}.png")
    reader = make_reader("image-text", "vqa-official", files, {"image_name": "{id}.png"})
    reasons = [r.data.reason for r in reader.records(files) if isinstance(r.data, MalformedError)]
    assert len(reasons) == 1
    kept = [q for r in reader.records(files) if not isinstance(r.data, MalformedError) for q in r.data[1]["questions"]]
    assert [q["answers"] for q in kept] in ([["cat"]], []), "the first of two, and none of another image"


def test_questions_without_annotations_are_reported(pair, read, caplog):
    read("image-text", *pair(rows(1, 2, 3), [reported(2)]), image_name="{id}.png")
    assert "q.json: 2 of 3 questions have no answers in the given annotations" in caplog.text
    caplog.clear()
    read("image-text", *pair(rows(1), [reported(2)], "test2015"), image_name="{id}.png")
    questions, _ = pair(rows(1), [])
    read("image-text", questions, image_name="{id}.png")
    assert not caplog.text, "a test set, and one without annotations"
