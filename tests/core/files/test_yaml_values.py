"""Values of Python as overrides: what is written is read as the same value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.core.files.yaml_values import assignments, parse_value

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
