"""K-BERT's sentence tree against the released injection, and the transform on sequences."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from kg.graph.entity_facts import Fact
from kg.graph.store import GraphStore
from kg.sequences.branches import BranchOptions
from kg.sequences.transforms.sentence_tree import SentenceTreeTransform
from kg.sequences.tree import BranchedMention, fit, plant
from tests.contracts.cases import TransformCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.attention.visibility import visible
from workbench.sequences.rows import take
from workbench.sequences.sequence import Mark, Rows, Sequence, Span, text_fields


class Few:
    """A graph of three triples."""

    def __contains__(self, entity: object) -> bool:
        return entity in ("Q1", "Q2", "Q3")

    def facts(self, entity: str, direction: str, relations: object) -> list[Fact]:
        triples = {"Q1": [("P1", "Q2"), ("P2", "Q3")], "Q2": [("P1", "Q1")]}.get(entity, [])
        return [Fact(relation, tail, False) for relation, tail in triples]

    def name_of(self, entity: str) -> str:
        return {"Q2": "boats", "Q3": "old songs", "P1": "past"}.get(entity, "about")

    relation_label = name_of


CASES = {
    "": TransformCase({"graph": Few(), "max_length": 64}),
    "drawn": TransformCase(
        {"graph": Few(), "max_length": 64, "triples": {"sampling": "random", "most": 1}},
        {"seed": "its triples are drawn"},
    ),
    "flat": TransformCase({"graph": Few(), "max_length": 12, "visible_matrix": False}),
    "cut": TransformCase(
        {"graph": Few(), "max_length": 8, "overflow": "cut"},
        {"keeps": "the released code's rule cuts the sentence's tail"},
    ),
}


TRIPLES = {
    "Q1": [("P1", "Q2"), ("P2", "Q3"), ("P1", "Q2"), ("P3", "Q4")],
    "Q2": [("P1", "Q1")],
    "Q9": [],
}


MASK = 99


class Words:
    """A tokenizer whose tokens are the blank-separated words."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.vocabulary.setdefault(word, 100 + len(self.vocabulary)) for word in text.split()]

    def id(self, role: str) -> int:
        return {"mask": MASK}[role]

    def encode_batch(self, texts: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(ids=np.array(self.encode(text))) for text in texts]


class Graph:
    def __init__(self, triples=TRIPLES, shift: str = "") -> None:
        self.triples, self.shift = triples, shift

    def __contains__(self, entity):
        return entity in self.triples

    def facts(self, entity, direction, relations):
        return [Fact(relation, tail, False) for relation, tail in self.triples.get(entity, [])]

    def name_of(self, entity):
        return f"{entity}{self.shift} x"

    relation_label = name_of

    def under(self, control, seed):
        return Graph(self.triples, shift=f"shuffled{seed}") if control == "shuffled-kg" else self


def sequence(length: int, spans: list[tuple[int, int, str]]) -> Sequence:
    fields = text_fields(np.arange(1, length + 1), special=np.arange(length) == 0)
    return Sequence({"text": fields}, (0,), "k", [Span(*span) for span in spans])


def grown(transform: SentenceTreeTransform, *sequences: Sequence) -> list[Sequence]:
    return transform(list(sequences), Draws("t", number=(0,)))


def test_injection_equals_the_release(shared: Path) -> None:
    folder = shared / "golden/kbert/injection"
    given = json.loads((folder / "inputs.json").read_text())
    matrices = load_file(folder / "outputs.safetensors")
    records = json.loads((folder / "outputs.json").read_text())
    assert len(records) == len(matrices) > 0
    for record in records:
        language = given[record["language"]]
        split = list if language["unit"] == "character" else str.split
        words = Words()

        def tokens(segment: str, split=split, words=words) -> list[int]:
            pieces = [segment] if segment in given["special_tokens"] else split(segment)
            return [words.encode(piece)[0] for piece in pieces]

        trunk: list[int] = []
        mentions = []
        for segment in language["sentences"][record["sentence_index"]]:
            found = [(p, o) for s, p, o in language["triples"] if s == segment]
            branches = list(dict.fromkeys((p if record["use_predicate"] else "", o) for p, o in found))
            start = len(trunk)
            trunk += tokens(segment)
            ids = tuple((*tokens(p), *tokens(o)) for p, o in branches[: record["max_entities"]])
            mentions.append(BranchedMention(start, len(trunk), ids))
        length = record["max_length"]
        tree = Sequence({"text": text_fields(np.array(trunk))}, (0,))
        plant(tree, mentions)
        take(tree, np.arange(min(length, tree.length("text"))))
        text = tree.streams["text"]
        rows = len(text["input_ids"])
        names = {number: word for word, number in words.vocabulary.items()}
        assert [names[i] for i in text["input_ids"]] + ["[PAD]"] * (length - rows) == record["tokens"]
        assert [*text["position_ids"], *[length - 1] * (length - rows)] == record["soft_positions"]
        assert [*(text["branch"] > 0), *[0] * (length - rows)] == record["branch_mask"]
        integers = {"branch": torch.from_numpy(text["branch"]), "anchor": torch.from_numpy(text["anchor"])}
        seen = visible(integers, integers)
        assert seen is not None
        assert np.array_equal(seen.numpy(), matrices[record["id"]][:rows, :rows].astype(bool)), record["id"]


