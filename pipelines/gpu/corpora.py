"""The corpora of `workbench check`, made by the script itself: nothing is downloaded.

`small`: the small files of the documentation as every corpus that the ten tiny recipes read. `random`: documents of
random words for base-size steps, their lengths log-normal with median 90 and mean 160 words, and random photographs
with captions of 6 to 16 words. Words are drawn by Zipf's law, so that pieces of words repeat as in a language.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from kg.vectors.vectors import GraphVectors, save_vectors
from pipelines.demo.small_files import CITIES, COUNTRIES, write_small_files
from pipelines.gpu.commands import run_command
from workbench.core.files.drafts import write_text

DOCUMENTS = {"base": 4000, "tiny": 300}
PHOTOGRAPHS = {"base": 512, "tiny": 40}
SIDES = (320, 240)
CONSONANTS, VOWELS = "bcdfghjklmnprstvz", "aeiou"
WORDS, SENTENCE = 20_000, 18
DIMENSION = 32
"""Of the entities' vectors: what the tiny size of ernie-thu has."""
RELATIONS = ["country", "near"]
Made = tuple[str, ...]


def prepare_small(folder: Path) -> None:
    """What the tiny recipes read, from the small files of the documentation."""
    files, graph = folder / "files", str(folder / "graph")
    if not files.exists():
        write_small_files(files)
    triples = ("--entities", str(files / "entities.jsonl"), "--relations", str(files / "relations.jsonl"))
    images = ("--images", str(files / "photos"))
    _random_vectors(folder / "entities.safetensors")
    _make(
        folder,
        ("graph", "triples", str(files / "graph.tsv"), *triples),
        ("text", "text", str(files / "notes.txt")),
        ("image-text", "image-text", str(files / "captions.jsonl"), *images),
        ("wiki-linked", "link", str(folder / "text"), "--graph", graph),
        ("tokenizer.json", "tokenizer", str(folder / "text"), graph, str(folder / "image-text"), "--vocab-size", "400"),
    )


def prepare_random(folder: Path, size: str) -> None:
    """Documents and photographs for base-size steps."""
    files = folder / "files"
    if not (files / "captions.jsonl").exists():
        files.mkdir(parents=True, exist_ok=True)
        draws = np.random.default_rng(0)
        write_text(files / "documents.jsonl", "".join(_documents(draws, DOCUMENTS[size])))
        _photographs(draws, files, PHOTOGRAPHS[size])
    images = ("--images", str(files / "photos"))
    texts = (str(folder / "text"), str(folder / "image-text"))
    _make(
        folder,
        ("text", "text", str(files / "documents.jsonl")),
        ("image-text", "image-text", str(files / "captions.jsonl"), *images),
        ("tokenizer.json", "tokenizer", *texts, "--vocab-size", "4000"),
    )


def _random_vectors(file: Path) -> None:
    """Vectors of the entities. None are trained: that command takes the card, which no forked process may."""
    names, draws = sorted([*CITIES, *COUNTRIES]), torch.Generator().manual_seed(0)
    vectors, relations = (torch.randn(count, DIMENSION, generator=draws) for count in (len(names), len(RELATIONS)))
    save_vectors(GraphVectors(names, vectors, RELATIONS, relations), file)


def _make(folder: Path, *made: Made) -> None:
    """Each by `workbench prepare`, unless it is there; one that was stopped continues."""
    for name, *command in made:
        if not ((folder / name).is_file() or (folder / name / "corpus.json").exists()):
            run_command("prepare", *command, "--output", str(folder / name))


def _words(draws: np.random.Generator, count: int) -> list[str]:
    """Words of the language, common ones often."""
    vocabulary = np.random.default_rng(1)
    syllables = vocabulary.integers(1, 5, WORDS)
    letters = vocabulary.integers(0, len(CONSONANTS) * len(VOWELS), (WORDS, 4))
    numbers = np.minimum(draws.zipf(1.3, count), WORDS) - 1
    return ["".join(map(_syllable, letters[number, : syllables[number]])) for number in numbers]


def _syllable(number: int) -> str:
    return CONSONANTS[number // len(VOWELS)] + VOWELS[number % len(VOWELS)]


def _documents(draws: np.random.Generator, count: int) -> Iterator[str]:
    """Lines of JSON. A sentence has about as many words as one of Wikipedia."""
    for length in np.clip(np.exp(draws.normal(np.log(90), 1.07, count)).astype(int), 12, 2000):
        words = _words(draws, int(length))
        sentences = [" ".join(words[first : first + SENTENCE]) for first in range(0, len(words), SENTENCE)]
        yield json.dumps({"text": ". ".join(sentences).capitalize() + "."}) + "\n"


def _photographs(draws: np.random.Generator, folder: Path, count: int) -> None:
    """Smooth random colours with a little noise, as JPEG compresses photographs; each with a caption."""
    (folder / "photos").mkdir(exist_ok=True)
    lines = []
    for number in range(count):
        coarse = Image.fromarray(draws.integers(0, 256, (12, 16, 3), np.uint8)).resize(SIDES, Image.Resampling.BICUBIC)
        noisy = np.asarray(coarse, np.int16) + draws.integers(-12, 13, (SIDES[1], SIDES[0], 3), np.int16)
        name = f"{number:05d}.jpg"
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / "photos" / name, quality=90)
        caption = " ".join(_words(draws, int(draws.integers(6, 17))))
        lines.append(json.dumps({"image": name, "captions": [caption]}) + "\n")
    write_text(folder / "captions.jsonl", "".join(lines))
