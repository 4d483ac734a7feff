"""The builder `kg.graph_triple`: the texts are the graph's, the segments KG-BERT's."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest

from kg.graph.store import GraphStore
from kg.sequences.builders.described_triple import DescribedTripleBuilder
from kg.sequences.builders.graph_triple import GraphTripleBuilder
from tests.contracts.cases import BuilderCase
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws

DESCRIBED = {f"k{i}": {"label": "river"} for i in range(9)}
DESCRIBED |= {"Q2": {"label": "Hamburg", "description": "every other city near water"}, "bare": {}}
GRAPH = GraphStore.build(
    [("k0", "P1", "Q2")], Path(mkdtemp()) / "graph", entity_texts=DESCRIBED, relation_labels={"P1": "flows past"}
)
CASES = {
    "": BuilderCase({"graph": GRAPH}, excused={"small": "triples make its sequences"}),
    "related": BuilderCase(
        {"graph": GRAPH, "relation": False, "text": "description"}, excused={"small": "triples make its sequences"}
    ),
}
SAMPLE = {"key": "a", "draw": (0,), "id": "k0", "triples": [{"relation": "P1", "tail": "Q2"}]}


def read(**options: object) -> tuple[str, list[int], list[tuple[int, int, str]]]:
    """The tokens, the segment types, and the spans."""
    options = {"max_length": 64, **options}
    [sequence] = GraphTripleBuilder(tokenizer(), graph=GRAPH, **options)([SAMPLE], Draws(0, "task", number=()))  # type: ignore[arg-type]
    text = sequence.streams["text"]
    spans = [(span.start, span.end, span.entity) for span in sequence.spans]
    tokens = tokenizer().backend.decode(text["input_ids"].tolist(), skip_special_tokens=False)
    return tokens, text["token_type_ids"].tolist(), spans


def test_a_triple_has_three_segments() -> None:
    tokens, types, spans = read()
    assert tokens.lower() == "[cls] river [sep] flows past [sep] hamburg [sep]"
    relation = types.count(1)
    assert types == [0] * (spans[0][1] + 1) + [1] * relation + [0] * (len(types) - relation - spans[0][1] - 1)
    assert [entity for *_, entity in spans] == ["k0", "Q2"]


def test_without_the_relation_there_are_two() -> None:
    tokens, types, _ = read(relation=False, text="description")
    assert tokens.lower() == "[cls] river [sep] hamburg every other city near water [sep]"
    assert types == sorted(types)
    assert set(types) == {0, 1}


def test_the_longest_is_cut() -> None:
    whole, lengths = read(text="description")[1], []
    for max_length in (len(whole), len(whole) - 3):
        tokens, types, _ = read(text="description", max_length=max_length)
        lengths.append(len(types))
        assert tokens.lower().startswith("[cls] river [sep] flows past [sep] hamburg every other city")
    assert lengths == [len(whole), len(whole) - 3]


def test_a_user_is_refused() -> None:
    builder = GraphTripleBuilder(tokenizer(), 64, GRAPH)
    with pytest.raises(WorkbenchError, match="no entity 'Q9'"):
        builder([{**SAMPLE, "id": "Q9"}], Draws(0, "task", number=()))


def test_a_graph_without_descriptions_is_refused_where_they_are_read(tmp_path: Path) -> None:
    bare = GraphStore.build([("k0", "P1", "Q2")], tmp_path / "graph", entity_texts={"k0": {"label": "river"}})
    with pytest.raises(WorkbenchError, match=r"describes none of its 2 entities.*prepare triples .* --entities"):
        GraphTripleBuilder(tokenizer(), 64, bare, text="description")
    with pytest.raises(WorkbenchError, match="describes none"):
        DescribedTripleBuilder(tokenizer(), 64, bare)
    with pytest.raises(WorkbenchError, match="describes none"):
        DescribedTripleBuilder(tokenizer(), 64, GRAPH).reading(bare)
    GraphTripleBuilder(tokenizer(), 64, bare, text="label")
