"""Tiny networks, prompts of several lengths, and a decoder that keeps nothing: it reads everything again each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.components.building import build
from workbench.core.keyed import Draws
from workbench.generation.decoder import Decoder
from workbench.models.network import Network
from workbench.pretraining.objective import Continuation, Head
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Fields
from workbench.sequences.sequence import Sequence as TokenSequence
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TEXTS = ["the old river flows past", "people", "boats look for songs about questions nobody answered", "winter came"]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer([*TEXTS, "near water and bridges"], "wordpiece", 100))


class Uncached:
    """As `Decoder`: every sequence is read as a whole, alone, at every step."""

    def __init__(self, network: Network, head: Any, continuation: Continuation, prompts: list[TokenSequence]) -> None:
        self.network, self.head, self.continuation = network, head, continuation
        self.sequences = prompts

    def begin(self) -> Tensor:
        stream = self.continuation.stream
        ends = []
        for sequence in self.sequences:
            asking = self.continuation.asking_rows(_last(sequence.streams[stream]))
            states = self.network(collate([sequence if asking is None else _grown(sequence, stream, asking)]))[stream]
            ends.append(self.head.logits(self.network, states[-1:]))
        return torch.cat(ends).float()

    def step(self, tokens: Sequence[int], origins: Sequence[int]) -> Tensor:
        grown = []
        for token, origin in zip(tokens, origins, strict=True):
            sequence, stream = self.sequences[origin], self.continuation.stream
            row = self.continuation.next_rows(_last(sequence.streams[stream]), torch.tensor([token]))
            grown.append(_grown(sequence, stream, row))
        self.sequences = grown
        return self.begin()


def _last(fields: Fields) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values[-1:]) for name, values in fields.items()}


def _grown(sequence: TokenSequence, stream: str, row: dict[str, Tensor]) -> TokenSequence:
    longer = sequence.copy()
    fields = longer.streams[stream]
    longer.streams[stream] = {name: np.concatenate([fields[name], row[name].numpy()]) for name in fields}
    return longer


def make_network(vocab_size: int, embedding: str = "token", **layer: Any) -> Network:
    torch.manual_seed(0)
    text = {"embedding": embedding, "hidden_size": 32, "max_positions": 64, "dropout": 0.0, "token_types": 6}
    block = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "repeat": 2}
    return Network(NetworkSpec({"text": text}, [{**block, **layer}], init_range=0.2), vocab_size=vocab_size).eval()


Setting = tuple[Network, Head, Continuation, list[TokenSequence]]


@pytest.fixture
def setting(tokenizer: Tokenizer) -> Callable[..., Setting]:
    """(builder, options of the layers) -> a network, its head, its continuation, prompts, each with a `blank` at its
    end; `objective` trains it."""

    def make(builder: dict[str, Any], objective: str = "clm", blank: str = "", **layer: Any) -> Setting:
        made = build("builder", builder, "", tokenizer=tokenizer, max_length=32).evaluating()
        network = make_network(tokenizer.vocab_size, **layer)
        placed = build("objective", objective, "", tokenizer=tokenizer)
        continuation = placed.continuation(made)
        samples = [{"key": str(i), "draw": (i,), "text": text + blank} for i, text in enumerate(TEXTS)]
        prompts = made([continuation.arrange(sample) for sample in samples], Draws(0, number=()))
        for prompt in prompts:
            continuation.prompt(prompt)
        return network, placed.head(network).eval(), continuation, prompts

    return make


@pytest.fixture
def decoders(setting: Callable[..., Setting]) -> Callable[..., tuple[Decoder, Any]]:
    """(builder, options of the layers, `objective`) -> one that keeps a KV cache, and one that doesn't."""

    def make(builder: dict[str, Any], **options: Any) -> tuple[Decoder, Any]:
        network, head, continuation, prompts = setting(builder, **options)
        return Decoder(network, head, continuation, collate(prompts)), Uncached(network, head, continuation, prompts)

    return make
