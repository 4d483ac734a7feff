"""Which supersenses a token may have, and the file of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.lexicons.supersense_table import SupersenseTable, find_supersenses, read_supersenses, save_supersenses
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.text.tokenizer import Tokenizer, train_tokenizer

WORDS = "barks bark boats leaves leaf leave about cat river old unseenword barking"
ENTITIES = {
    "1-n": {"label": "bark", "types": ["noun.plant"]},
    "2-v": {"label": "Bark", "aliases": ["bay"], "types": ["verb.communication"]},
    "3-n": {"label": "vessel", "aliases": ["boat"], "types": ["noun.artifact"]},
    "4-n": {"label": "leaf", "types": ["noun.plant"]},
    "5-v": {"label": "leave", "types": ["verb.motion"]},
    "6-r": {"label": "about", "types": ["adv.all"]},
    "7-n": {"label": "cat", "types": ["noun.animal"]},
    "8-n": {"label": "ing", "types": ["noun.act"]},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    return GraphStore.build([], tmp_path_factory.mktemp("wordnet") / "graph", entity_texts=ENTITIES)


@pytest.fixture(scope="module")
def cut() -> Tokenizer:
    return Tokenizer(train_tokenizer([WORDS] * 9, "wordpiece", 200))


def test_a_word_has_the_classes_of_all_it_may_be_a_form_of(graph: GraphStore, cut: Tokenizer) -> None:
    found = find_supersenses(graph, cut)
    assert found.classes == sorted({entity["types"][0] for entity in ENTITIES.values()})

    def senses(word: str) -> set[str]:
        (token,) = cut.encode(word).ids.tolist()
        return {found.classes[i] for i in np.flatnonzero(found.allowed[token])}

    assert senses("bark") == senses("barks") == {"noun.plant", "verb.communication"}
    assert senses("barking") == {"verb.communication"}
    assert senses("boats") == {"noun.artifact"}
    assert senses("leaves") == {"noun.plant", "verb.motion"}  # of a leaf, and of to leave
    assert senses("about") == set()  # a stop word
    assert senses("cat") == set()  # too short
    assert senses("unseenword") == set()
    pieces = [token for text, token in cut.vocabulary.items() if text.startswith("##")]
    assert pieces
    assert not found.allowed[pieces].any()  # parts of words
    assert not found.allowed[cut.special_ids].any()


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    allowed = np.random.default_rng(0).random((tokenizer().vocab_size, 3)) < 0.3
    path = tmp_path / "senses.json"
    save_supersenses(path, SupersenseTable(["a", "b", "c"], allowed), tokenizer().identity, {"by": "test"})
    again = read_supersenses(path, tokenizer())
    assert again.classes == ["a", "b", "c"]
    np.testing.assert_array_equal(again.allowed, allowed)


def test_what_is_no_such_file_is_refused(tmp_path: Path, cut: Tokenizer) -> None:
    path = tmp_path / "senses.json"
    with pytest.raises(WorkbenchError, match=r"No such file.*; `workbench prepare supersenses"):
        read_supersenses(path, tokenizer())
    for text in ("{", "[]", '{"kind": "token counts"}'):
        path.write_text(text)
        with pytest.raises(WorkbenchError, match="holds no supersenses"):
            read_supersenses(path, tokenizer())
    save_supersenses(path, SupersenseTable(["a"], np.ones((tokenizer().vocab_size, 1), bool)), tokenizer().identity, {})
    with pytest.raises(WorkbenchError, match="of another tokenizer's tokens"):
        read_supersenses(path, cut)
    reported = json.loads(path.read_text())
    for damaged in ({"allowed": {"1": [1]}}, {"allowed": {"99999": [0]}}, {"allowed": []}, {"classes": None}):
        path.write_text(json.dumps(reported | damaged))
        with pytest.raises(WorkbenchError, match="is damaged"):
            read_supersenses(path, tokenizer())


def test_a_graph_without_types_or_of_other_words_is_refused(tmp_path: Path, cut: Tokenizer) -> None:
    bare = GraphStore.build([("a", "r", "b")], tmp_path / "bare")
    with pytest.raises(WorkbenchError, match="has no types"):
        find_supersenses(bare, cut)
    other = GraphStore.build([], tmp_path / "other", entity_texts={"1": {"label": "zebra", "types": ["noun.animal"]}})
    with pytest.raises(WorkbenchError, match="no token of the vocabulary is a word"):
        find_supersenses(other, cut)


def test_controls_take_the_supersenses_or_their_truth_away() -> None:
    rng = np.random.default_rng(0)
    allowed = rng.random((300, 6)) < 0.15
    senses = SupersenseTable([f"noun.{i}" for i in range(6)], allowed)
    assert senses.under(None, 0) is senses
    assert not senses.under("no-kg", 0).allowed.any()
    shuffled = senses.under("shuffled-kg", 7).allowed
    words = allowed.any(1)
    np.testing.assert_array_equal(shuffled.any(1), words)
    np.testing.assert_array_equal(np.sort(shuffled @ (1 << np.arange(6))), np.sort(allowed @ (1 << np.arange(6))))
    assert not (shuffled == allowed)[words].all(1).any(), "no word keeps its own"
    np.testing.assert_array_equal(senses.under("shuffled-kg", 7).allowed, shuffled)
    assert (senses.under("shuffled-kg", 8).allowed != shuffled).any()
    one = SupersenseTable(["noun.act"], np.array([[True], [False], [True]]))
    np.testing.assert_array_equal(one.under("shuffled-kg", 0).allowed, one.allowed, "nothing else is there")
