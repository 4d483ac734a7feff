"""SimKGC: what is asked of a triple, the loss by a loop, and the scores of questions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kg.graph.store import GraphStore
from kg.objectives.simkgc import Simkgc, SimkgcHead
from kg.sequences.builders.described_triple import DescribedTripleBuilder
from tests.contracts.material import VOCABULARY, draws, tokenizer
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

EXCUSED = "its sequences are descriptions of entities, which the samples of the contracts don't have"
WORDS = VOCABULARY.split()
TRIPLES = [("Q0", "P1", "Q1"), ("Q0", "P1", "Q2"), ("Q3", "P2", "Q3"), ("Q4", "P1", "Q0"), ("Q3", "P2", "Q1")]


@pytest.fixture
def graph(tmp_path: Path) -> GraphStore:
    texts = {f"Q{i}": {"label": WORDS[i], "description": " ".join(WORDS[i : i + 4])} for i in range(6)}
    return GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=texts, relation_labels={"P1": WORDS[9]})


def simkgc(graph: GraphStore, **options: Any) -> Simkgc:
    objective = Simkgc(graph, **options)
    objective.name = "it"
    return objective


def read(graph: GraphStore, objective: Simkgc) -> tuple[list[Sample], list[Sequence]]:
    rows: dict[str, list[dict[str, str]]] = {}
    for head, relation, tail in TRIPLES:
        rows.setdefault(head, []).append({"relation": relation, "tail": tail})
    samples = [{"key": head, "draw": (0, i), "id": head, "triples": of} for i, (head, of) in enumerate(rows.items())]
    arranged = objective.arrange(samples, draws())
    made = DescribedTripleBuilder(tokenizer(), 40, graph, named=True)(arranged, draws())
    objective.corrupt(made, draws())
    return arranged, made


def network() -> Network:
    torch.manual_seed(0)
    options = {"embedding": "token", "hidden_size": 16, "max_positions": 64, "dropout": 0.0}
    layer = {"layer": "self", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    streams, layers = {"text": options, "answer": options}, [{**layer, "stream": name} for name in ("text", "answer")]
    return Network(NetworkSpec(streams, layers, init_range=0.3), vocab_size=tokenizer().vocab_size)


def ids(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text).ids.tolist()
    return found


def test_a_triple_is_asked_both_ways(graph: GraphStore) -> None:
    _, made = read(graph, simkgc(graph))
    query, passage, alone, other, *_ = made
    assert [s.role for s in made[:6]] == ["query", "passage", "self"] * 2
    text = {f"Q{i}": f"{WORDS[i]}: {' '.join(WORDS[i : i + 4])}" for i in range(6)}
    end = tokenizer().id("sep")
    assert query.streams["text"]["input_ids"].tolist()[1:] == [*ids(text["Q0"]), end, *ids(WORDS[9]), end]
    assert passage.streams["answer"]["input_ids"].tolist()[1:-1] == ids(text["Q1"])
    assert alone.streams["answer"]["input_ids"].tolist()[1:-1] == ids(text["Q0"])
    inverse = [*ids(text["Q1"]), end, *ids(f"inverse {WORDS[9]}"), end]
    assert other.streams["text"]["input_ids"].tolist()[1:] == inverse
    assert query.targets["it"]["ids"].tolist() == [[0, 0, 1]]
    assert other.targets["it"]["ids"].tolist() == [[1, 1, 0]]


def by_a_loop(embedded: dict[str, Tensor], scale: float, margin: float) -> float:
    """As the released code reads: known answers are hidden in both directions, the self negative where it is one."""
    asked = [tuple(row) for row in embedded["pair_id"].tolist()]
    rows = {name: int(name[1]) for name in (f"Q{i}" for i in range(6))}
    known = {(rows[h], 2 * int(r == "P2"), rows[t]) for h, r, t in TRIPLES}
    known |= {(t, r + 1, h) for h, r, t in known}
    q, p, own = (embedded[name].double() for name in ("query", "passage", "self"))
    n, total = len(asked), 0.0

    def score(i: int, j: int) -> float:
        return scale * (float(q[i] @ p[j]) - margin * (i == j))

    def hidden(i: int, j: int) -> bool:
        return i != j and ((*asked[i][:2], asked[j][2]) in known or asked[i][2] == asked[j][2])

    for i in range(n):
        forward = [score(i, j) for j in range(n) if not hidden(i, j)]
        if (*asked[i][:2], asked[i][0]) not in known:
            forward.append(scale * float(q[i] @ own[i]))
        backward = [score(j, i) for j in range(n) if not hidden(j, i)]
        total += sum(math.log(sum(map(math.exp, scores))) - score(i, i) for scores in (forward, backward)) / 2
    return total


@pytest.mark.parametrize("size", [None, 8])
def test_the_loss_is_the_loop(graph: GraphStore, size: int | None) -> None:
    objective = simkgc(graph, size=size)
    _, made = read(graph, objective)
    batch, net = collate(made), network()
    head = objective.head(net)
    assert isinstance(head, SimkgcHead)
    embedded = head.embed(HeadInputs.of(net, batch, batch.targets["it"]))
    assert embedded["query"].shape == (10, size or 16)
    found = head.loss(embedded, slice(None))
    assert float(found.loss.detach()) == pytest.approx(by_a_loop(embedded, 1 / 0.05, 0.02), rel=1e-5)
    halves = [head.loss(embedded, own).loss for own in (slice(0, 4), slice(4, 10))]
    torch.testing.assert_close(halves[0] + halves[1], found.loss)
    found.loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in [*net.parameters(), *head.parameters()])


def test_known_answers_of_other_questions_are_no_negatives(graph: GraphStore) -> None:
    head = simkgc(graph).head(network())
    assert isinstance(head, SimkgcHead)
    vectors = F.normalize(torch.randn(3, 16), dim=-1)
    pairs = torch.tensor([[0, 0, 1], [0, 0, 2], [5, 0, 4]])
    hidden = head.ignored({"pair_id": pairs, "query": vectors}, slice(None), backward=False)
    assert hidden.tolist() == [[False, True, False], [True, False, False], [False, False, False]]
    assert head.ignored_self(torch.tensor([[3, 2, 1], [0, 0, 1]])).tolist() == [True, False], "Q3 P2 Q3 is stated"
