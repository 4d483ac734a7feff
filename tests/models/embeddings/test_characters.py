"""The embedding `characters`, compared with the equations, word by word."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.characters import CharactersEmbedding

CASE = EmbeddingCase(
    {"hidden_size": 8, "filters": [4, 3, 2], "longest": 9},
    {"masked": "hidden tokens have an id of their own"},
    content="input_ids",
)


def test_a_vector_is_that_of_the_equations() -> None:
    torch.manual_seed(0)
    made = CharactersEmbedding(6, tokenizer(), character_size=5, filters=[4, 3, 2], longest=9, copies=2)
    made.initialise(0.3)
    table = made.character.weight
    for token, number in list(tokenizer().vocabulary.items())[::7]:
        special = tokenizer().special_ids.tolist()
        inside = [259 + special.index(number)] if number in special else [b + 1 for b in token.encode()[:7]]
        letters = table[[257, *inside, 258, *[0] * (7 - len(inside))]]
        x = []
        for width, convolution in enumerate(made.convolutions, 1):
            windows = [letters[at : at + width].T.flatten() for at in range(9 - width + 1)]
            scores = torch.stack([convolution.weight.flatten(1) @ window + convolution.bias for window in windows])
            x.append(scores.max(0).values.clamp_min(0))
        states = torch.cat(x)
        for highway in made.highways:
            w, v = highway.weight.chunk(2)
            b, c = highway.bias.chunk(2)
            gate = torch.sigmoid(v @ states + c)
            states = gate * (w @ states + b).clamp_min(0) + (1 - gate) * states
        wanted = made.project(states).repeat(2)
        found = made({"input_ids": torch.tensor([number])})[0]
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def test_words_of_one_spelling_differ_from_special_tokens_and_others() -> None:
    rows = CharactersEmbedding(6, tokenizer(), filters=[4, 3], longest=30).spellings.tolist()
    assert len({tuple(row) for row in rows}) == len(tokenizer().vocabulary)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"allowed: longest of at least 3 and of the widest filter \(4\)"):
        CharactersEmbedding(6, tokenizer(), filters=[1, 1, 1, 1], longest=3)
    with pytest.raises(WorkbenchError, match="multiple of copies = 4"):
        CharactersEmbedding(6, tokenizer(), copies=4)
