"""Records in memory become the corpus that their file becomes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import workbench
from workbench.core.errors import WorkbenchError

TEXTS = [{"text": "Oslo lies in Norway.", "label": "city", "n": 1}, {"text": "a wide river", "label": "water", "n": 2}]
TRIPLES = [("oslo", "country", "norway"), ("bergen", "country", "norway")]


def samples(corpus: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if name not in ("key", "corpus", "meta")} for each in corpus]


def test_texts_of_all_kinds_equal_those_of_a_file(tmp_path: Path) -> None:
    pd.DataFrame(TEXTS).to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    expected = samples(workbench.prepare_text(tmp_path / "texts.jsonl", tmp_path / "file"))
    numbers = [{**row, "label": number} for number, row in enumerate(TEXTS)]
    label = SimpleNamespace(names=["city", "water"], int2str=None)
    dataset = type("Dataset", (list,), {"features": {"text": None, "label": label}})(numbers)
    kinds = {"list": TEXTS, "generator": iter(TEXTS), "frame": pd.DataFrame(TEXTS), "dataset": dataset}
    for name, records in kinds.items():
        corpus = workbench.prepare_text(records, tmp_path / name)
        assert samples(corpus) == expected, name
        assert corpus[1]["meta"]["n"] == 2
    assert not [*tmp_path.glob(".*")]


def test_a_missing_value_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["one", "two"], "score": [0.5, None], "count": np.array([3, 4])})
    first, second = workbench.prepare_text(frame, tmp_path / "out")
    assert (first["meta"]["score"], first["meta"]["count"]) == (0.5, 3)
    assert second["meta"].get("score") is None
    assert workbench.prepare_text(frame.convert_dtypes(), tmp_path / "own types")[1]["text"] == "two"


def test_images_keep_their_bytes(tmp_path: Path) -> None:
    photo = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    file = tmp_path / "a.png"
    photo.save(file)
    stored = file.read_bytes()
    images = [photo, np.asarray(photo), stored, file, {"bytes": None, "path": str(file)}]
    rows = [{"image": image, "caption": f"caption {number}"} for number, image in enumerate(images)]
    corpus = workbench.prepare_image_text(rows, tmp_path / "pairs")
    assert [each["captions"] for each in corpus] == [[row["caption"]] for row in rows]
    for each in corpus:
        assert Image.open(io.BytesIO(each["image"])).tobytes() == photo.tobytes()
    assert [each["image"] for each in corpus][2:] == [stored] * 3
    asked = workbench.prepare_image_text(
        ({"image": photo, "question": "what?", "answer": "a ramp"} for _ in range(2)), tmp_path / "questions"
    )
    assert asked[0]["questions"][0]["answers"] == ["a ramp"]


def test_triples_are_tuples_or_dicts(tmp_path: Path) -> None:
    frame = pd.DataFrame(TRIPLES, columns=["head", "relation", "tail"])
    one, other = (workbench.prepare_triples(r, tmp_path / n) for n, r in (("tuples", TRIPLES), ("frame", frame)))
    assert samples(one) == samples(other)
    assert {each["id"] for each in one} == {"oslo", "bergen", "norway"}


def _none() -> Iterator[dict[str, Any]]:
    yield from ()


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (3, "inputs are of type int; allowed: paths, or an iterable of dicts"),
        (_none(), "inputs have no record"),
        ([{"text": "a"}, 5], "record 1 is of type int; allowed: a dict"),
        ([{"text": "a", "at": object()}], "record 0 has no form in JSON"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, records: Any, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        workbench.prepare_text(records, tmp_path / "out")
    assert not [*tmp_path.iterdir()]


PHOTO = Image.new("RGB", (4, 4))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"photo": PHOTO, "title_of": "x"}, r"record 1 has .* only title_of \(str\); allowed: caption, captions, "),
        ({"image": "photos/0.png", "caption": "x"}, r"record 1 has no image, only image \(str\), .* make a Path, or "),
        ({"caption": "x"}, r"record 1 has no image, only caption \(str\)"),
        ({}, "record 1 has no image, only no field"),
    ],
)
def test_a_record_without_an_image_or_a_known_field_is_refused(tmp_path: Path, record: Any, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message) as error:
        workbench.prepare_image_text([{"image": PHOTO, "caption": "x"}, record], tmp_path / "out")
    assert not re.search(r"--|-records", str(error.value))
    assert not [*tmp_path.iterdir()]


def test_options_describe_images_and_fields(tmp_path: Path) -> None:
    own = [{"photo": PHOTO, "said": "x"}]
    assert workbench.prepare_image_text(own, tmp_path / "one", option={"caption_column": "said"})[0]["captions"]
    PHOTO.save(tmp_path / "0.png")
    rows = [{"image": "0.png", "caption": "x"}]
    assert len(workbench.prepare_image_text(rows, tmp_path / "two", images=tmp_path)) == 1
