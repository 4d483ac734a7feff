"""What both sides of `benchmarks.whole_run` read: documents, a tokenizer, and a graph, vectors or regions.

The workbench reads them as a corpus, its peer as plain files: `documents.jsonl` (`text`, `spans`), `triples.json` (the
spelt branches of each entity), `entities.safetensors`, and `regions/NUMBER.npz` next to each document.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.reading import image, write
from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.text.tokenizer import Tokenizer, train_tokenizer

HIDDEN, LAYERS, HEADS, INNER, VOCAB = 256, 4, 4, 1024, 8192  # "small" of benchmarks.mlm_step
ENTITY_SIZE, ENTITY_HEADS = 100, 4  # ERNIE-THU's
FEATURES, REGIONS = 2048, (10, 100)  # UNITER's: between 10 and 100 regions an image
IMAGES = 600
MENTIONS = 1 / 30  # of the words are linked: in Wikipedia's own links it is one in 39 word pieces
BRANCHES = 2  # triples of an entity, as K-BERT takes
RECIPES = ("bert", "k-bert", "ernie-thu", "uniter")

Document = dict[str, Any]


def prepare(recipe: str, folder: Path, corpus: Path | None, length: int, train: dict[str, Any]) -> Path:
    """Write everything for a recipe into the folder; returns the recipe's YAML.

    Args:
        corpus: a text file, or JSON lines with `text`; its paragraphs become the documents. None: made-up text.
        length: tokens of the longest sequence, special ones and branches included.
    """
    paragraphs = list(made_up_paragraphs() if corpus is None else paragraphs_of(corpus))
    if recipe == "uniter":
        paragraphs = [sentence for paragraph in paragraphs for sentence in re.split(r"(?<=[.!?;]) ", paragraph)]
        random.Random(0).shuffle(paragraphs)
    tokenizer = Tokenizer(train_tokenizer(paragraphs, vocab_size=VOCAB))
    tokenizer.save(folder / "tokenizer.json")
    room = 3 * length // 4 if recipe == "k-bert" else length
    documents = list(cut(paragraphs[:IMAGES] if recipe == "uniter" else paragraphs, tokenizer, room - 2))
    if recipe in ("k-bert", "ernie-thu"):
        entities = link(documents)
        write_graph(entities, folder) if recipe == "k-bert" else write_vectors(entities, folder)
    kind, samples = ("text", documents)
    if recipe == "uniter":
        kind, samples = "image-text", list(with_regions(documents[:IMAGES], folder / "regions"))
        documents = documents[:IMAGES]
    lines = (json.dumps(document) + "\n" for document in documents)
    (folder / "documents.jsonl").write_text("".join(lines), encoding="utf-8")
    write(folder / "corpus", kind, samples)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(spec(recipe, folder, length) | {"train": train}, sort_keys=False))
    return path


def paragraphs_of(path: Path) -> Iterator[str]:
    """The paragraphs of at least eight words, each on one line."""
    text = path.read_text(encoding="utf-8")
    texts = [json.loads(line)["text"] for line in text.splitlines()] if path.suffix == ".jsonl" else [text]
    for whole in texts:
        for paragraph in re.split(r"\n\s*\n", whole):
            if len(words := paragraph.split()) >= 8:
                yield " ".join(words)


def made_up_paragraphs(number: int = 8_000) -> Iterator[str]:
    """Text with word frequencies of Zipf's law and lengths (log-normal, median 45 words) like a novel's paragraphs."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwygpbvk"))
    shares = np.array([12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2, 1, 1], float)
    lexicon = ["".join(rng.choice(letters, rng.integers(2, 10), p=shares / shares.sum())) for _ in range(20_000)]
    frequency = 1 / np.arange(10, 10 + len(lexicon))
    for size in np.clip(rng.lognormal(np.log(45), 0.95, number), 8, 2_000).astype(int):
        words = [lexicon[i] for i in rng.choice(len(lexicon), size, p=frequency / frequency.sum())]
        yield " ".join(word + "." * (i % 13 == 12) for i, word in enumerate(words))


def cut(paragraphs: list[str], tokenizer: Tokenizer, size: int) -> Iterator[Document]:
    """Documents of at most `size` tokens: a longer paragraph becomes several, cut between words."""
    for first in range(0, len(paragraphs), 1000):
        batch = paragraphs[first : first + 1000]
        for text, encoded in zip(batch, tokenizer.encode_batch(batch), strict=True):
            begin = 0
            while begin < len(encoded):
                end = min(begin + size, len(encoded))
                while end < len(encoded) and end > begin + 1 and encoded.words[end] == encoded.words[end - 1]:
                    end -= 1
                yield {"text": text[encoded.starts[begin] : encoded.ends[end - 1]], "spans": []}
                begin = end


