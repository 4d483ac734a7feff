"""The image-text format `captions-table`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images, lines
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"},
    text=lines(lambda i: f"{i}.png,A dog .", "image,caption\n"),
    file="captions.txt",
    alongside=images,
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.txt", 'image,caption\na.jpg,"A dog, big ."\nb.jpg,A cat .\na.jpg,One dog .\n'),
        (
            "results.csv",
            "image_name| number| comment\na.jpg| 0| A dog, big .\nb.jpg| 0| A cat .\na.jpg| 1| One dog .\n",
        ),
        ("index.csv", ',image_path,caption\n0,a.jpg,"A dog, big ."\n1,b.jpg,A cat .\n2,a.jpg,One dog .\n'),
        ("clip.csv", "filepath\ttitle\na.jpg\tA dog, big .\nb.jpg\tA cat .\na.jpg\tOne dog .\n"),
    ],
)
def test_the_tables_that_people_publish(tmp_path, tar, photograph, read, name, text):
    (tmp_path / name).write_text(text)
    tar("images.tar", {"a.jpg": photograph(1), "b.jpg": photograph(2)})
    first, second = read("image-text", tmp_path / name)
    assert (first["key"], first["captions"]) == ("a", ["A dog, big .", "One dog ."])
    assert (second["image"], second["captions"]) == (photograph(2), ["A cat ."])


def test_quoted_line_ends_of_a_tsv_are_detected_by_the_option(tmp_path, tar, photograph, read):
    (tmp_path / "s.tsv").write_text('image\tcaption\na.jpg\t"one\ntwo\nthree"\n', encoding="utf-16")
    tar("images.tar", {"a.jpg": photograph(1)})
    with pytest.raises(WorkbenchError, match=r"s\.tsv:3: a line of 1 columns .*--option quoted=true"):
        read("image-text", tmp_path / "s.tsv")
    (sample,) = read("image-text", tmp_path / "s.tsv", quoted=True)
    assert sample["captions"] == ["one\ntwo\nthree"]


def test_columns_are_named_and_others_kept(tmp_path, tar, photograph, read):
    (tmp_path / "sheet.csv").write_text("photo,what,split\na.jpg,A dog,val\n")
    tar("images.tar", {"a.jpg": photograph(1)})
    options = {"format": "captions-table", "image_column": "photo"}
    with pytest.raises(WorkbenchError, match=r"none of the columns what, split is named caption .*--option caption_"):
        read("image-text", tmp_path / "sheet.csv", **options)
    (sample,) = read("image-text", tmp_path / "sheet.csv", caption_column="what", **options)
    assert sample["captions"] == ["A dog"]
    assert sample["meta"]["split"] == "val"


def test_options_that_name_the_columns_say_which_format_it_is(tmp_path, tar, photograph, stored):
    (tmp_path / "sheet.csv").write_text("photo,what\na.jpg,A dog\n")
    tar("images.tar", {"a.jpg": photograph(1)})
    named = ("--option", "image_column=photo", "--option", "caption_column=what")
    prepare("image-text", tmp_path / "sheet.csv", "-o", tmp_path / "pairs", "--workers", 1, *named)
    assert [sample["captions"] for sample in stored(tmp_path / "pairs")] == [["A dog"]]
    for other in ((), ("--option", "no_such_column=photo")):
        with pytest.raises(WorkbenchError, match=r"cannot detect the image-text format of .*sheet\.csv"):
            prepare("image-text", tmp_path / "sheet.csv", "-o", tmp_path / "c", "--workers", 1, *other)
