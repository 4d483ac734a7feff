"""The builder `packed`; see also `tests/sequences/test_builders.py`."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import BuilderCase
from workbench.core.keyed import Draws
from workbench.sequences.builders.packed import PackedBuilder
from workbench.text.tokenizer import Tokenizer

SHARED = {"company": "documents share a sequence"}
CASES = {
    "": BuilderCase(excused=SHARED),
    "full sentences": BuilderCase({"across": True}, SHARED),
    "full": BuilderCase({"full": True, "visibility": "causal"}, SHARED),
    "across": BuilderCase({"full": True, "across": True, "begin": None, "visibility": "causal"}, SHARED),
}
DRAWS = Draws(0, "t", "builder", number=(0,))


def test_full_sentences_follow_each_other_with_a_separator_between(tokenizer: Tokenizer, sentences: list[str]) -> None:
    """RoBERTa's format by hand: [CLS] a [SEP] b [SEP], every token of which sees every other one."""
    samples = [
        {"key": str(i), "draw": (0, i), "text": text, "spans": [[0, 3, f"Q{i}", 1.0]]}
        for i, text in enumerate(sentences[:6])
    ]
    made, found = PackedBuilder(tokenizer, 60, across=True)(samples, DRAWS), []
    for sequence in made:
        text, documents = sequence.streams["text"], [int(document["key"]) for document in sequence.meta["documents"]]
        expected, words = [tokenizer.id("cls")], 0
        for number, document in zip(documents, sequence.meta["documents"], strict=True):
            encoded = tokenizer.encode(samples[number]["text"])
            assert document["row"] == (len(expected) if len(expected) > 1 else 0)
            expected += [*encoded.ids.tolist(), tokenizer.id("sep")]
            words += len(np.unique(encoded.pretokens))
        assert text["input_ids"].tolist() == expected
        assert len(expected) <= 60
        assert text["position_ids"].tolist() == list(range(len(expected)))
        assert not {"doc", "rank"} & text.keys()
        assert len(np.unique(text["word_ids"][~text["special"]])) == words
        assert [span.entity for span in sequence.spans] == [f"Q{number}" for number in documents]
        assert all(text["char_start"][span.start] == 0 for span in sequence.spans)
        found += documents
    assert sorted(found) == list(range(6))
    assert len(made) < 6
