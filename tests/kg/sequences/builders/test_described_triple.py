"""Triples as descriptions: which sequences, of which role, and what is lost."""

from __future__ import annotations

from typing import Any

from kg.sequences.builders.described_triple import WITHOUT_TEXT, DescribedTripleBuilder
from kg.sequences.description_roles import CAST, CastMember
from tests.contracts.cases import BuilderCase
from tests.contracts.material import draws, tokenizer
from workbench.sequences.builder import TRUNCATED
from workbench.sequences.sequence import Sequence

SEP = tokenizer().id("sep")


class About:
    """A graph that writes the same about everything but what is named here."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def check_described(self) -> None:
        """It is."""

    def text_of(self, entity: str) -> str:
        return self.texts.get(entity, "the old river")

    def name_of(self, entity: str) -> str | None:
        return None

    def relation_label(self, relation: str) -> str:
        return "flows past"


CASE = BuilderCase({"graph": About()}, {"small": "triples make its sequences"})


def built(sample: dict[str, Any], max_length: int = 64, **texts: str) -> tuple[list[Sequence], DescribedTripleBuilder]:
    builder = DescribedTripleBuilder(tokenizer(), max_length, About(**texts))
    return builder([{"key": "a", "draw": (3,), **sample}], draws()), builder


def read(sequence: Sequence) -> str:
    return tokenizer().decode(sequence.streams["text"]["input_ids"].tolist())


def test_head_and_tail_are_a_group_for_each_triple() -> None:
    triples = [{"relation": "P1", "tail": "Q2"}, {"relation": "P1", "tail": "Q3"}]
    sequences, _ = built({"id": "Q1", "triples": triples}, Q1="boats", Q2="songs", Q3="winter")
    assert [(s.role, s.group, s.draw) for s in sequences] == [
        ("head", (3, 0), (3, 0, 0)),
        ("tail", (3, 0), (3, 0, 1)),
        ("head", (3, 1), (3, 1, 0)),
        ("tail", (3, 1), (3, 1, 1)),
    ]
    assert [read(s) for s in sequences] == ["boats", "songs", "boats", "winter"]


def test_a_relation_stands_behind_its_entity_or_alone() -> None:
    cast = [CastMember("head of relation", "Q1", "P1"), CastMember("relation", relation="P1")]
    (entity, relation), _ = built({CAST: cast, "labels": {"relation": 4}})
    assert read(entity) == "the old river flows past"
    assert read(relation) == "flows past"
    assert relation.labels == {"relation": 4}
    assert entity.streams["text"]["special"].sum() == 3


def test_what_is_too_long_keeps_its_beginning() -> None:
    parts = [
        CastMember("head of relation", "Q1", "P1"),
        CastMember("entity", "Q1"),
        CastMember("relation", relation="P1"),
    ]
    (both, entity, relation), builder = built({CAST: parts}, max_length=13, Q1="the old river " * 9)
    tokens, behind = (s.streams["text"]["input_ids"][1:-1].tolist() for s in (entity, relation))
    assert len(tokens) == 11
    lost = len(tokenizer().encode("the old river " * 9)) - len(tokens)
    room = 10 - min(5, len(behind))
    assert both.streams["text"]["input_ids"][1:-1].tolist() == [*tokens[:room], SEP, *behind[:5]]
    assert builder.take_dropped() == {TRUNCATED: 2 * lost + len(tokens) - room + max(0, len(behind) - 5)}


def test_triples_of_entities_without_a_text_are_left_out_and_counted() -> None:
    triples = [{"relation": "P1", "tail": "Q2"}, {"relation": "P1", "tail": "Q3"}]
    sequences, builder = built({"id": "Q1", "triples": triples}, Q2="")
    assert {s.group for s in sequences} == {(3, 1)}
    assert builder.take_dropped() == {WITHOUT_TEXT: 1}