def test_as_many_triples_are_read_as_in_the_release(shared: Path) -> None:
    stated = json.loads((shared / "golden/kbert/injection/config.json").read_text())
    assert BranchOptions().most == stated["default_max_entities"]


def test_step_sets_every_field() -> None:
    words = Words()
    (tree,) = grown(SentenceTreeTransform(Graph(), words, 64), sequence(6, [(1, 3, "Q1"), (4, 5, "Q2")]))
    text = tree.streams["text"]
    first, second, third = (words.encode(t) for t in ("P1 x Q2 x", "P2 x Q3 x", "P1 x Q1 x"))
    assert text["input_ids"].tolist() == [1, 2, 3, *first, *second, 4, 5, *third, 6]
    assert text["position_ids"].tolist() == [0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8, 5]
    assert text["branch"].tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 3, 3, 3, 3, 0]
    assert text["anchor"].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 2, 2, 2, 2, 0]
    assert text["taken"].tolist() == [b > 0 for b in text["branch"]]
    assert text["word_ids"].tolist() == [0, 1, 2, *[-1] * 8, 3, 4, *[-1] * 4, 5]
    assert text["special"].tolist() == [True, *[False] * 17]
    assert [(s.start, s.end) for s in tree.spans] == [(1, 3), (12, 13)]


def test_objects_alone_and_distinct_triples() -> None:
    words = Words()
    transform = SentenceTreeTransform(Graph(), words, 64, triples=BranchOptions(most=3, predicate=False))
    (tree,) = grown(transform, sequence(3, [(1, 2, "Q1")]))
    objects = [i for text in ("Q2 x", "Q3 x", "Q4 x") for i in words.encode(text)]
    assert tree.streams["text"]["input_ids"].tolist() == [1, 2, *objects, 3]


def test_branches_are_left_out_from_the_last_mention_on() -> None:
    transform = SentenceTreeTransform(Graph(), Words(), 6 + 9)
    (tree,) = grown(transform, sequence(6, [(1, 2, "Q1"), (4, 5, "Q2")]))
    assert tree.streams["text"]["branch"].tolist() == [0, 0, *[1] * 4, *[2] * 4, 0, 0, 0, 0]
    assert transform.take_dropped() == {"branches over max_length": 1}
    (longer,) = grown(transform, sequence(20, [(1, 2, "Q1")]))
    assert longer.length("text") == 20


def test_cut_is_the_release_and_counts_what_is_lost() -> None:
    transform = SentenceTreeTransform(Graph(), Words(), 8, overflow="cut")
    source = sequence(6, [(1, 2, "Q1"), (4, 5, "Q2")])
    source.streams["entity"] = {
        "entity_ids": np.array([0, 3, 4]),
        "token": Rows("text", np.array([0, 1, 4]), bound=True),
    }
    (tree,) = grown(transform, source)
    assert tree.length("text") == 8
    assert [s.entity for s in tree.spans] == ["Q1"]
    assert tree.streams["entity"]["token"].index.tolist() == [0, 1]
    assert transform.take_dropped() == {"branch tokens cut": 6, "sentence tokens cut": 4}


def test_entity_rows_follow_their_tokens() -> None:
    source = sequence(5, [(1, 2, "Q2"), (3, 4, "Q2")])
    source.streams["entity"] = {
        "entity_ids": np.array([0, 7, 7]),
        "token": Rows("text", np.array([0, 1, 3]), bound=True),
    }
    (tree,) = grown(SentenceTreeTransform(Graph(), Words(), 64), source)
    assert tree.streams["entity"]["token"].index.tolist() == [0, 1, 7]
    assert tree.streams["text"]["input_ids"][[1, 7]].tolist() == [2, 4]


