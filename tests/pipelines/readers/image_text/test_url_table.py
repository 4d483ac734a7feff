"""The image-text format `url-table`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images, lines
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(
    excused={"streams": "the list of the images that are here is held"},
    text=lines(lambda i: f'https://example.org/{i}.png,"a dog, a cat"', "url,caption\n"),
    file="list.csv",
    alongside=images,
)


def test_columns_are_found_or_named(tmp_path, read):
    (tmp_path / "list.tsv").write_text("alt\timg_url\tscore\nA dog\thttp://x.org/a.jpg\t0.3\nA cat\t\t0.2\n")
    (sample,) = read("image-text", tmp_path / "list.tsv", fetch=True)
    assert sample["captions"] == ["A dog"]
    assert sample["meta"] == {"url": "http://x.org/a.jpg", "score": "0.3", "source": "list.tsv"}
    with pytest.raises(WorkbenchError, match=r"none of the columns alt, img_url, score is named link"):
        read("image-text", tmp_path / "list.tsv", fetch=True, url_column="link")
