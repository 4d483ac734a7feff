"""Ranks, cloze sentences, and the scores of candidates of several tokens."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

from kg.evaluation.facts.fact_ranking import FactCloze, candidate_tokens, rank_objects
from kg.evaluation.facts.slots import SlotPredictor
from kg.graph.entity_facts import Fact
from kg.sequences.transforms.sentence_tree import SentenceTreeTransform
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives.mlm import MlmHead
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.builders.document import DocumentBuilder
from workbench.text.tokenizer import Tokenizer

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *["lyon", "is", "in", "a", "city", "of", "the", "france", "spain", "new", "zealand", ".", "near"],
]
CANDIDATES = ["france", "spain", "new zealand", "the"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(backend)


def test_cloze_of_a_record_moves_spans_and_unlinks_the_slot() -> None:
    record = {
        "key": "f",
        "text": "lyon is in france near spain .",
        "spans": [[0, 4, "Q1", 1.0], [11, 17, "Q2", 1.0], [23, 28, "Q3", 0.5]],
        "mask_spans": [[11, 17, "Q2"]],
    }
    cloze = FactCloze.of(record, gold=0)
    assert (cloze.before, cloze.after) == ("lyon is in ", " near spain .")
    sample = cloze.sample("new zealand", (0,))
    assert sample["text"] == "lyon is in new zealand near spain ."
    assert sample["mask_spans"] == [[11, 22]]
    assert [sample["text"][s:e] for s, e, *_ in sample["spans"]] == ["lyon", "spain"]
    assert "tags" not in sample
    with pytest.raises(WorkbenchError, match="0 mask_spans"):
        FactCloze.of({**record, "mask_spans": []}, gold=0)


def test_a_cloze_keeps_the_tags_of_its_words_and_which_candidate_is_right() -> None:
    record = {
        "text": "in france is lyon",
        "spans": [
            [3, 9, "Q2", 1.0, {"right": 1}],
            [13, 17, "Q1", 0.7, {"right": 1}],
            [13, 17, "Q9", 0.3, {"right": 0}],
        ],
        "tags": [[0, 2, "r"], [3, 9, "n"], [10, 12, "v"], [13, 17, "n"]],
        "mask_spans": [[3, 9]],
        "language": "en",
    }
    sample = FactCloze.of(record, gold=0).sample("new zealand", (0,))
    assert sample["language"] == "en"
    assert sample["spans"] == [[18, 22, "Q1", 0.7, {"right": 1}], [18, 22, "Q9", 0.3, {"right": 0}]]
    assert sample["tags"] == [[0, 2, "r"], [15, 17, "v"], [18, 22, "n"]]


def test_candidate_tokens(tokenizer: Tokenizer) -> None:
    tokens = candidate_tokens(CANDIDATES, "a ", ".", tokenizer)
    assert [[WORDS[i] for i in ids] for ids in tokens] == [["france"], ["spain"], ["new", "zealand"], ["the"]]
    with pytest.raises(WorkbenchError, match="no token of its own"):
        candidate_tokens([" "], "a", "b", tokenizer)


def model(vocab_size: int) -> tuple[Network, MlmHead]:
    torch.manual_seed(0)
    text = {"embedding": "token", "vocab_size": vocab_size, "hidden_size": 16, "max_positions": 32}
    network = Network(NetworkSpec({"text": text}, [{"layer": "self", "stream": "text", "num_heads": 2, "repeat": 2}]))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network, MlmHead(network)


@pytest.mark.parametrize("normalisation", ["sum", "mean"])
def test_scores_equal_a_plain_loop_over_candidates(tokenizer: Tokenizer, normalisation) -> None:
    network, head = model(len(WORDS))
    predict = SlotPredictor(network, head, DocumentBuilder(tokenizer, 32), tokenizer.id("mask"))
    befores = [("lyon is in ", " ."), ("the city of ", ""), ("", " is near lyon ."), ("a city in ", " .")]
    clozes = [FactCloze(str(i), b, a, gold=i % 4) for i, (b, a) in enumerate(befores)]
    result = rank_objects(clozes, CANDIDATES, tokenizer, predict, normalisation=normalisation, batch_size=2)
    assert result.normalisation == normalisation
    for cloze, rank, best in zip(clozes, result.ranks, result.best, strict=True):
        scores = []
        for candidate in CANDIDATES:
            ids = tokenizer.encode(candidate).ids.tolist()
            before, after = (tokenizer.encode(t).ids.tolist() for t in (cloze.before, cloze.after))
            row = [2, *before, *[4] * len(ids), *after, 3]
            fields = {
                "input_ids": torch.tensor(row),
                "position_ids": torch.arange(len(row)),
                "token_type_ids": torch.zeros(len(row), dtype=torch.long),
            }
            scores.append(plain_score(network, head, fields, 1 + len(before), ids, normalisation))
        assert best == int(np.argmax(scores))
        assert rank == 1 + sum(s > scores[cloze.gold] for s in scores)


def plain_score(network, head, fields, at: int, ids: list[int], normalisation: str) -> float:
    from workbench.sequences.batch import Batch, Stream

    n = len(fields["input_ids"])
    with torch.no_grad():
        states = network(Batch({"text": Stream(fields, torch.tensor([0, n]), [n])}))["text"]
        logs = head.logits(network, states).log_softmax(-1)
    total = sum(float(logs[at + i, token]) for i, token in enumerate(ids))
    return total / len(ids) if normalisation == "mean" else total


class Graph:
    def facts(self, entity, direction, relations):
        return [Fact("in", "france", False)] if entity == "Q1" else []

    def name_of(self, entity):
        return entity

    relation_label = name_of


def test_slots_after_knowledge_injection(tokenizer: Tokenizer) -> None:
    """The masks follow the slot when branches come before it; the model sees them and the injected triple."""
    network, head = model(len(WORDS))
    builder, tree = DocumentBuilder(tokenizer, 32), SentenceTreeTransform(Graph(), tokenizer, 32)
    seen = []

    def prepare(samples, draws):
        sequences = tree(builder(samples, draws), draws)
        seen.extend(sequences)
        return sequences

    predict = SlotPredictor(network, head, prepare, tokenizer.id("mask"))
    cloze = FactCloze("f", "lyon is in ", " .", 0, stretches={"spans": [[0, 4, "Q1", 1.0]]})
    found = predict([cloze.sample("new zealand", (0,))])
    assert found.shape == (1, 2, len(WORDS))
    assert np.allclose(np.exp(found).sum(-1), 1, atol=1e-5)
    ids = seen[0].streams["text"]["input_ids"].tolist()
    assert [WORDS[i] for i in ids] == ["[CLS]", "lyon", "in", "france", "is", "in", "[MASK]", "[MASK]", ".", "[SEP]"]


def test_refuses_what_cannot_be_ranked(tokenizer: Tokenizer) -> None:
    network, head = model(len(WORDS))
    predict = SlotPredictor(network, head, DocumentBuilder(tokenizer, 32), tokenizer.id("mask"))
    with pytest.raises(WorkbenchError, match="0 sentences"):
        rank_objects([], CANDIDATES, tokenizer, predict)
    plain = {"key": "a", "draw": (0,), "text": "lyon is in spain", "spans": []}
    with pytest.raises(WorkbenchError, match="gave 0 slots"):
        predict([plain])
    two = {**plain, "mask_spans": [[0, 4], [11, 16]]}
    with pytest.raises(WorkbenchError, match="2 slots"):
        predict([two])
