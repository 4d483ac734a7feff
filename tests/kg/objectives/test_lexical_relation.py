"""Related words and false pairs of words that are near each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.lexicons.word_vectors import WordVectors
from kg.objectives.lexical_relation import LexicalRelation
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.contracts.material import draws, plain, tiny_network, tokenizer, travelled
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate

EXCUSED = "it reads pairs of words, which the samples of the contracts don't have"

WORDS = ["river", "boat", "bridge", "harbour", "winter", "song", "city", "water", "people", "question"]
PAIRS = [("river", "water"), ("boat", "bridge"), ("Winter", "song"), ("river", "city"), ("people", "question")]


@pytest.fixture(scope="module")
def table() -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(len(WORDS), 4, generator=torch.Generator().manual_seed(3)))


@pytest.fixture(scope="module")
def part(table: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> LexicalRelation:
    path = tmp_path_factory.mktemp("words") / "words.safetensors"
    save_vectors(GraphVectors(WORDS, table, [], torch.zeros(0, 4)), path)
    made = LexicalRelation(str(path), dropout=0.0)
    made.name = "it"
    return made


def samples(pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"key": str(n), "draw": (0, n), "text": a, "second": b} for n, (a, b) in enumerate(pairs)]


def test_false_pairs_are_the_nearest_words_of_the_batch_by_a_loop(part: LexicalRelation, table: torch.Tensor) -> None:
    made = part.arrange(samples(PAIRS), draws())
    vectors = dict(zip(WORDS, table.tolist(), strict=True))
    words = list(dict.fromkeys(word for pair in PAIRS for word in pair))
    related = {frozenset(pair) for pair in PAIRS}

    def nearest(to: str, other: str) -> str:
        best, found = -2.0, ""
        for word in words:
            if word in (to, other) or frozenset({word, to}) in related:
                continue
            cosine = sum(a * b for a, b in zip(vectors[word.lower()], vectors[to.lower()], strict=True))
            if cosine > best:
                best, found = cosine, word
        return found

    wanted = []
    for first, second in PAIRS:
        wanted += [(first, second, "true"), (nearest(second, first), second, "false")]
        wanted += [(first, nearest(first, second), "false")]
    assert [(s["text"], s["second"], s["labels"]["related"]) for s in made] == wanted
    assert [s["draw"] for s in made[:4]] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]
    assert plain(travelled(part).arrange(samples(PAIRS), draws())) == plain(made)


def test_a_pair_alone_has_no_false_ones(part: LexicalRelation) -> None:
    assert [s["labels"]["related"] for s in part.arrange(samples(PAIRS[:1]), draws())] == ["true"]
    assert part.arrange([], draws()) == []


def test_the_loss_is_that_of_a_loop(part: LexicalRelation) -> None:
    builder = build("builder", {"builder": "sentence_pair", "split": False}, "", tokenizer=tokenizer(), max_length=32)
    sequences = builder(part.arrange(samples(PAIRS), draws()), draws())
    part.corrupt(sequences, draws())
    batch, network = collate(sequences), tiny_network()
    head = part.head(network)
    states = torch.randn(int(batch.streams["text"].offsets[-1]), 16, requires_grad=True)
    out = head(HeadInputs.of(network, batch, batch.targets["it"], {"text": states}))
    total, at = torch.tensor(0.0), 0
    for sequence in sequences:
        pooled = torch.tanh(network.poolers["text"].dense(states[at]))
        z = [
            (row * pooled).sum() + bias for row, bias in zip(head.classifier.weight, head.classifier.bias, strict=True)
        ]
        p = torch.exp(z[1]) / (torch.exp(z[0]) + torch.exp(z[1]))
        total = total - torch.log(p if sequence.labels["related"] == "true" else 1 - p)
        at += sequence.length("text")
    torch.testing.assert_close(out.loss, total, rtol=1e-5, atol=1e-5)
    assert part.count(batch) == len(sequences) == 3 * len(PAIRS)


def test_what_the_corpus_or_the_vectors_lack_is_reported(part: LexicalRelation) -> None:
    with pytest.raises(WorkbenchError, match="it has no 'second'"):
        part.arrange([{"key": "a", "draw": (0,), "text": "river"}], draws())
    with pytest.raises(WorkbenchError, match=r"has no vector of 'volcano'; `workbench prepare word-pairs`"):
        part.arrange(samples([("river", "volcano")]), draws())
    with pytest.raises(WorkbenchError, match="there is no file nowhere"):
        WordVectors(Path("nowhere.safetensors"))
    np.testing.assert_allclose(part.vectors.of(["RIVER"])[0], part.vectors.of(["river"])[0])
