"""The text format `parallel`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import detect, make_reader
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus


def german(records: int) -> dict[str, bytes]:
    return {"data.de": "".join(f"Satz Nummer {i}\n" for i in range(records)).encode()}


CASE = ReaderCase(text=lines(lambda i: f"sentence number {i}"), file="data.en", alongside=german, folder=True)


def written(folder: Path, **texts: str) -> list[Path]:
    """Files called after their languages, in this order."""
    for language, text in texts.items():
        (folder / f"train.{language}").write_text(text, "utf-8")
    return [folder / f"train.{language}" for language in texts]


def samples(paths: list[Path], **options: Any) -> list[dict[str, Any]]:
    return list(make_reader("text", "parallel", paths, options).samples(paths))


def test_lines_of_files_that_are_called_alike_are_translations(tmp_path: Path) -> None:
    paths = written(tmp_path, en="a dog\n\ntwo\n", de="ein Hund\n\nzwei\n", cs="pes\n\ndva\n")
    assert detect("text", paths) == "parallel"
    assert detect("text", paths[:1]) == "plain-text"
    found = samples(paths)
    assert [s["translations"] for s in found] == [
        {"en": "a dog", "de": "ein Hund", "cs": "pes"},
        {"en": "two", "de": "zwei", "cs": "dva"},
    ]
    assert [s["key"] for s in found] == ["train-1", "train-3"]


def test_unequal_numbers_of_lines_are_refused_with_them(tmp_path: Path) -> None:
    paths = written(tmp_path, en="a\nb\nc\nd\n", de="a\nb\n", fr="a\nb\nc\n")
    with pytest.raises(WorkbenchError, match=r"train\.en has 4, .*train\.de has 2, .*train\.fr has 3"):
        samples(paths)


def test_lines_that_are_empty_are_left_out_and_counted_by_language(tmp_path: Path) -> None:
    texts = {"en": "a\nb\nc\n\n", "de": "a\n \nc\n\n", "fr": "a\n\n\n\n"}
    paths = written(tmp_path, **texts)
    assert [s["translations"]["en"] for s in samples(paths)] == ["a"]
    prepare("text", *paths, "-o", tmp_path / "corpus", "--workers", 1)
    assert Corpus.open(tmp_path / "corpus").manifest.dropped == {
        "Parallel: empty in de and fr": 1,
        "Parallel: empty in every language": 1,
        "Parallel: empty in fr": 1,
    }


@pytest.mark.parametrize(
    ("languages", "reported"), [(["en"], "have the languages en; one for each"), (["en", "en"], "all different")]
)
def test_languages_are_one_for_each_file(tmp_path: Path, languages: list[str], reported: str) -> None:
    paths = written(tmp_path, en="a\n", de="a\n")
    with pytest.raises(WorkbenchError, match=reported):
        samples(paths, languages=languages)
    assert samples(paths, languages=["english", "german"])[0]["translations"] == {"english": "a", "german": "a"}


def test_a_single_file_is_no_parallel_text(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"found train\.en alone"):
        samples(written(tmp_path, en="a\n"))
