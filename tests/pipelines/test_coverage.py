"""What `prepare link` reports of a corpus: mentions without a link."""

from __future__ import annotations

from typing import Any

import pytest

from kg.sequences.linked_mentions import RIGHT
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
    coverage.add(
        [("abcdefghijk", [[1, 4, "e"], [1, 4, "f"], [6, 9, "g"]], [[*found, "e", 0.1]], ())], "eg".__contains__
    )
    assert (coverage.linked, coverage.nil) == (2, nil)


def test_links_of_a_long_text_are_not_gone_through_for_each_name() -> None:
    spans = Read([2 * i, 2 * i + 1, "e", 1.0] for i in range(50))
    coverage = Coverage()
    coverage.add([("ab" * 100, spans, [[i, i + 1, "e", 1.0] for i in range(200)], ())], "e".__contains__)
    assert coverage.nil == 150
    assert spans.times < 10


def test_links_to_other_graphs_are_distinguished_from_those_that_the_linker_knows() -> None:
    coverage = Coverage()
    coverage.add([("abcdefgh", [[0, 2, "other"], [3, 5, "other"], [3, 5, "e"], [6, 8, "e"]], [], ())], "e".__contains__)
    rows = dict(coverage.rows())
    assert rows["linked"] == "3 (100.0 %)"
    assert rows["linked to an entity that the linker knows"] == "2 (66.7 %)"
    assert rows["mentions per 1,000 characters"] == "375.0"
    assert "given mentions found again" not in rows


def test_of_given_mentions_it_is_reported_how_many_have_the_right_candidate() -> None:
    spans = [[0, 2, "e", 0.5, {RIGHT: 1}], [0, 2, "f", 0.5, {RIGHT: 0}], [3, 5, "f", 1.0, {RIGHT: 0}], [6, 8, "e", 1.0]]
    coverage = Coverage()
    coverage.add([("abcdefgh", spans, [], ())], "ef".__contains__)
    rows = dict(coverage.rows())
    assert rows["given mentions found again"] == "2"
    assert rows["with the right entity among the candidates"] == "1 (50.0 %)"
