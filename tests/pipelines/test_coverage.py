"""What `prepare link` tells of a corpus: mentions that got no link."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.preparing.coverage import Coverage


class Read(list[Any]):
    """A list that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return super().__iter__()


@pytest.mark.parametrize(
    ("found", "nil"),
    [([0, 4], 0), ([3, 6], 0), ([4, 6], 1), ([5, 9], 0), ([7, 9], 0), ([9, 11], 1), ([0, 11], 0)],
)
def test_a_name_is_nil_where_no_link_touches_it(found: list[int], nil: int) -> None:
    coverage = Coverage()
    coverage.add([("abcdefghijk", [[1, 4, "e"], [1, 4, "f"], [6, 9, "g"]], [[*found, "e", 0.1]], ())])
    assert (coverage.linked, coverage.nil) == (2, nil)


def test_links_of_a_long_text_are_not_gone_through_for_each_name() -> None:
    spans = Read([2 * i, 2 * i + 1, "e", 1.0] for i in range(50))
    coverage = Coverage()
    coverage.add([("ab" * 100, spans, [[i, i + 1, "e", 1.0] for i in range(200)], ())])
    assert coverage.nil == 150
    assert spans.times < 10
