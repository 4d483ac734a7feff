"""Values of Python as overrides: what is written is read as the same value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.files.yaml_values import assignments, changed, parse_value, read_yaml

VALUES: list[Any] = [
    *(None, True, 0, -3, 1e-05, 3e30, 0.1),
    *(
        "",
        " a ",
        "a b",
        "1",
        "true",
        "null",
        "a: b",
        "[x",
        "# no",
        "a=b",
        "'",
        '"',
        "line\nline",
        "\u00e9\u4e2d",
        "1e-3",
    ),
    *([], [1, "1", None], {"layer": "self", "streams": ["text"]}, [{"a": "b: c"}], {}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_an_override_is_read_as_the_value_that_was_given(value: Any) -> None:
    (override,) = assignments({"train.lr": value})
    name, _, text = override.partition("=")
    assert (name, parse_value(text)) == ("train.lr", value)


def test_paths_and_plain_words_are_written_as_they_are() -> None:
    assert assignments({"tokenizer": Path("corpora/t.json"), "task": "text"}) == [
        *("tokenizer=corpora/t.json", "task=text")
    ]
    assert assignments({"corpora": [Path("a"), "${vars.data}/b"]}) == ['corpora=["a", "${vars.data}/b"]']


@pytest.mark.parametrize("text", ["", " ", "[1, 010]", "08", "0_1_0", "-012", "1:30", "{a: , b: 1}", "1:30.5"])
def test_a_value_that_yaml_would_read_as_another_is_refused(text: str) -> None:
    with pytest.raises(WorkbenchError, match=r"empty|no decimal number"):
        parse_value(text)


@pytest.mark.parametrize("text", ["null", "~", "''", '"010"', "0", "0.5", "0x10", "1_000", "s3://a:1/b", "a:1"])
def test_a_value_that_is_written_out_is_read(text: str) -> None:
    parse_value(text)


@pytest.mark.parametrize(("line", "why"), [("lr:", "line 2: the value is empty"), ("seed: 010", "line 2: 010 is no")])
def test_a_file_with_such_a_value_is_refused_by_its_line(line: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(f"a: null\n{line}\n")
    with pytest.raises(WorkbenchError, match=why):
        read_yaml(file)
    assert changed({"lr": 1}, ["lr=null"], "") == {"lr": None}
    with pytest.raises(WorkbenchError, match="override 'lr=': the value is empty"):
        changed({"lr": 1}, ["lr="], "")
