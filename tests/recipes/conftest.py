"""Very small data of every kind that recipes read: linked text, image-text with regions, a graph, entity vectors."""

from __future__ import annotations

import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from kg.graph.store import GraphStore
from kg.lexicons.supersense_table import SupersenseTable, save_supersenses
from kg.sequences.entity_vocabulary import save_entity_vocabulary
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.text.similar_words import save_similar_words
from workbench.text.token_counts import save_token_counts
from workbench.text.tokenizer import Tokenizer, train_tokenizer

BACKBONE = "made-up"
FEATURES = 12
CLASSES = 4
VECTOR_SIZE = 16
TOWNS = ["Oslo", "Lima", "Cairo", "Quito", "Seoul", "Paris"]
COUNTRIES = ["Norway", "Peru", "Egypt", "Ecuador", "Korea", "France"]
TYPES = ["town", "place", "country"]


@dataclass(frozen=True)
class World:
    """Where the data is: three corpora, the tokenizer, the graph, entity vectors, and what is known of words and
    tokens."""

    text: Path
    images: Path
    triples: Path
    tokenizer: Path
    graph: Path
    vectors: Path
    similar: Path
    counts: Path
    senses: Path
    pairs: Path
    words: Path
    reviews: Path
    plain: Path
    entities: Path
    answers: Path
    objects: Path
    videos: Path
    speech: Path
    cells: Path


def linked_texts(count: int) -> list[dict[str, Any]]:
    """Documents of three sentences; the first has a linked town with another that it may mean, a fact's object to mask,
    a typed mention and a relation; the head of each word is the one before it; they are turns of a dialogue too."""
    rng = random.Random(0)
    samples = []
    for _ in range(count):
        i = rng.randrange(len(TOWNS))
        town, country = TOWNS[i], COUNTRIES[i]
        text = f"{town} lies in {country}. Many people live there. They like the river and the bridge."
        begin = text.index(country)
        words = [match.span() for match in re.finditer(r"\S+", text)]
        heads = [words[w - 1][0] - start if w else 0 for w, (start, _) in enumerate(words)]
        samples.append(
            {
                "text": text,
                "spans": [
                    [0, len(town), f"T{i}", 0.9, {"right": 1}],
                    [0, len(town), f"T{(i + 1) % len(TOWNS)}", 0.1, {"right": 0}],
                ],
                "mask_spans": [[begin, begin + len(country), f"C{i}", 1.0]],
                "mention": [0, len(town)],
                "types": ["place", "town"] if i % 2 else ["place"],
                "marks": [[0, len(town), "head"], [begin, begin + len(country), "tail"]],
                "labels": {"relation": "P361" if i % 2 else "P206"},
                "dependencies": [[*place, head, "dep"] for place, head in zip(words, heads, strict=True)],
                "language": "en",
                "translations": {"en": text, "fr": f"{town}, {country}."},
                "turns": [f"Where is {town}?", f"In {country}.", "Many people live there."],
                "meta": {},
            }
        )
    return samples


