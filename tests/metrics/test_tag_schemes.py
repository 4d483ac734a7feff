"""Schemes of tags, found by the set as a whole."""

from __future__ import annotations

import pytest

from workbench.core.errors import WorkbenchError
from workbench.metrics.chunks import chunks, spelt
from workbench.metrics.tag_schemes import in_iobes, scheme_of


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O B-x I-x B-y", "BIO"),
        ("O I-x", "BIO"),
        ("O B-x E-x S-x", "IOBES"),
        ("I-x E-x", "IOBES"),
        ("B-x I-x L-x U-y", "BILOU"),
        ("B-x M-x E-x S-x", "BMES"),
        ("B_x I_x O", "BIO"),
        ("o b-x i-x", "BIO"),
        ("O B I", "BIO"),
        ("O I", "BIO"),
        ("B M E S", "BMES"),
        ("person place O", "spans"),
        ("NN VB B I", "spans"),
        ("N V I", "spans"),
        ("B O", "spans"),
        ("person e-mail u-turn", "spans"),
        ("n-s---mn- i-------- u-------- m--------", "spans"),
        ("U-turn person", "spans"),
        ("", "spans"),
    ],
)
def test_the_scheme_of_a_set(tags: str, scheme: str) -> None:
    assert scheme_of(tags.split(), "corpus") == scheme


@pytest.mark.parametrize(
    ("tags", "odd"),
    [
        ("B-x I-x X [PAD]", r"B-x, I-x would be BIO; X, \[PAD\] would not"),
        ("B-x I-x NN", "NN would not"),
        ("B-x I-x L-x E-x", "L-x would not"),
        ("B-x I-x B_y", "B_y would not"),
        ("B-cell protein", r"B-cell would be BIO; protein would not.*--scheme spans"),
        ("x-B x-I O", r"behind the name in x-B. Write it in front: B-x"),
    ],
)
def test_a_set_of_no_scheme_is_refused_with_its_odd_tags(tags: str, odd: str) -> None:
    with pytest.raises(WorkbenchError, match=odd):
        scheme_of(tags.split(), "corpus")


def test_tags_are_spelt_as_in_iobes() -> None:
    assert [in_iobes(tag, "BILOU") for tag in ("u_x", "L-x", "I", "o", "E-x", "person")] == [
        *("S-x", "E-x", "I-chunk", "O", None, None)
    ]
    assert [in_iobes(tag, "spans") for tag in ("B-x", "o", "O")] == [None, None, "O"]


@pytest.mark.parametrize("tags", ["O I-x I-x B-x O", "B-x E-x S-x I-y", "O", "B-x B-x"])
def test_a_scheme_that_marks_ends_or_not_spells_the_same_chunks(tags: str) -> None:
    for ends in (True, False):
        assert chunks(spelt(tags.split(), ends)) == chunks(tags.split())
