"""Which words get which tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.cases import ObjectiveCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives.token_classification import TokenClassification
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.builders.tagged_text import TaggedTextBuilder
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

CASE = ObjectiveCase(
    {"tags": ["O", "B-city", "I-city"], "dropout": 0.0},
    {"seed": "nothing is drawn"},
    sequence={"builder": "tagged_text"},
    small=1,
    recover=lambda before, after, shared: check_unchanged(before, after),
)
DRAWS = Draws(0, "t", "tag", number=(0,))


def check_unchanged(before: Sequence, after: Sequence) -> None:
    """Tags are read next to the text, which stays."""
    np.testing.assert_array_equal(before.streams["text"]["input_ids"], after.streams["text"]["input_ids"])


def tag(*names: str) -> TokenClassification:
    objective = TokenClassification(["O", *names])
    objective.name = "tag"
    return objective


def sequences(tokenizer: Tokenizer, text: str, tags: list[Any] | None, size: int = 40) -> list[Sequence]:
    sample = {"key": "a", "draw": (0,), "text": text, **({} if tags is None else {"tags": tags})}
    return TaggedTextBuilder(tokenizer, size)([sample], DRAWS)


def tagged(objective: TokenClassification, made: list[Sequence], text: str) -> list[tuple[str, str]]:
    """The words that are read, with their tags."""
    names = list(objective.tags)
    objective.corrupt(made, DRAWS)
    found = []
    for sequence in made:
        targets = sequence.targets["tag"]
        for (start, end), label in zip(targets["places"].tolist(), targets["gold"].tolist(), strict=True):
            found.append((text[start:end], names[label]))
        assert sequence.streams["text"]["taken"][targets["rows"].index].all()
        assert targets["words"][0] == len(targets["read"])
        assert targets["labels"].tolist() == targets["gold"][targets["read"]].tolist()
    return found


def test_a_stretch_begins_once_and_a_word_is_read_once(tokenizer: Tokenizer) -> None:
    text = "the harbours near Hamburg flow"
    made = sequences(tokenizer, text, [[4, 12, "thing"], [13, 25, "place"]])
    found = tagged(tag("B-place", "I-place", "B-thing", "I-thing"), made, text)
    assert [name for _, name in found] == ["O", "B-thing", "B-place", "I-place", "O"]
    assert [word for word, _ in found] == text.split()


def test_tags_of_words_stay_as_they_are(tokenizer: Tokenizer) -> None:
    """A word between spaces that the tokenizer takes for several has one tag, read at its first piece."""
    text = "small boats. old songs."
    words = [[0, 5, "O"], [6, 12, "B-x"], [13, 16, "I-x"], [17, 23, "O"]]
    found = tagged(tag("B-x", "I-x"), sequences(tokenizer, text, words), text)
    assert [name for _, name in found] == ["O", "B-x", "I-x", "O"]


@pytest.mark.parametrize("second", [[4, 13, "y"], [0, 7, "y"], [4, 7, "x"]])
def test_stretches_that_overlap_are_refused(tokenizer: Tokenizer, second: list[Any]) -> None:
    text = "the old river flows"
    made = sequences(tokenizer, text, [[0, 7, "x"], second])
    with pytest.raises(WorkbenchError, match=r"sequence 'a': the tags \[0, 7, 'x'\] and .* overlap"):
        tagged(tag("B-x", "I-x", "B-y", "I-y"), made, text)


def test_stretches_side_by_side_are_two(tokenizer: Tokenizer) -> None:
    text = "the old river flows"
    made = sequences(tokenizer, text, [[0, 7, "x"], [8, 13, "x"]])
    assert [name for _, name in tagged(tag("B-x", "I-x"), made, text)] == ["B-x", "I-x", "B-x", "O"]


def test_each_word_of_a_long_text_is_read_once_where_its_context_is_fullest(tokenizer: Tokenizer) -> None:
    text = " ".join(["river", "winter"] * 30)
    tags = [[i, i + 5, "x"] for i in range(0, len(text), 13)]
    made = sequences(tokenizer, text, tags, size=11)
    assert len(made) > 3
    assert [name for _, name in tagged(tag("B-x", "I-x"), made, text)] == ["B-x", "O"] * 30
    for sequence in made[1:-1]:
        rows = sequence.targets["tag"]["rows"].index
        assert rows.min() > 2
        assert rows.max() < sequence.length("text") - 2


def test_a_stretch_that_windows_cut_is_one(tokenizer: Tokenizer) -> None:
    text = " ".join(["river"] * 40)
    names = [name for _, name in tagged(tag("B-x", "I-x"), sequences(tokenizer, text, [[0, len(text), "x"]], 9), text)]
    assert names == ["B-x"] + ["I-x"] * 39


def test_words_without_a_token_are_words(tokenizer: Tokenizer) -> None:
    """The tokenizer makes nothing of control characters, and one word of what has two tags."""
    text = "\u200b old \u200b\u200d river\u200b"
    tags = [[0, 1, "B-x"], [2, 5, "I-x"], [6, 8, "O"], [9, 11, "B-x"], [11, 14, "I-x"]]
    made = sequences(tokenizer, text, tags)
    found = tagged(tag("B-x", "I-x"), made, text)
    assert [name for _, name in found] == ["B-x", "I-x", "O", "B-x", "I-x"]
    assert made[0].targets["tag"]["read"].tolist() == [False, True, False, True, False]
    alone = sequences(tokenizer, "\u200b", [[0, 1, "x"]])
    assert [name for _, name in tagged(tag("B-x", "I-x"), alone, "\u200b")] == ["B-x"]


def test_without_tags_nothing_is_counted(tokenizer: Tokenizer) -> None:
    objective = tag("B-x", "I-x")
    assert tagged(objective, sequences(tokenizer, "the old river", None), "") == []
    assert len(tagged(objective, sequences(tokenizer, "the old river", []), "the old river")) == 3


def test_a_branch_and_what_is_labelled_have_no_tag(tokenizer: Tokenizer) -> None:
    (sequence,) = sequences(tokenizer, "the old river", [[4, 7, "x"]])
    sequence.streams["text"]["taken"][np.flatnonzero(sequence.streams["text"]["char_start"] == 4)] = True
    assert [name for _, name in tagged(tag("B-x", "I-x"), [sequence], "the old river")] == ["O", "O"]


def test_another_builder_is_refused(tokenizer: Tokenizer) -> None:
    made = DocumentBuilder(tokenizer, 40, chars_per_token=4)([{"key": "a", "draw": (0,), "text": "the river"}], DRAWS)
    made[0].meta["tags"] = []
    with pytest.raises(WorkbenchError, match="use the builder `tagged_text`"):
        tag("B-x", "I-x").corrupt(made, DRAWS)


def test_wrong_tags(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="O among them"):
        TokenClassification(["B-x", "I-x"])
    with pytest.raises(WorkbenchError, match="unknown tag 'B-y'"):
        tag("B-x", "I-x").corrupt(sequences(tokenizer, "the old river", [[0, 3, "y"]]), DRAWS)
