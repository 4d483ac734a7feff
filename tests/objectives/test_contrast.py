"""Contrast of queries and passages, against sentence-transformers, open_clip and formulas by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from open_clip.loss import SigLipLoss
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from torch import Tensor
from torch.nn import functional as F

from tests.contracts import material
from tests.contracts.cases import ObjectiveCase
from tests.objectives.conftest import DRAWS
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives import contrast as module
from workbench.objectives.contrast import Contrast, ContrastHead
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Rows, Sequence

CONTRAST = {
    "seed": "nothing is drawn",
    "originals": "no row is changed",
    "additive": "the rivals of a pair are the other pairs",
    "no image": "a pair without an image is refused",
    "no labels": "every pair is counted",
}
APART = {"query": "text", "passage": "image", "roles": False, "size": 8}
CASES = {
    "": ObjectiveCase({**APART, "norm": True}, CONTRAST, reads=("text", "image")),
    "sigmoid": ObjectiveCase({**APART, "loss": "sigmoid", "norm": True}, CONTRAST, reads=("text", "image")),
}
RECORDS = [
    {"key": str(i), "draw": (0, i), "text": text, "choices": choices, "answer": 0}
    for i, (text, choices) in enumerate(
        [
            ("a river", ["it is long", "it is old", "it is small"]),
            ("a city", ["people live there", "it is long"]),
            ("the old town", ["it is small"]),
            ("a bridge", ["it is long", "people walk"]),
        ]
    )
]


def contrast(**options: Any) -> Contrast:
    objective = Contrast(**options)
    objective.name = "it"
    return objective


def head_of(**options: Any) -> ContrastHead:
    streams = {s: {"embedding": "token", "hidden_size": 8, "vocab_size": 9} for s in ("text", "image")}
    network = Network(NetworkSpec(streams=streams, layers=[]), vocab_size=9)
    head = contrast(**{**APART, "size": None, **options}).head(network)
    assert isinstance(head, ContrastHead)
    return head


def vectors(*sizes: int, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(*sizes, 8, generator=torch.Generator().manual_seed(seed)), dim=-1)


def embedded(n: int = 6, **more: Tensor) -> dict[str, Tensor]:
    return {"query": vectors(n), "passage": vectors(n, seed=1), "pair_id": torch.arange(2 * n).view(n, 2), **more}


@pytest.mark.parametrize("directions", ["both", "forward"])
def test_it_is_the_loss_of_sentence_transformers(directions: str) -> None:
    hard = {"hard": vectors(6, 2, seed=2), "hard_id": torch.arange(100, 112).view(6, 2)}
    more = hard if directions == "forward" else {}
    given = embedded(**more)
    head = head_of(directions=directions, temperature=0.05, learned=False)
    head.hard = 2 if more else 0
    ways = ("query_to_doc", "doc_to_query") if directions == "both" else ("query_to_doc",)
    model: Any = SentenceTransformer.__new__(SentenceTransformer)
    theirs = MultipleNegativesRankingLoss(model, scale=20.0, directions=ways, partition_mode="per_direction")
    sides = [given["query"], given["passage"], *(more["hard"].unbind(1) if more else ())]
    wanted = theirs.compute_loss_from_embeddings(sides, torch.zeros(0))
    torch.testing.assert_close(head.loss(given, slice(0, 6)).loss / 6, wanted)
    assert not [*head.parameters()], "a fixed scale and no projection"


def test_the_sigmoid_loss_is_open_clips_and_its_scale_is_free() -> None:
    given, head = embedded(), head_of(loss="sigmoid", temperature=0.1)
    with torch.no_grad():
        head.logit_scale.fill_(math.log(120.0))
        head.logit_bias.fill_(-9.0)
    found = head.loss(given, slice(0, 6)).loss / 6
    wanted = SigLipLoss()(given["passage"], given["query"], torch.tensor(120.0), torch.tensor(-9.0))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_neither_micro_batches_nor_chunks_change_the_loss(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, head = embedded(7), head_of(loss=loss, margin=0.02)
    given["pair_id"][3, 1] = given["pair_id"][5, 1]
    leaves = [given["query"].requires_grad_(), given["passage"].requires_grad_(), *head.parameters()]
    whole = head.loss(given, slice(0, 7))
    parts = [head.loss(given, own).loss for own in (slice(0, 3), slice(3, 7))]
    torch.testing.assert_close(sum(parts), whole.loss)
    monkeypatch.setattr(module, "CHUNK", 2)
    chunked = head.loss(given, slice(0, 7))
    torch.testing.assert_close(chunked.loss, whole.loss)
    assert {n: float(v) for n, (v, _) in chunked.metrics.items()} == {
        n: float(v) for n, (v, _) in whole.metrics.items()
    }
    for one, other in zip(*(torch.autograd.grad(each.loss, leaves) for each in (whole, chunked)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_margin_equal_texts_and_candidates_by_hand(loss: str) -> None:
    """Passages 1 and 4 are one text; sample 2 has one hard negative, which is the passage of 3; each has a self."""
    hard_id = torch.full((5, 1), -1)
    hard_id[2] = 100
    given = embedded(5, hard=vectors(5, 1, seed=2), hard_id=hard_id, self=vectors(5, seed=3))
    given["pair_id"][4, 1] = given["pair_id"][1, 1]
    given["pair_id"][3, 1] = 100
    other = {"logit_bias": -1.0} if loss == "sigmoid" else {"directions": "forward"}
    head = head_of(loss=loss, margin=0.1, temperature=0.5, learned=False, **other)
    head.hard, head.self_negatives = 1, True
    query, passage, total = given["query"], given["passage"], 0.0
    bias = -1.0 if loss == "sigmoid" else 0.0
    for i in range(5):
        right = 2 * (float(query[i] @ passage[i]) - 0.1) + bias
        wrong = [2 * float(query[i] @ passage[j]) + bias for j in range(5) if j != i and {i, j} != {1, 4}]
        wrong += [2 * float(query[i] @ given["hard"][2, 0]) + bias] if i != 3 else []
        wrong += [2 * float(query[i] @ given["self"][i]) + bias]
        if loss == "softmax":
            total -= right - math.log(sum(map(math.exp, [right, *wrong])))
        else:
            total += math.log1p(math.exp(-right)) + sum(math.log1p(math.exp(each)) for each in wrong)
    assert float(head.loss(given, slice(0, 5)).loss.detach()) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("same", ["ignored", "negative"])
def test_a_hard_negative_that_is_right_for_an_equal_query_is_ignored(same: str) -> None:
    """Queries 1 and 3 are one text; the hard negative of 0 is the passage of 3."""
    hard_id = torch.full((5, 1), -1)
    given = embedded(5, hard=vectors(5, 1, seed=2), hard_id=hard_id)
    hard_id[0], given["pair_id"][3, 0] = given["pair_id"][3, 1], given["pair_id"][1, 0]
    head = head_of(directions="forward", same=same)
    head.hard = 1
    found = head._candidates(given, slice(1, 5))
    assert found is not None
    assert found.ignored[:, 0].tolist() == [same == "ignored", False, True, False]
    assert found.ignored[:, 1:].all()


def test_passages_of_learned_queries_have_the_numbers_of_their_texts_and_records() -> None:
    objective = contrast(passage="asked")
    made = [Sequence({"text": {"input_ids": np.array([5, n])}, "image": {}}, (0, n), str(n)) for n in (1, 2, 1)]
    for of, equal in (("text", True), ("image", False)):
        for number, sequence in enumerate(made):
            sequence.key = str(number)
            sequence.streams["asked"] = {"input_ids": np.arange(2), "of": Rows(of, np.zeros(2, np.int64), bound=True)}
        numbers = [objective._number("passage", sequence) for sequence in made]
        assert (numbers[0] == numbers[2], numbers[0] == numbers[1]) == (equal, False)


def read_by(stream: str, objective: Contrast) -> tuple[Network, list[Sequence], Batch]:
    """A network of a stream for each side, or one for both, and its batch of the records."""
    tokenizer = material.tokenizer()
    options = {"embedding": "token", "hidden_size": 16, "max_positions": 64, "dropout": 0.0}
    layer = {"layer": "self", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    names = dict.fromkeys(["text", stream])
    spec = NetworkSpec(dict.fromkeys(names, options), [{**layer, "stream": name} for name in names], init_range=0.2)
    torch.manual_seed(0)
    network = Network(spec, vocab_size=tokenizer.vocab_size)
    pair = {"builder": "text_pair", "passages": "choices", "hard": 2, "stream": stream}
    made = build("builder", pair, "", tokenizer=tokenizer, max_length=16).evaluating()(RECORDS, DRAWS)
    objective.corrupt(made, DRAWS)
    return network, made, collate(made)


@pytest.mark.parametrize("stream", ["text", "other"])
def test_sequences_of_two_roles_and_hard_negatives(stream: str) -> None:
    objective = contrast(passage=stream, hard=2, pool="mean", size=4)
    network, made, batch = read_by(stream, objective)
    head = objective.head(network)
    found = head.embed(HeadInputs.of(network, batch, batch.targets["it"]))
    assert objective.count(batch) == 4
    assert found["hard"].shape == (4, 2, 4)
    roles = [sequence.role for sequence in made]
    assert roles.count("negative") == 4
    for role, own in (("query", found["query"]), ("passage", found["passage"])):
        place = "text" if role == "query" else stream
        alone = [collate([sequence]) for sequence in made if sequence.role == role]
        each = [head.space(HeadInputs.of(network, one, {}).read(), place) for one in alone]
        torch.testing.assert_close(torch.cat(each), own)
    assert (found["hard_id"] == -1).tolist() == [[False, False], [False, True], [True, True], [False, True]]
    assert not found["hard"][2].any()
    assert found["hard"][3, 0].any()
    equal = [found["pair_id"][i, 1] for i in (0, 3)] + [found["hard_id"][1, 0]]
    assert len(set(map(int, equal))) == 1, "equal passages have one number"
    head(HeadInputs.of(network, batch, batch.targets["it"])).loss.backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_what_does_not_fit_is_refused() -> None:
    objective = contrast()
    _, made, _ = read_by("text", objective)
    with pytest.raises(WorkbenchError, match="sample '2' has these sequences: 1 query; needed is one of each role"):
        objective.corrupt([s for s in made if s.key != "2" or s.role == "query"], DRAWS)
    with pytest.raises(WorkbenchError, match="name two different streams"):
        contrast(roles=False)
    with pytest.raises(WorkbenchError, match="set size"):
        contrast(activation="tanh")
    with pytest.raises(WorkbenchError, match="bias: true is that of a projection"):
        contrast(bias=True)
    with pytest.raises(WorkbenchError, match=r"logit_bias = .* is that of the sigmoid loss"):
        contrast(logit_bias=-1.0)
    with pytest.raises(WorkbenchError, match="no directions"):
        contrast(loss="sigmoid", directions="forward")
    hard = contrast(hard=1)
    _, made, _ = read_by("text", hard)
    for sequence in made:
        if sequence.role == "negative":
            sequence.streams["text"] = {name: values[:0] for name, values in sequence.streams["text"].items()}
    with pytest.raises(WorkbenchError, match="has no rows in 'text' as its negative"):
        hard.corrupt(made, DRAWS)
    with pytest.raises(WorkbenchError, match="roles: true"):
        contrast(query="a", passage="b", roles=False, hard=1)
