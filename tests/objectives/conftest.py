"""A tokenizer, samples and a tiny network for objectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.contracts import material
from workbench.components.building import build
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

DRAWS = Draws(0, "task", "it", number=(0,))


def built(tokenizer: Tokenizer, samples: list[dict[str, Any]], **options: Any) -> list[Sequence]:
    """What the builder `document` makes of the samples."""
    spec = {"builder": "document", **options}
    found: list[Sequence] = build("builder", spec, "", tokenizer=tokenizer, max_length=64)(samples, DRAWS)
    return found


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return material.tokenizer()


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[dict[str, Any]]]:
    """(count, words, seed) -> text samples with mentions of every city and one stretch to mask."""
    return material.text_samples


@pytest.fixture(scope="session")
def make_network(tokenizer: Tokenizer) -> Callable[..., Network]:
    """A network of one layer without dropout; options go to its text embedding."""

    def make(**options: Any) -> Network:
        torch.manual_seed(0)
        embedding = {"embedding": "token", "hidden_size": 16, "max_positions": 600, "dropout": 0.0, **options}
        layer = {
            "layer": "self",
            "stream": "text",
            "num_heads": 2,
            "intermediate_size": 32,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        }
        spec = NetworkSpec(streams={"text": embedding}, layers=[layer], poolers=["text"], init_range=0.2)
        return Network(spec, vocab_size=tokenizer.vocab_size)

    return make
