"""A small file of supersenses for the tests' tokenizer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from kg.lexicons.supersense_table import SupersenseTable, save_supersenses
from tests.contracts.material import tokenizer

FOLDER = TemporaryDirectory()  # kept as long as the tests run
CLASSES = ["noun.act", "noun.animal", "verb.body", "verb.change"]


def supersenses() -> SupersenseTable:
    """Of ordinary tokens a third has none, a third one and a third two."""
    allowed = np.zeros((tokenizer().vocab_size, len(CLASSES)), np.bool_)
    for token in tokenizer().ordinary_ids.tolist():
        allowed[token, [[], [token % 4], [token % 4, (token + 1) % 4]][token % 3]] = True
    return SupersenseTable(CLASSES, allowed)


@cache
def sense_file() -> str:
    """Where they lie."""
    path = Path(FOLDER.name) / "senses.json"
    save_supersenses(path, supersenses(), tokenizer().identity, {})
    return str(path)
