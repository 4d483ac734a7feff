"""The image-text format `conceptual-captions`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images, lines
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(
    excused={"streams": "the list of the images that are here is held"},
    text=lines(lambda i: f"a dog\thttps://example.org/photos/{i}.png?size=1"),
    file="Train_GCC-training.tsv",
    alongside=images,
)


def test_both_orders_of_the_columns(tmp_path, tar, photograph, read):
    tar("images.tar", {"a b.jpg": photograph(1)})
    texts = {"cc3m.tsv": "A dog .\thttp://x.org/a%20b.jpg\n", "cc12m.tsv": "http://x.org/a%20b.jpg\tA dog .\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (sample,) = read("image-text", tmp_path / name)
        assert (sample["captions"], sample["image"]) == (["A dog ."], photograph(1))
        assert sample["meta"]["url"] == "http://x.org/a%20b.jpg"


def test_images_that_are_not_here(tmp_path, read):
    (tmp_path / "list.tsv").write_text("A dog .\thttp://x.org/a.jpg\n")
    with pytest.raises(WorkbenchError, match=r"none of the images is in .*x\.org/a\.jpg.*--fetch.*--images"):
        read("image-text", tmp_path / "list.tsv")
    (sample,) = read("image-text", tmp_path / "list.tsv", fetch=True)
    assert "image" not in sample
    (tmp_path / "list.tsv").write_text("A dog .\thttp://x.org/a.jpg\nno address here\n")
    with pytest.raises(WorkbenchError, match=r"list\.tsv:2: not of the form caption<tab>url"):
        read("image-text", tmp_path / "list.tsv", fetch=True)