def _image(seed: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _image_texts(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    samples = []
    for i in range(count):
        corners = np.sort(rng.random((5, 2, 2)).astype(np.float32), axis=1)
        answer = "two" if i % 2 else "one"
        town = TOWNS[i % 6]
        captions = [f"the bridge number {i} of {town}", f"people near the river number {i} of {town}"]
        question = {"question_id": i, "question": f"how many in {TOWNS[i % 6]}?", "answers": [answer]}
        samples.append(
            {
                "image": _image(i),
                "captions": captions,
                "caption_spans": [[[len(c) - len(town), len(c), f"T{i % 6}", 0.9]] for c in captions],
                "questions": [question],
                "labels": {"label": answer},
                "regions": {
                    "features": rng.normal(size=(5, FEATURES)).astype(np.float16),
                    "boxes": corners.reshape(5, 4),
                    "confidence": rng.random(5).astype(np.float32),
                    "classes": rng.integers(CLASSES, size=5),
                    "attributes": rng.integers(CLASSES, size=5),
                    "attribute_confidence": rng.random(5).astype(np.float32),
                    "scores": rng.dirichlet(np.ones(CLASSES), 5).astype(np.float16),
                },
                "meta": {"backbone": BACKBONE},
            }
        )
    return samples


def _videos(count: int) -> list[dict[str, Any]]:
    """Two captions with their times and six clips each."""
    rng, samples = np.random.default_rng(1), []
    for i in range(count):
        times = np.arange(6, dtype=np.float32)[:, None] + np.float32([0, 1])
        features = rng.normal(size=(6, FEATURES)).astype(np.float16)
        town = TOWNS[i % 6]
        samples.append(
            {
                "clips": {"features": features, "times": times, "codes": rng.integers(30, size=6).astype(np.int32)},
                "captions": [f"the bridge number {i} of {town}", f"people near the river of {town}"],
                "caption_times": [[0, 3], [3, 6]],
                "meta": {"backbone": BACKBONE, "codes": BACKBONE},
            }
        )
    return samples


def _speech(count: int) -> list[dict[str, Any]]:
    """A word for every five frames."""
    rng, samples = np.random.default_rng(2), []
    for i in range(count):
        text = f"people near the river of {TOWNS[i % 6]}"
        places = [match.span() for match in re.finditer(r"\S+", text)]
        frames = rng.normal(size=(5 * len(places), FEATURES)).astype(np.float16)
        samples.append(
            {
                "frames": {"features": frames, "step": np.float32(0.01)},
                "transcript": text,
                "words": [[*place, 0.05 * n, 0.05 * (n + 1)] for n, place in enumerate(places)],
            }
        )
    return samples


def _cells() -> list[dict[str, Any]]:
    """Words, and how often others occur near them."""
    words = ["the", "in", "and", "people", "like", "river", "bridge", "number"]
    near = [[[other, 1.0 + (i * j) % 7] for j, other in enumerate(words) if i != j] for i in range(len(words))]
    return [{"text": word, "cooccurrences": cells, "meta": {}} for word, cells in zip(words, near, strict=True)]


def _described(triples: list[tuple[str, str, str]], labels: dict[str, str]) -> list[dict[str, Any]]:
    """A record of a triples corpus for each head."""
    facts: dict[str, list[dict[str, str]]] = {}
    for head, relation, tail in triples:
        fact = {"relation": relation, "relation_text": relation, "tail": tail, "tail_text": labels[tail]}
        facts.setdefault(head, []).append(fact)
    return [{"id": head, "label": labels[head], "triples": listed} for head, listed in facts.items()]


def write_corpus(folder: Path, kind: str, samples: list[dict[str, Any]]) -> Path:
    with ShardWriter(folder / "part-000000.tar", kind=kind) as writer:
        for i, sample in enumerate(samples):
            writer.add(f"r{i}", sample)
    assert writer.info is not None
    about = {"backbone": BACKBONE} if kind == "image-text" else {}
    finish_corpus(folder, kind=kind, shards=[writer.info], provenance={"command": "test"}, about=about)
    return folder


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return write_world(tmp_path_factory.mktemp("world"))


def write_world(folder: Path, size: int = 1) -> World:
    """All of the data in a folder; a multiple of it as the tests of components need."""
    texts, images = linked_texts(24 * size), _image_texts(16 * size)
    triples = [t for i in range(6) for t in ((f"T{i}", "lies_in", f"C{i}"), (f"T{i}", "near", f"T{(i + 1) % 6}"))]
    labels = {f"T{i}": TOWNS[i] for i in range(6)} | {f"C{i}": COUNTRIES[i] for i in range(6)}
    kinds = {"T": "town", "C": "country"}
    named = {e: {"label": name, "description": name, "types": [kinds[e[0]]]} for e, name in labels.items()}
    GraphStore.build(triples, folder / "graph", entity_texts=named, relation_labels={"lies_in": "lies in"})
    vectors, relations = torch.randn(12, VECTOR_SIZE), torch.randn(2, VECTOR_SIZE)
    save_vectors(GraphVectors(sorted(labels), vectors, ["lies_in", "near"], relations), folder / "entities.safetensors")
    words = (
        [s["text"] for s in texts] + [s["captions"][0] for s in images] + ["lies in near how many in one two? / @ #"]
    )
    tokenizer = Tokenizer(train_tokenizer(words * 3, "wordpiece", 150))
    tokenizer.save(folder / "tokenizer.json")
    towns = [tuple(tokenizer.encode(town).ids.tolist()) for town in TOWNS[:2]]
    save_token_counts(folder / "counts.json", np.arange(tokenizer.vocab_size), tokenizer.identity, {})
    save_entity_vocabulary(folder / "entity-vocabulary.safetensors", Counter([*labels]), len(labels), {})
    save_similar_words(folder / "near.safetensors", towns, np.array([[1], [0]]), tokenizer.identity, {})
    allowed = np.arange(tokenizer.vocab_size)[:, None] % 3 == np.arange(3)
    save_supersenses(folder / "senses.json", SupersenseTable(["a", "b", "c"], allowed), tokenizer.identity, {})
    pairs = [
        {
            "text": a,
            "second": b,
            "labels": {"relation": "P361" if i % 2 else "P206", "score": i % 6},
            "choices": [b, COUNTRIES[i % 6 - 1]],
            "answer": 0,
            "meta": {},
        }
        for i, (a, b) in enumerate(zip(TOWNS * 4, COUNTRIES * 4, strict=True))
    ]
    reviews = [
        {"text": sample["text"], "labels": {"label": 1 + i % 5}, "tags": [[0, 4, "n:positive"]], "meta": {}}
        for i, sample in enumerate(texts)
    ]
    named_words = [word.lower() for word in TOWNS + COUNTRIES]
    save_vectors(GraphVectors(named_words, torch.eye(12), [], torch.zeros(0, 12)), folder / "words.safetensors")
    (folder / "answers.json").write_text(json.dumps(["1", "2", "3", "4"]))
    (folder / "objects.txt").write_text("the bridge,bridges\nriver\npeople\ntown\n")
    return World(
        write_corpus(folder / "text", "text", texts),
        write_corpus(folder / "images", "image-text", images),
        write_corpus(folder / "triples", "triples", _described(triples, labels)),
        folder / "tokenizer.json",
        folder / "graph",
        folder / "entities.safetensors",
        folder / "near.safetensors",
        folder / "counts.json",
        folder / "senses.json",
        write_corpus(folder / "pairs", "text", pairs),
        folder / "words.safetensors",
        write_corpus(folder / "reviews", "text", reviews),
        write_corpus(
            folder / "plain", "text", [{k: v for k, v in sample.items() if k != "labels"} for sample in texts]
        ),
        folder / "entity-vocabulary.safetensors",
        folder / "answers.json",
        folder / "objects.txt",
        write_corpus(folder / "videos", "video-text", _videos(8 * size)),
        write_corpus(folder / "speech", "speech-text", _speech(8 * size)),
        write_corpus(folder / "cells", "text", _cells()),
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices: more threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
