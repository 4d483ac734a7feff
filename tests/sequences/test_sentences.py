"""Where sentences end, by tokens."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.keyed import Draws
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.segments import SentenceEnds
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TEXTS = [
    ("It is 3.5 m. No! Why? Because", ["It is 3.5 m.", "No!", "Why?", "Because"]),
    ("One. Two.", ["One.", "Two."]),
    ("none", ["none"]),
    ("", []),
    ("\u5c71\u3002\u6cb3\u3002", ["\u5c71\u3002", "\u6cb3\u3002"]),
]


@pytest.mark.parametrize(("text", "sentences"), TEXTS)
@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_sentences_of_a_text(kind: str, text: str, sentences: list[str]) -> None:
    tokenizer = Tokenizer(train_tokenizer([text for text, _ in TEXTS] * 3, kind, 300))
    [sequence] = DocumentBuilder(tokenizer, 64)([{"key": "k", "draw": (0,), "text": text}], Draws(0, number=()))
    fields = sequence.streams["text"]
    parts = SentenceEnds(tokenizer).split(fields, np.flatnonzero(~fields["special"]))
    assert [text[fields["char_start"][p[0]] : fields["char_end"][p[-1]]] for p in parts] == sentences
