"""Word recovery: a pair becomes two streams, and no prediction knows its own word but by attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.objectives.conftest import DRAWS, built
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives.word_recovery import WordRecovery
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it makes a stream that the network of the contracts does not have"
RECORDS = [
    {"key": str(i), "draw": (0, i), "translations": {"en": english, "de": german}}
    for i, (english, german) in enumerate([("the old river", "people live there"), ("a small town", "it is long")])
]


def network(tokenizer: Tokenizer, *first: dict[str, Any]) -> Network:
    torch.manual_seed(0)
    token = {"embedding": "token", "hidden_size": 16, "max_positions": 64, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    spec = NetworkSpec({"text": token, "translation": token}, [*first, layer])
    return Network(spec, vocab_size=tokenizer.vocab_size)


def test_the_first_sentence_is_recovered_from_the_second(tokenizer: Tokenizer) -> None:
    before = built(tokenizer, RECORDS, builder="translation_pair")
    after = [sequence.copy() for sequence in before]
    objective = WordRecovery()
    objective.name = "it"
    objective.corrupt(after, DRAWS)
    for old, new in zip(before, after, strict=True):
        ids, first = old.streams["text"]["input_ids"], old.streams["text"]["token_type_ids"] == 0
        np.testing.assert_array_equal(new.streams["text"]["input_ids"], ids[first])
        np.testing.assert_array_equal(new.streams["translation"]["input_ids"], ids[~first])
        free = first & ~old.streams["text"]["special"]
        np.testing.assert_array_equal(new.targets["it"]["labels"], ids[free])
    layer = {"layer": "translated_words", "stream": "text", "to": "translation"}
    read, batch = network(tokenizer, layer), collate(after)
    output = objective.head(read)(HeadInputs.of(read, batch, batch.targets["it"]))
    output.loss.backward()
    assert objective.count(batch) == len(batch.targets["it"]["labels"]) > 4
    assert all(p.grad is not None for p in read.layers.parameters())


def test_a_network_that_reads_the_words_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="layer: translated_words, stream: text, to: translation"):
        WordRecovery().head(network(tokenizer))