def test_controls() -> None:
    source = sequence(4, [(1, 2, "Q2")])
    assert grown(SentenceTreeTransform(Graph(), Words(), 64, control="no-kg"), source.copy())[0].length("text") == 4
    words = Words()
    (shuffled,) = grown(SentenceTreeTransform(Graph(), words, 64, control="shuffled-kg", seed=3), source.copy())
    assert "Q1shuffled3" in words.vocabulary
    (plain,) = grown(SentenceTreeTransform(Graph(), Words(), 64, control="question-only"), source.copy())
    assert plain.length("text") == shuffled.length("text") == 8
    (flat,) = grown(SentenceTreeTransform(Graph(), Words(), 64, visible_matrix=False), source.copy())
    assert not flat.streams["text"].get("branch", np.zeros(1)).any()
    assert np.array_equal(flat.streams["text"]["position_ids"], plain.streams["text"]["position_ids"])
    assert flat.streams["text"]["taken"].sum() == 4
    for spans, added in (([(1, 2, "Q2")], 1), ([(1, 2, "Q9")], 0)):
        (empty,) = grown(SentenceTreeTransform(Graph(), Words(), 64, control="mentions-only"), sequence(4, spans))
        assert empty.streams["text"]["input_ids"].tolist() == [1, 2, *[MASK] * added, 3, 4]


def test_every_entity_has_the_triples_of_another(tmp_path: Path) -> None:
    """Whole, so that not even its relations are its own; what has none gets none."""
    triples = [(f"Q{i}", f"P{i}", f"Q{i + 10}") for i in range(5)]
    store = GraphStore.build(triples, tmp_path / "graph")
    transform = SentenceTreeTransform(store, Words(), 64, control="random-entities", seed=1)
    assert transform.branches is not None
    reported = {
        e: [(fact.relation, fact.other) for fact in transform.branches.graph.facts(e, "out", None)] for e in store.ids
    }
    facts = [*map(tuple, reported.values())]
    assert sorted(sum(facts, ())) == sorted((r, t) for _, r, t in triples)
    assert not any((r, t) in reported[h] for h, r, t in triples)
    assert not any(reported[f"Q{i + 10}"] for i in range(5))
    again = pickle.loads(pickle.dumps(transform)).branches.graph
    assert [(fact.relation, fact.other) for fact in again.facts("Q3", "out", None)] == reported["Q3"]
    assert transform.known_entities().same(SentenceTreeTransform(store, Words(), 64).known_entities())


def test_overlapping_and_unknown_mentions_are_counted() -> None:
    transform = SentenceTreeTransform(Graph(), Words(), 64)
    (tree,) = grown(transform, sequence(7, [(1, 4, "Q2"), (1, 2, "Q1"), (3, 5, "Q2"), (5, 6, "Q9"), (6, 7, "Q64")]))
    assert tree.streams["text"]["branch"].max() == 1
    lost = {"overlapping mentions": 2, "mentions without triples": 1, "entities not in the graph": 1}
    assert transform.take_dropped() == lost
    assert transform.take_used() == {"mentions": 1, "branches": 1}
    assert transform.take_used() == transform.take_dropped() == {}


def test_stretches_and_mention_of_the_evaluation_follow_their_tokens() -> None:
    source = sequence(7, [(1, 2, "Q2"), (4, 6, "Q1")])
    source.mask_spans = [Span(4, 6, "Q1")]
    source.marks = [Mark("mention", 3, 5)]
    transform = SentenceTreeTransform(Graph(), Words(), 64)
    (tree,) = grown(transform, source)
    assert [(s.start, s.end) for s in tree.mask_spans] == [(8, 10)]
    assert tree.marks == [Mark("mention", 7, 9)]
    assert tree.streams["text"]["branch"].max() == 1
    assert transform.take_dropped() == {"mentions to be masked": 1}
    assert transform.take_dropped() == {}


def test_sequence_without_mentions_is_untouched() -> None:
    source = sequence(4, [])
    assert grown(SentenceTreeTransform(Graph(), Words(), 64), source)[0] is source


def test_fit_never_leaves_more_than_the_budget() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        mentions = [
            BranchedMention(i, i + 1, tuple((1,) * n for n in rng.integers(0, 4, rng.integers(0, 4)))) for i in range(5)
        ]
        every = [b for m in mentions for b in m.branches]
        budget = int(rng.integers(0, 20))
        kept = [b for m in fit(mentions, budget) for b in m.branches]
        assert kept == every[: len(kept)]
        assert sum(map(len, kept)) <= budget
        if len(kept) < len(every):
            assert sum(map(len, every[: len(kept) + 1])) > budget


