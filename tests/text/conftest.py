"""Tokenizers of every kind, trained on a few sentences."""

from __future__ import annotations

import pytest

from workbench.text.tokenizer import Tokenizer, train_tokenizer

SENTENCES = [
    "The river Elbe flows through Hamburg and Dresden, past old harbours.",
    "Marie Curie was born in Warsaw; she worked in Paris for many years.",
    "Café owners in Genève were naïve about the weather, weren't they?",
    "In 1962 Bob Dylan wrote Blowin' in the Wind, a song of nine questions.",
    "東京 is the capital of 日本 and Москва is the capital of Россия.",
    "Harbours, rivers, songs, questions: everything flows.",
]
KINDS = ["wordpiece", "bpe", "unigram", "word"]


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    return SENTENCES


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Tokenizer]:
    sizes = {"wordpiece": 260, "bpe": 420, "unigram": 160, "word": 100}
    return {kind: Tokenizer(train_tokenizer(SENTENCES * 3, kind, sizes[kind])) for kind in KINDS}


@pytest.fixture(scope="session")
def tokenizer(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["wordpiece"]
