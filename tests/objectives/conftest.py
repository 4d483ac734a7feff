"""A tokenizer, samples and a tiny network for objectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.text.tokenizer import Tokenizer, train_tokenizer

VOCABULARY = """the old river flows past harbours and bridges while people in small boats look for songs about questions
nobody answered before winter came to Hamburg Dresden Warsaw Paris and every other city near water"""
WORDS = VOCABULARY.split()


def make_text(rng: np.random.Generator, words: int) -> str:
    """Sentences of ordinary words."""
    listed = [WORDS[i] for i in rng.integers(len(WORDS), size=words)]
    return " ".join(w + ("." if i % 9 == 8 else "") for i, w in enumerate(listed))


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    rng = np.random.default_rng(0)
    return Tokenizer(train_tokenizer([make_text(rng, 40) for _ in range(30)], "wordpiece", 120))


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[dict[str, Any]]]:
    """(count, words, seed) -> text samples with mentions of every city and one stretch to mask."""

    def make(count: int, words: int = 60, seed: int = 1) -> list[dict[str, Any]]:
        rng = np.random.default_rng(seed)
        samples = []
        for i in range(count):
            text = make_text(rng, words)
            spans = []
            for city in ("Hamburg", "Dresden", "Warsaw", "Paris"):
                start = text.find(city)
                if start >= 0:
                    spans.append([start, start + len(city), f"Q-{city}", 1.0])
            masks = [[0, len(text.split()[0])]] if text else []
            samples.append(
                {
                    "key": f"r{i}",
                    "corpus": "c",
                    "draw": (0, i),
                    "text": text,
                    "spans": sorted(spans),
                    "mask_spans": masks,
                }
            )
        return samples

    return make


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