def test_step_survives_pickling_and_refuses_nonsense() -> None:
    transform = pickle.loads(pickle.dumps(SentenceTreeTransform(Graph(), Words(), 64)))
    (tree,) = grown(transform, sequence(3, [(1, 2, "Q2")]))
    assert tree.length("text") == 7
    with pytest.raises(ValueError, match="branches already"):
        grown(transform, tree)
    spec = {
        "transform": "kg.sentence_tree",
        "graph": Graph(),
        "max_length": 64,
        "triples": {"most": 0},
    }
    with pytest.raises(WorkbenchError, match="most = 0; allowed: a whole number from 1"):
        build("transform", spec, tokenizer=Words())


@pytest.fixture
def towns(tmp_path: Path) -> Path:
    """Oslo -> Norway, Q99 (no label); Bergen and Q98 (no label) -> Norway."""
    triples = [("Q1", "P1", "Q99"), ("Q1", "P1", "Q2"), ("Q1", "P2", "Q3"), ("Q3", "P1", "Q2"), ("Q98", "P1", "Q2")]
    labels = [{"id": "Q1", "label": "Oslo"}, {"id": "Q2", "label": "Norway"}, {"id": "Q3", "label": "Bergen"}]
    GraphStore.build(triples, tmp_path / "graph", entity_texts=labels, relation_labels={"P1": "in", "P2": "near"})
    return tmp_path / "graph"


def injected(transform: SentenceTreeTransform, words: Words, entity: str, draw: int = 0) -> list[str]:
    """The branches of a mention of the entity, as text."""
    source = sequence(3, [(1, 2, entity)])
    source.draw = (draw,)
    text = grown(transform, source)[0].streams["text"]
    names = {number: word for word, number in words.vocabulary.items()}
    branches = text.get("branch", np.zeros(0))
    return [" ".join(names[i] for i in text["input_ids"][branches == b]) for b in range(1, int(branches.max()) + 1)]


def test_no_bare_id_is_injected(towns: Path) -> None:
    words = Words()
    transform = SentenceTreeTransform(str(towns), words, 64)
    assert injected(transform, words, "Q1") == ["in Norway", "near Bergen"]
    assert transform.take_dropped() == {"triples without a name": 1}
    assert injected(SentenceTreeTransform(str(towns), words, 64, triples=BranchOptions(unnamed="id")), words, "Q1") == [
        "in Q99",
        "in Norway",
    ]


def test_ids_are_names_where_the_graph_has_no_labels(tmp_path: Path) -> None:
    GraphStore.build([("dog", "is a", "animal")], tmp_path / "words")
    words = Words()
    assert injected(SentenceTreeTransform(str(tmp_path / "words"), words, 64), words, "dog") == ["is a animal"]


def test_incoming_triples_are_read_where_asked_for(towns: Path) -> None:
    words = Words()
    assert SentenceTreeTransform(str(towns), words, 64).branches.of("Q2").ids == ()
    inward = SentenceTreeTransform(str(towns), words, 64, triples=BranchOptions(direction="in"))
    assert injected(inward, words, "Q2") == ["Oslo in", "Bergen in"]
    assert injected(
        SentenceTreeTransform(str(towns), words, 64, triples=BranchOptions(direction="both")), words, "Q3"
    ) == [
        "in Norway",
        "Oslo near",
    ]
    objects = SentenceTreeTransform(
        str(towns), words, 64, triples=BranchOptions(direction="in", predicate=False, most=3)
    )
    assert injected(objects, words, "Q2") == ["Oslo", "Bergen"]
    assert objects.take_dropped() == {"triples without a name": 1}


def test_only_the_chosen_relations_are_read(towns: Path) -> None:
    words = Words()
    assert injected(
        SentenceTreeTransform(str(towns), words, 64, triples=BranchOptions(relations=["P2"])), words, "Q1"
    ) == ["near Bergen"]
    with pytest.raises(WorkbenchError, match=r"unknown relation 'P3'.*Valid: P1, P2"):
        SentenceTreeTransform(str(towns), words, 64, triples=BranchOptions(relations=["P3"]))


def test_triples_are_drawn_anew_and_the_same_for_the_same_draw(tmp_path: Path) -> None:
    GraphStore.build([("hub", "r", f"t{i}") for i in range(30)], tmp_path / "hub")
    words = Words()
    transform = SentenceTreeTransform(str(tmp_path / "hub"), words, 64, triples=BranchOptions(sampling="random"))
    drawn = [injected(transform, words, "hub", draw) for draw in range(40)]
    assert all(len(branches) == 2 for branches in drawn)
    assert len({branch for branches in drawn for branch in branches}) > 20
    again = SentenceTreeTransform(str(tmp_path / "hub"), words, 64, triples=BranchOptions(sampling="random"))
    assert [injected(again, words, "hub", draw) for draw in (7, 5)] == [drawn[7], drawn[5]]
