"""The sentences around a sentence: which they are, what a decoder is asked for, and that it knows the vector alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.material import tokenizer
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.objectives._token_head import HeadOptions
from workbench.objectives.neighbour_sentence import NeighbourSentence, Side
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.segments import NEIGHBOURS, sentences_between
from workbench.sequences.sequence import Sample, Sequence

EXCUSED = "it makes a stream that the network of the contracts does not have"
SENTENCES = ["the old river. ", "Boats near Hamburg!\n", "Winter came? ", "songs"]
SAMPLE: Sample = {"key": "a", "draw": (0, 3), "text": "".join(SENTENCES), "spans": [[26, 33, "Q1", 1.0]]}
DRAWS = Draws(0, "t", "it", number=(0,))


def made(samples: list[Sample], **options: Any) -> tuple[NeighbourSentence, list[Sequence]]:
    objective = NeighbourSentence(tokenizer(), **options)
    objective.name = "it"
    sequences = DocumentBuilder(tokenizer(), 60, begin=None)(objective.arrange(samples, DRAWS), DRAWS)
    objective.corrupt(sequences, DRAWS)
    return objective, sequences


def test_sentences_between_two_others_have_their_texts_and_their_own_mentions() -> None:
    found = sentences_between(SAMPLE)
    assert [sample["text"] for sample in found] == SENTENCES[1:3]
    assert [sample["labels"][NEIGHBOURS] for sample in found] == [SENTENCES[:3:2], SENTENCES[1::2]]
    assert [sample["draw"] for sample in found] == [(0, 3, 0), (0, 3, 1)]
    assert [[found[0]["text"][slice(*m[:2])] for m in sample["spans"]] for sample in found] == [["Hamburg"], []]
    assert sentences_between(found[0]) == [found[0]]  # a second objective finds them as they are
    for whole in ({"text": "the river. water"}, {"text": ""}, {**SAMPLE, "second": "a"}):
        assert sentences_between(whole) == [whole]


@pytest.mark.parametrize(("side", "near"), [("before", 0), ("behind", 2)])
def test_a_decoder_is_asked_for_the_neighbour_and_its_end(side: Side, near: int) -> None:
    objective, sequences = made([SAMPLE, {"key": "b", "draw": (1,), "text": "the river. water"}], side=side)
    end = tokenizer().id("eos")
    assert len(sequences) == 3
    for number, sequence in enumerate(sequences[:2]):
        wanted = [*tokenizer().encode(SENTENCES[number + near]).ids.tolist(), end]
        assert sequence.targets["it"]["labels"].tolist() == wanted
        assert sequence.streams["target"]["input_ids"].tolist() == [end, *wanted[:-1]]
        assert (
            sequence.streams["text"]["input_ids"][:-1].tolist()
            == tokenizer().encode(SENTENCES[number + 1]).ids.tolist()
        )
    assert not len(sequences[2].targets["it"]["labels"])  # it has no three sentences
    assert objective.count(collate(sequences)) == sum(len(s.targets["it"]["labels"]) for s in sequences)
    _, short = made([SAMPLE], side=side, longest=2)
    assert [len(sequence.targets["it"]["labels"]) for sequence in short] == [2, 2]


def test_the_decoder_knows_the_vector_of_the_sentence_alone() -> None:
    """The loss of both decoders is that of the last row; other rows of the text change nothing by themselves."""
    objective, sequences = made([SAMPLE], head=HeadOptions(bias=True))
    table = {
        "embedding": "token",
        "hidden_size": 8,
        "max_positions": None,
        "token_types": 0,
        "dropout": 0,
        "norm": None,
    }
    layers = [{"layer": "conditioned", "stream": "target", "of": "text"}, {"layer": "lstm", "stream": "target"}]
    torch.manual_seed(0)
    spec = NetworkSpec({"text": table, "target": table}, layers, init_range=0.5)
    network = Network(spec, vocab_size=tokenizer().vocab_size)
    head = objective.head(network)

    def loss(which: int) -> float:
        changed = [sequence.copy() for sequence in sequences]
        changed[0].streams["text"]["input_ids"][which] = 40
        batch: Batch = collate(changed)
        return float(head(HeadInputs.of(network, batch, batch.targets["it"], network(batch))).loss.detach())

    text = sequences[0].streams["text"]["input_ids"]
    assert text[0] != 40 != text[-1]
    alone = [loss(0), loss(-1)]
    batch = collate(sequences)
    whole = head(HeadInputs.of(network, batch, batch.targets["it"], network(batch)))
    assert alone[0] == pytest.approx(float(whole.loss.detach()))
    assert abs(alone[1] - float(whole.loss.detach())) > 1e-4
    rows = network(batch)["target"][batch.targets["it"]["rows"]]
    labels = batch.targets["it"]["labels"]
    nats = -torch.log_softmax(head.logits(network, rows), -1)[np.arange(len(labels)), labels]
    assert float(whole.loss.detach()) == pytest.approx(float(nats.sum().detach()), rel=1e-5)
