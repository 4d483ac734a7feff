"""Triples before a text, by its links and by its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.sequences.branches import BranchOptions
from kg.sequences.transforms.triple_prompt import TriplePromptTransform
from tests.contracts.cases import TransformCase
from tests.contracts.material import CITIES, draws, tokenizer
from tests.kg.sequences.transforms.test_sentence_tree import Few
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sequence, Span, text_fields

PUT = {"positions": "a text comes after its prompt"}
CASES = {
    "": TransformCase({"graph": Few(), "max_length": 64}, PUT),
    "drawn": TransformCase(
        {"graph": Few(), "max_length": 64, "triples": {"sampling": "random", "most": 1}},
        {**PUT, "seed": "its triples are drawn"},
    ),
    "short": TransformCase({"graph": Few(), "max_length": 12}, PUT),
}
WORDS, RIVERS = tokenizer(), ("long river", "old river", "market river")
THIRD, FOURTH = CITIES[2:4]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    """Towns and the rivers they lie by; every town has one fact."""
    records = [
        {"id": f"Q{n}", "label": town, "triples": [{"relation": "P1", "relation_text": "lies by", "tail": f"R{n % 3}"}]}
        for n, town in enumerate(CITIES[:6])
    ]
    records += [{"id": f"R{n}", "label": river, "triples": []} for n, river in enumerate(RIVERS)]
    return GraphStore.from_records(records, tmp_path_factory.mktemp("graph") / "towns")


def sequence(text: str, spans: list[Span] = [], rank: bool = False, **more: Any) -> Sequence:  # noqa: B006
    ids = WORDS.encode(text).ids
    whole = np.concatenate([[WORDS.id("cls")], ids, [WORDS.id("sep")]])
    fields = text_fields(whole, special=np.isin(np.arange(len(whole)), [0, len(whole) - 1]))
    if rank:
        fields["rank"] = np.arange(len(whole), dtype=np.int64)
    return Sequence({"text": fields}, (0,), "s", spans=spans, **more)


def read(transform: TriplePromptTransform, given: Sequence) -> str:
    (found,) = transform([given], draws())
    return WORDS.decode(found.streams["text"]["input_ids"][1:-1].tolist())


def prompt(graph: GraphStore, **options: Any) -> TriplePromptTransform:
    return TriplePromptTransform(**{"graph": graph, "tokenizer": WORDS, "max_length": 64, **options})


def spelt(text: str) -> str:
    return WORDS.decode(WORDS.encode(text).ids.tolist())


def test_the_triples_of_linked_mentions_come_first(graph: GraphStore) -> None:
    given = sequence(f"{THIRD} has boats .", [Span(1, 2, "Q2")], rank=True)
    (found,) = prompt(graph)([given], draws())
    text = found.streams["text"]
    assert WORDS.decode(text["input_ids"][1:-1].tolist()) == spelt(f"{THIRD} lies by {RIVERS[2]} . {THIRD} has boats .")
    assert text["position_ids"].tolist() == text["rank"].tolist() == list(range(len(text["rank"])))
    added = len(text["rank"]) - given.length("text")
    assert text["taken"].nonzero()[0].tolist() == list(range(1, 1 + added))
    assert found.spans == [Span(1 + added, 2 + added, "Q2")]


def test_words_retrieve_triples_without_links(graph: GraphStore) -> None:
    by_words = prompt(graph, by="words", triples=BranchOptions(most=1))
    assert not by_words.reads_spans
    assert read(by_words, sequence(f"{FOURTH} has boats .")) == spelt(
        f"{FOURTH} lies by {RIVERS[0]} . {FOURTH} has boats ."
    )
    assert read(by_words, sequence("nothing")) == spelt("nothing")
    assert by_words.take_dropped() == {"texts that no triple is like": 1}


def test_what_is_to_be_masked_retrieves_nothing(graph: GraphStore) -> None:
    """Only the slot names the river, so that it may not choose the triples."""
    size = len(WORDS.encode(f"{RIVERS[0]}"))
    given = sequence(f"{RIVERS[0]} .", mask_spans=[Span(1, 1 + size, "")])
    assert read(prompt(graph, by="words", end="!"), given) == spelt(f"{RIVERS[0]} .")
    named = sequence(f"{THIRD} .", [Span(1, 2, "Q2")], mask_spans=[Span(1, 2, "")])
    assert read(prompt(graph), named) == spelt(f"{THIRD} .")


@pytest.mark.parametrize("by", ["links", "words"])
def test_controls_change_the_triples(graph: GraphStore, by: Any) -> None:
    def under(control: str | None) -> str:
        options = {"by": by, "triples": BranchOptions(most=1), "control": control}
        return read(prompt(graph, **options), sequence(f"{THIRD} .", [Span(1, 2, "Q2")]))

    assert under(None) == spelt(f"{THIRD} lies by {RIVERS[2]} . {THIRD} .")
    assert under("no-kg") == spelt(f"{THIRD} .")
    blank = prompt(graph, by=by, triples=BranchOptions(most=1), control="mentions-only")
    (masked,) = blank([sequence(f"{THIRD} .", [Span(1, 2, "Q2")])], draws())
    ids = masked.streams["text"]["input_ids"].tolist()
    assert ids[1] == WORDS.id("mask")
    assert len(ids) == 1 + sequence(f"{THIRD} .").length("text")
    for control in ("shuffled-kg", "random-entities"):
        assert under(control) in {spelt(f"{THIRD} lies by {river} . {THIRD} .") for river in RIVERS[:2]}


def test_whole_triples_are_left_out(graph: GraphStore) -> None:
    given = sequence(f"{THIRD} {FOURTH} .", [Span(1, 2, "Q2"), Span(2, 3, "Q3")])
    room = given.length("text") + len(WORDS.encode(f"{THIRD} lies by {RIVERS[2]} ."))
    short = prompt(graph, max_length=room)
    assert read(short, given) == spelt(f"{THIRD} lies by {RIVERS[2]} . {THIRD} {FOURTH} .")
    assert short.take_dropped() == {"triples over max_length": 1}
    assert short.take_used() == {"triples": 1}


def test_drawn_triples_cannot_be_retrieved(graph: GraphStore, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="leave sampling and direction out"):
        prompt(graph, by="words", triples=BranchOptions(sampling="random"))
