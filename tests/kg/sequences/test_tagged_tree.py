"""Tags of words in a sentence that has branches: those of the sentence, none of the branches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.sequences.transforms.sentence_tree import SentenceTreeTransform
from workbench.core.keyed import Draws
from workbench.evaluation.scoring.stated_tags import stated_tags
from workbench.objectives.token_classification import TokenClassification
from workbench.sequences.builders.tagged_text import TaggedTextBuilder
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer, train_tokenizer

DRAWS = Draws("t", number=(0,))
TEXT = "头 痛 三 天 , 伴 发 热"
TAGS = ["B-s", "I-s", "O", "O", "O", "O", "B-s", "I-s"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer([TEXT + " 类 别 症 状 病 重"], vocab_size=200))


@pytest.fixture
def graph(tmp_path: Path) -> GraphStore:
    texts = {name: {"label": name} for name in ("头痛", "发热", "症状", "重病")}
    triples = [("头痛", "类别", "症状"), ("头痛", "类别", "重病"), ("发热", "类别", "症状")]
    return GraphStore.build(triples, tmp_path / "graph", entity_texts=texts)


def sequences(tokenizer: Tokenizer, graph: GraphStore | None, length: int = 40) -> list[Sequence]:
    places = [[i, i + 1] for i, sign in enumerate(TEXT) if sign != " "]
    tags = [[*place, tag] for place, tag in zip(places, TAGS, strict=True)]
    spans = [[0, 3, "头痛", 1.0], [12, 15, "发热", 1.0]]
    sample = {"key": "a", "draw": (0,), "text": TEXT, "tags": tags, "spans": spans}
    made = TaggedTextBuilder(tokenizer, length)([sample], DRAWS)
    if graph is not None:
        made = SentenceTreeTransform(graph, tokenizer, 80)(made, DRAWS)
    objective = TokenClassification(["O", "B-s", "I-s"])
    objective.name = "tag"
    objective.corrupt(made, DRAWS)
    return made


@pytest.mark.parametrize("length", [40, 6])
def test_only_words_of_the_sentence_are_read(tokenizer: Tokenizer, graph: GraphStore, length: int) -> None:
    """The same words with the same labels as without the graph, in windows too; their rows hold their tokens."""
    plain, grown = (sequences(tokenizer, each, length) for each in (None, graph))
    assert len(plain) == len(grown)
    branches = 0
    for before, after in zip(plain, grown, strict=True):
        for name in ("labels", "gold", "read", "places"):
            assert np.array_equal(before.targets["tag"][name], after.targets["tag"][name])
        rows, own = after.targets["tag"]["rows"].index, before.targets["tag"]["rows"].index
        text = after.streams["text"]
        assert np.array_equal(text["input_ids"][rows], before.streams["text"]["input_ids"][own])
        branch = text.get("branch", np.zeros(len(text["input_ids"]), np.int64))
        assert not branch[rows].any()
        branches += int((branch > 0).sum())
    assert branches


def test_what_the_graph_states_of_the_tags_is_a_baseline(tokenizer: Tokenizer, graph: GraphStore) -> None:
    """The linked mentions with their facts are a baseline: a class is the one that training texts give such facts."""

    def sample(key: str, *tags: tuple[int, int, str]) -> dict[str, Any]:
        return {"key": key, "text": TEXT, "spans": [[0, 3, "头痛", 1.0], [12, 15, "发热", 1.0]], "tags": [*tags]}

    def stated(run: Any, tested: list[dict[str, Any]]) -> list[int] | None:
        texts = sum("tags" in each for each in tested)
        places = torch.tensor([[i, i + 1] for i, sign in enumerate(TEXT) if sign != " "] * texts)
        made = {"places": places, "words": torch.tensor([8] * texts)}
        found = stated_tags(run, {"O": 0, "B-sign": 1, "I-sign": 2, "B-ill": 3}, made, tested)
        return None if found is None else found.tolist()

    trained = [
        sample("a", (0, 3, "sign")),
        sample("b", (0, 1, "B-sign"), (2, 3, "I-sign")),
        sample("c", (12, 15, "S-ill")),
    ]
    tested = [sample("d"), {**sample("e"), "spans": [[12, 15, "发热", 1.0]]}, {"key": "f", "text": "none"}]
    tree = SentenceTreeTransform(graph, tokenizer, 80)
    run = SimpleNamespace(task=SimpleNamespace(transforms=[tree]), trained_on=lambda: trained)
    assert tree.facts_of("头痛") == ["类别 症状", "类别 重病"]
    assert stated(run, tested) == [1, 2, 0, 0, 0, 0, 1, 2, *[0] * 6, 1, 2]
    only = SimpleNamespace(task=run.task, trained_on=lambda: trained[2:])
    assert stated(only, tested[:1]) == [3, 0, 0, 0, 0, 0, 3, 0], "no tag continues this class"
    assert stated(SimpleNamespace(task=run.task, trained_on=lambda: None), tested) is None
    blind = SentenceTreeTransform(graph, tokenizer, 80, control="no-kg")
    assert stated(SimpleNamespace(task=SimpleNamespace(transforms=[blind]), trained_on=list), tested) is None
    names = SentenceTreeTransform(graph, tokenizer, 80, control="mentions-only")
    assert (names.facts_of("头痛"), names.facts_of("症状")) == ([""], []), "that there is a branch, and no more"
