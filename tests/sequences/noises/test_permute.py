"""The noise `permute`: what a sentence is, and that every order is as likely."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer

from tests.contracts.cases import NoiseCase
from workbench.core.keyed import Draws, generator
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.noises import PermuteNoise
from workbench.text.tokenizer import Tokenizer

CASE = NoiseCase({"rate": 1.0})
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", ".", "!", "?", "3", "5", "。", "x"]


def permuted(text: str, rate: float, seed: int) -> str:
    backend = tokenizers.Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = BertPreTokenizer()
    words = Tokenizer(backend)
    (sequence,) = DocumentBuilder(words, 32)([{"key": "k", "draw": (0,), "text": text}], Draws(0, number=()))
    PermuteNoise(words, rate)(sequence, "text", generator(seed))
    return " ".join(words.tokens(sequence.streams["text"]["input_ids"][1:-1]))


def test_sentences_end_at_marks_before_white_space() -> None:
    found = {permuted("a b. c 3.5 d! x", 1.0, seed) for seed in range(60)}
    sentences = ["a b .", "c 3 . 5 d !", "x"]
    assert found == {" ".join(order) for order in permutations(sentences)}
    assert {permuted("a。b。", 1.0, seed) for seed in range(20)} == {"a 。 b 。", "b 。 a 。"}
    assert permuted("a b c", 1.0, 0) == "a b c"


def test_every_order_is_as_likely() -> None:
    found = Counter(permuted("a. b. c.", 1.0, seed) for seed in range(600))
    assert len(found) == 6
    assert all(abs(count - 100) < 4 * np.sqrt(600 * 5 / 36) for count in found.values())


def test_its_share_of_the_sentences_changes_places() -> None:
    for seed in range(40):
        made = permuted("a. b. c. d.", 0.5, seed).split(" . ")
        moved = sum(ours.strip(" .") != theirs for ours, theirs in zip(made, "abcd", strict=True))
        assert moved in (0, 2)
