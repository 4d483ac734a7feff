"""Texts whose words have a polarity, as sequences."""

from __future__ import annotations

from typing import Any

import torch

from kg.sequences.transforms.sentiment import SentimentTransform
from tests.contracts.material import draws, text_samples, tokenizer
from workbench.components.building import build
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.sequence import Sample, Sequence

TAGGED = {
    "old": "a:negative",
    "songs": "n:positive",
    "winter": "n:negative",
    "people": "n:neutral",
    "look": "v:neutral",
}
CLASSES = ["bad", "fair", "good"]


def tagged_samples(count: int = 8, words: int = 60) -> list[Sample]:
    """Texts with tags of some words; all but the last have a label."""
    made = []
    for number, sample in enumerate(text_samples(count, words)):
        tags, end = [], 0
        for word in sample["text"].split():
            start = sample["text"].index(word, end)
            end = start + len(word)
            if word.strip(".") in TAGGED:
                tags.append([start, start + len(word.strip(".")), TAGGED[word.strip(".")]])
        labels = {"label": CLASSES[number % 3]} if number < count - 1 else {}
        made.append({**sample, "spans": [], "mask_spans": [], "tags": tags, "labels": labels})
    return made


def tagged_sequences(
    samples: list[Sample], max_length: int = 512, builder: str = "document", control: str | None = None
) -> list[Sequence]:
    """The sequences behind the transform kg.sentiment."""
    built = build("builder", {"builder": builder, "max_length": max_length}, "", tokenizer=tokenizer())
    return SentimentTransform(labels=len(CLASSES), control=control)(built(samples, draws()), draws())


def feeling_network(**extra: int) -> Network:
    """A small network whose embedding has tables of the fields."""
    torch.manual_seed(0)
    fields = {"part_of_speech_ids": 5, "polarity_ids": 3, "label_ids": len(CLASSES) + 1, **extra}
    text: dict[str, Any] = {"embedding": "token", "hidden_size": 16, "max_positions": 600, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    spec = NetworkSpec({"text": {**text, "extra": fields}}, [layer], init_range=0.3)
    return Network(spec, vocab_size=tokenizer().vocab_size)
