"""Triples whose tail is asked for: the prompt is the triple up to its tail, for the builders of triples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kg.graph.store import GraphStore
from kg.sequences.builders.graph_triple import GraphTripleBuilder
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives._text import TripleContinuation
from workbench.objectives.clm import Clm
from workbench.sequences.builders.triple import TripleBuilder
from workbench.sequences.triple_text import TripleText

TEXTS = {"k0": {"label": "river"}, "Q2": {"label": "every other city"}}
FIELDS = ("input_ids", "position_ids", "token_type_ids", "rank")
DRAWS = Draws(0, "task", number=())


@pytest.fixture
def graph(tmp_path: Path) -> GraphStore:
    labels = {"P1": "flows past"}
    return GraphStore.build([("k0", "P1", "Q2")], tmp_path / "graph", entity_texts=TEXTS, relation_labels=labels)


def asked(builder: TripleText, text: str) -> tuple[TripleContinuation, dict[str, Any]]:
    """How the run continues, and the text stream of the prompt."""
    continuation = Clm().continuation(builder)
    assert isinstance(continuation, TripleContinuation)
    [prompt] = builder([continuation.arrange({"key": "1", "draw": (0,), "text": text})], DRAWS)
    continuation.prompt(prompt)
    return continuation, prompt.streams["text"]


@pytest.mark.parametrize("visibility", ["prefix", "causal"])
@pytest.mark.parametrize("kind", ["graph", "corpus"])
def test_a_prompt_and_its_tail_have_the_rows_of_training(graph: GraphStore, kind: str, visibility: Any) -> None:
    triple = {"relation": "P1", "tail": "Q2", "relation_text": "flows past", "tail_text": "every other city"}
    builder: TripleText
    if kind == "graph":
        builder, question = GraphTripleBuilder(tokenizer(), 64, graph, visibility=visibility), "k0\tP1"
    else:
        builder, question = TripleBuilder(tokenizer(), 64, visibility=visibility), "river\tflows past"
    [whole] = builder([{"key": "a", "draw": (0,), "id": "k0", "label": "river", "triples": [triple]}], DRAWS)
    learned = whole.streams["text"]
    continuation, text = asked(builder, question)
    row = {name: torch.tensor([int(text[name][-1])]) for name in FIELDS}
    size = len(text["input_ids"])
    assert 0 < size < len(learned["input_ids"]) - 1
    for place in range(size, len(learned["input_ids"])):
        row = continuation.next_rows(row, torch.tensor([int(learned["input_ids"][place])]))
        assert {name: int(of) for name, of in row.items()} == {name: int(learned[name][place]) for name in FIELDS}
    assert {name: text[name].tolist() for name in FIELDS} == {name: learned[name][:size].tolist() for name in FIELDS}


def test_the_relation_may_be_named_and_the_head_be_new(graph: GraphStore) -> None:
    builder = GraphTripleBuilder(tokenizer(), 64, graph, visibility="prefix")
    by_name, by_id = (asked(builder, f"a new river\t{name}")[1]["input_ids"] for name in ("flows past", "P1"))
    assert by_name.tolist() == by_id.tolist()


def test_a_wrong_question_is_refused(graph: GraphStore) -> None:
    builder = GraphTripleBuilder(tokenizer(), 64, graph, visibility="prefix")
    for text in ("k0", "k0\tP1\tQ2", "k0\t "):
        with pytest.raises(WorkbenchError, match=r"input '1' is .*allowed: the head and the relation .*by a tab"):
            asked(builder, text)
    with pytest.raises(WorkbenchError, match=r"unknown relation 'flows' in the graph .*flows past"):
        asked(builder, "k0\tflows")


def test_a_graph_read_in_both_directions_has_no_continuation(graph: GraphStore) -> None:
    with pytest.raises(WorkbenchError, match="in both directions"):
        asked(GraphTripleBuilder(tokenizer(), 64, graph), "k0\tP1")
