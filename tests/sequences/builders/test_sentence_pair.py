"""The builder `sentence_pair`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import BuilderCase
from workbench.core.keyed import Draws
from workbench.sequences.builders.sentence_pair import SentencePairBuilder
from workbench.text.tokenizer import Tokenizer

CASE = BuilderCase()


@pytest.mark.parametrize(("split", "kept"), [(True, "c d"), (False, "a b")])
def test_a_long_pair_is_cut_away_from_the_sep_in_pretraining_and_at_its_ends_in_fine_tuning(
    tokenizer: Tokenizer, split: bool, kept: str
) -> None:
    sample = {"key": "k", "draw": (3,), "text": "a b c d", "second": "e f"}
    builder = SentencePairBuilder(tokenizer, 7, chars_per_token=4, split=split)
    (sequence,) = builder([sample], Draws(0, "t", "builder", number=(0,)))
    assert tokenizer.decode(sequence.fields("text")["input_ids"].tolist()).replace("#", "") == f"{kept} e f"