def link(documents: list[Document]) -> list[str]:
    """Make words of middling frequency the names of entities and write their mentions into the documents."""
    counts = Counter(word for document in documents for word in re.findall(r"\w{4,}", document["text"]))
    budget = MENTIONS * sum(len(document["text"].split()) for document in documents)
    names: list[str] = []
    for name, count in islice(counts.most_common(), 300, None):
        if budget <= 0:
            break
        names.append(name)
        budget -= count
    known = set(names)
    for document in documents:
        found = re.finditer(r"\w{4,}", document["text"])
        document["spans"] = [[m.start(), m.end(), m.group(), 1.0] for m in found if m.group() in known]
    return names


def write_graph(names: list[str], folder: Path) -> None:
    """Two triples for each entity, whose tails are other entities; and the same spelt out for the peer."""
    rng = random.Random(0)
    relations = ["part of", "kind of", "place of", "work of"]
    triples = [(name, relation, rng.choice(names)) for name in names for relation in rng.sample(relations, BRANCHES)]
    GraphStore.build(
        triples,
        folder / "graph",
        entity_texts=[{"id": name, "label": name} for name in names],
        relation_labels={relation: relation for relation in relations},
    )
    spelt: dict[str, list[str]] = {}
    for head, relation, tail in triples:
        spelt.setdefault(head, []).append(f"{relation} {tail}")
    (folder / "triples.json").write_text(json.dumps(spelt), encoding="utf-8")


def write_vectors(names: list[str], folder: Path) -> None:
    """Random entity vectors: how they were made has no say in the speed."""
    vectors = torch.randn(len(names), ENTITY_SIZE, generator=torch.Generator().manual_seed(0))
    save_vectors(GraphVectors(names, vectors, [], torch.zeros(0, ENTITY_SIZE)), folder / "entities.safetensors")


def with_regions(documents: list[Document], folder: Path) -> Iterator[dict[str, Any]]:
    """A sample of region features for each caption; the same arrays as a file of the peer."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    photograph = image(0)
    for number, document in enumerate(documents):
        corners = np.sort(rng.random((rng.integers(*REGIONS, endpoint=True), 2, 2), np.float32), axis=1)
        regions = {
            "features": rng.standard_normal((len(corners), FEATURES), np.float32),
            "boxes": corners.reshape(-1, 4),
        }
        np.savez(folder / f"{number}.npz", **regions)
        yield {"image": photograph, "captions": [document["text"]], "regions": regions, "meta": {"backbone": "random"}}


def spec(recipe: str, folder: Path, length: int) -> dict[str, Any]:
    """The recipe, but for `train`."""
    text = {"embedding": "token", "hidden_size": HIDDEN, "max_positions": max(512, length)}
    block = {"num_heads": HEADS, "intermediate_size": INNER}
    streams: dict[str, Any] = {"text": text}
    layers: list[dict[str, Any]] = [{"layer": "self", "stream": "text", **block, "repeat": LAYERS}]
    # windows far wider than any document: the documents are cut already
    sequence: dict[str, Any] = {"builder": "document", "max_length": length, "chars_per_token": 1000}
    objectives: list[dict[str, Any]] = [{"objective": "mlm"}]
    if recipe == "k-bert":
        tree = {
            "transform": "kg.sentence_tree",
            "graph": str(folder / "graph"),
            "max_length": length,
        }
        sequence["transforms"] = [tree | {"triples": {"most": BRANCHES}}]
    if recipe == "ernie-thu":
        table = str(folder / "entities.safetensors")
        streams["entity"] = {
            "embedding": "kg.entity_table",
            "path": table,
            "hidden_size": ENTITY_SIZE,
        }
        fused = {
            "layer": "kg.aggregator",
            "streams": ["text", "entity"],
            "intermediate_size": INNER,
        }
        fused["num_heads"] = [HEADS, ENTITY_HEADS]
        layers[0]["repeat"] = LAYERS - 3
        layers += [fused | {"entity_attention": False}, fused, fused | {"entity_output": False}]
        sequence["transforms"] = [{"transform": "kg.entity_stream", "table": table}]
        objectives += [{"objective": "kg.dea"}]
    if recipe == "uniter":
        region = {
            "embedding": "vision.regions",
            "hidden_size": HIDDEN,
            "feature_size": FEATURES,
        }
        streams["image"] = region
        layers = [{"layer": "joint", "streams": ["text", "image"], **block, "repeat": LAYERS}]
        regions = {"image_processor": "vision.regions", "backbone": "random", "max_regions": REGIONS[1]}
        sequence = {"builder": "image_caption", "max_length": length, "image_processor": regions}
    return {
        "name": recipe,
        "tokenizer": str(folder / "tokenizer.json"),
        "model": {"streams": streams, "layers": layers},
        "tasks": {"text": {"corpora": [str(folder / "corpus")], "sequence": sequence, "objectives": objectives}},
    }
