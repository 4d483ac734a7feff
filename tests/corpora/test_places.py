"""Stretches in texts that are changed."""

from __future__ import annotations

import numpy as np

from workbench.corpora.schema.places import splice


def test_what_is_marked_follows_what_is_put_in() -> None:
    sample = {
        "text": "the river flows past Oslo",
        "spans": [[4, 9, "R1", 0.5], [4, 15, "R2", 0.5], [21, 25, "T0", 1.0]],
        "mention": [6, 9],
        "tags": [[10, 15, "verb"]],
        "second": "the river",
        "second_spans": [[4, 9, "R1", 1.0]],
    }
    new = splice(sample, "text", [(4, 9, "Rio Negro"), (16, 20, "to")])
    assert new == {
        "text": "the Rio Negro flows to Oslo",
        "spans": [[4, 13, "R1", 0.5], [23, 27, "T0", 1.0]],
        "tags": [[14, 19, "verb"]],
        "second": "the river",
        "second_spans": [[4, 9, "R1", 1.0]],
    }
    assert sample["mention"] == [6, 9]
    assert splice(sample, "text", []) == sample


def test_places_are_those_of_characters_that_are_followed_one_by_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        text = "".join(chr(97 + i) for i in range(26))
        cuts = np.sort(rng.choice(27, 6, replace=False)).tolist()
        edits = [(cuts[i], cuts[i + 1], "X" * int(rng.integers(1, 5))) for i in (0, 2, 4)]
        first, last = np.sort(rng.choice(27, 2, replace=False)).tolist()
        new = splice({"text": text, "tags": [[first, last, "t"]]}, "text", edits)
        touched = [edit for edit in edits if edit[0] < last and first < edit[1]]
        if touched:
            exact = (first, last) == touched[0][:2]
            assert [new["text"][a:b] for a, b, _ in new["tags"]] == ([touched[0][2]] if exact else [])
        else:
            ((a, b, _),) = new["tags"]
            assert new["text"][a:b] == text[first:last]
