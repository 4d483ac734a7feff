"""The image-text format `daquar`."""

from __future__ import annotations

import json
import re

import pytest

from pipelines.readers.formats import make_reader
from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.material import photograph as small
from tests.contracts.raw_inputs import lines, tar_of
from workbench.core.errors import WorkbenchError


def photographs(records: int) -> dict[str, bytes]:
    return tar_of({f"image{i}.png": small(i % 3) for i in range(records)})


CASE = ReaderCase(
    {},
    {"streams": "the questions of all images are held"},
    text=lines(lambda i: f"what is on the desk in the image{i} ?\nbook, lamp"),
    file="qa.37.raw.train.txt",
    alongside=photographs,
)
LINES = """\
what is on the desk in the image3 ?
book, scissor, tape_dispenser
what is the largest brown objects in this image3 ?
carton
what is on the left side of the image4 ?
lamp
what is the object in the image3 close to the wall in the image3 ?

2
what is there in the eimage4 ?
bed
"""


def test_questions_name_their_image(tmp_path, tar, photograph, read):
    tar("images.tar", {f"nyu_depth_images/image{i}.png": photograph(i, format="PNG") for i in (3, 4)})
    (tmp_path / "qa.37.raw.train.txt").write_text(LINES)
    first, second = read("image-text", tmp_path / "qa.37.raw.train.txt")
    assert (first["key"], first["image"]) == ("image3", photograph(3, format="PNG"))
    assert [(one["question"], one["answers"]) for one in first["questions"]] == [
        ("what is on the desk ?", ["book", "scissor", "tape_dispenser"]),
        ("what is the largest brown objects ?", ["carton"]),
        ("what is the object in the image close to the wall ?", ["2"]),
    ]
    assert [(one["question"], one["answers"]) for one in second["questions"]] == [
        ("what is on the left side of the image ?", ["lamp"]),
        ("what is there ?", ["bed"]),
    ]
    identifiers = [one["question_id"] for sample in (first, second) for one in sample["questions"]]
    assert len(set(identifiers)) == 5


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("what is there in the image3 ?\nwhat is on it in the image3 ?\nbed\n", r":1: a question without a line of"),
        ("what is there in the image3 ?\n", r":1: a question without a line of"),
        ("what is there in the image3 ?\nbed\nwhat now ?\nbed\n", r":3: the question names no image"),
    ],
)
def test_a_missing_line_is_found_and_does_not_move_the_others(tmp_path, tar, photograph, read, text, match):
    tar("images.tar", {"image3.png": photograph(3, format="PNG")})
    (tmp_path / "qa.txt").write_text(text)
    with pytest.raises(WorkbenchError, match=match):
        read("image-text", tmp_path / "qa.txt", format="daquar")


@pytest.mark.data
def test_the_real_questions(tmp_path, shared, read):
    """The set's lines, made again of the rows that hold them."""
    rows = [json.loads(line) for line in (shared / "data/daquar/questions_train.jsonl").read_text("utf-8").splitlines()]
    file = tmp_path / "qa.894.raw.train.txt"
    file.write_text("".join(f"{row['raw_question']}\n{', '.join(row['answers'])}\n" for row in rows), "utf-8")
    found = read("image-text", file, images=[str(shared / "data/daquar/images_train.tar")], image_name="image{id}.jpg")
    asked = {
        (f"{sample['key']}.jpg", one["question_id"]): one["answers"] for sample in found for one in sample["questions"]
    }
    assert asked == {
        (row["image"], f"qa.894.raw.train-{2 * number + 1}"): row["answers"] for number, row in enumerate(rows)
    }


@pytest.mark.parametrize(
    ("text", "found", "missing"),
    [
        ("1 ?\nbed\n2 ?\n\n\nlamp\n3 ?\ncat\n", {1: "bed", 3: "cat"}, 2),
        ("1 ?\nbed\n2 ?\n\n3 ?\ncat\n", {1: "bed", 3: "cat"}, 1),
        ("1 ?\nbed\n\nlamp\n3 ?\ncat\n", {1: "bed", 3: "cat"}, 1),
        ("1\nbed\n2\n3\ncat\n", {1: "bed", 3: "cat"}, 1),
        ("1 ?\nbed\n\n2 ?\nlamp\n\n3 ?\ncat\n", {1: "bed", 2: "lamp", 3: "cat"}, 0),
        ("1 ?\n\nbed\n\n2 ?\n\nlamp\n", {1: "bed", 2: "lamp"}, 0),
        ("1 ?\n\n\nbed\n\n\n2 ?\n\n\nlamp\n", {1: "bed", 2: "lamp"}, 0),
    ],
)
def test_no_question_gets_the_answers_of_another(tmp_path, tar, photograph, text, found, missing):
    """Blank lines in place of an answer or a question, a question without its mark, and files spread by blank lines."""
    tar("images.tar", {f"image{i}.png": photograph(i, format="PNG") for i in (1, 2, 3)})
    (tmp_path / "qa.txt").write_text(re.sub(r"(?m)^(\d)", r"what is there in this image\1", text))
    reader = make_reader("image-text", "daquar", [tmp_path / "qa.txt"], {})
    records = list(reader.records([tmp_path / "qa.txt"]))
    wrong = [record for record in records if isinstance(record.data, MalformedError)]
    reported = [
        (record.data[0], question)
        for record in records
        if record not in wrong
        for question in record.data[1]["questions"]
    ]
    assert {int(name[5]): ", ".join(question["answers"]) for name, question in reported} == found
    assert {question["question"] for _, question in reported} == {"what is there ?"}
    assert len(wrong) == missing
