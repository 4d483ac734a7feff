"""The objective `kg.triple_classification`: its false triples are false; its logits are those of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.objectives.triple_classification import TripleClassification
from tests.contracts.material import plain
from tests.kg.evaluation.graph_world import NAMES, TRIPLES
from workbench.core.keyed import Draws

EXCUSED = "it reads triples, which the samples of the contracts don't have"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    described = {name: {"label": label} for name, label in NAMES.items()}
    return GraphStore.build(TRIPLES, tmp_path_factory.mktemp("graph") / "graph", entity_texts=described)


def samples() -> list[dict[str, Any]]:
    return [
        {"key": h, "draw": (n,), "id": h, "triples": [{"relation": r, "tail": t}]}
        for n, (h, r, t) in enumerate(TRIPLES)
    ]


def arranged(graph: GraphStore, negatives: int, seed: int = 0) -> list[dict[str, Any]]:
    return TripleClassification(graph, negatives).arrange(samples(), Draws(seed, "task", number=(0,)))


def named(sample: dict[str, Any]) -> tuple[str, str, str]:
    [fact] = sample["triples"]
    return sample["id"], fact["relation"], fact["tail"]


def test_false_triples_are_not_in_the_graph_and_differ_in_one_end(graph: GraphStore) -> None:
    made = arranged(graph, 3)
    assert [s["labels"]["triple"] for s in made] == ["true", "false", "false", "false"] * len(TRIPLES)
    ends = []
    for number, true in enumerate(TRIPLES):
        group = [named(sample) for sample in made[4 * number : 4 * number + 4]]
        assert group[0] == true
        assert not set(group[1:]) & set(TRIPLES)
        [end] = {tuple(a == b for a, b in zip(other, true, strict=True)) for other in group[1:]}
        ends.append(end)
    assert set(ends) == {(True, True, False), (False, True, True)}


def test_entities_in_no_triple_are_in_no_false_one(tmp_path: Path) -> None:
    """An inductive split holds them out: their texts are there, and training must not meet them."""
    unseen = {f"unseen{number}": {"label": "never"} for number in range(50)}
    graph = GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=unseen)
    assert graph.num_entities == 50 + len({end for h, _, t in TRIPLES for end in (h, t)})
    met = {end for sample in arranged(graph, 30) for end in (named(sample)[0], named(sample)[2])}
    assert met
    assert not met & set(unseen)


def test_samples_are_drawn_alone_with_the_seed(graph: GraphStore) -> None:
    objective = TripleClassification(graph, 2)
    made = arranged(graph, 2)
    assert plain(made) == plain(arranged(graph, 2))
    assert plain(made) != plain(arranged(graph, 2, seed=1))
    alone = [s for sample in samples() for s in objective.arrange([sample], Draws(0, "task", number=(9,)))]
    assert plain(made) == plain(alone)
    assert len({sample["draw"] for sample in made}) == len(made)


def test_a_triple_that_is_true_with_every_entity_has_no_false_one(tmp_path: Path) -> None:
    full = [(a, "r", b) for a in "abc" for b in "abc" if (a, b) != ("a", "a")]
    graph = GraphStore.build(full, tmp_path / "full")
    objective = TripleClassification(graph, 2)
    given = [
        {"key": h, "draw": (n,), "id": h, "triples": [{"relation": "r", "tail": t}]} for n, (h, _, t) in enumerate(full)
    ]
    made = objective.arrange(given, Draws(0, "task", number=()))
    false = [named(sample) for sample in made if sample["labels"]["triple"] == "false"]
    assert set(false) == {("a", "r", "a")}
    assert len(made) - len(false) == len(full)


def test_scores_are_the_log_odds_of_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.kg.evaluation.graph_world import make_graph_world
    from workbench.evaluation.scoring.evaluated_run import find_objective
    from workbench.interop.run_or_checkpoint import load

    world = make_graph_world(tmp_path)
    run = find_objective(load(world / "run"), world / "run", TripleClassification, "")
    graph = GraphStore.open(world / "graph")
    scores = run.objective.objective.triple_scores(run.task, run.network, run.head, graph, 5)
    rows = torch.from_numpy(graph.triple_rows.astype(np.int64))
    config = transformers.BertConfig(
        vocab_size=run.tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=24,
        num_labels=2,
    )
    theirs = transformers.BertForSequenceClassification(config).eval()
    missing, _ = theirs.load_state_dict(export_bert(world), strict=False)
    assert set(missing) == {"classifier.weight", "classifier.bias"}
    with torch.no_grad():
        theirs.classifier.weight.copy_(run.head.classifier.weight)
        theirs.classifier.bias.copy_(run.head.classifier.bias)
        expected = []
        for h, r, t in rows.tolist():
            triple = {"relation": graph.relation_ids[r], "tail": graph.ids[t]}
            [sequence] = run.task.sequences([{"key": "a", "draw": (0,), "id": graph.ids[h], "triples": [triple]}])
            text = {name: torch.from_numpy(values)[None] for name, values in sequence.streams["text"].items()}
            given = {"input_ids": text["input_ids"].long(), "token_type_ids": text["token_type_ids"].long()}
            logits = theirs(**given).logits[0]
            expected.append(float(logits[1] - logits[0]))
    torch.testing.assert_close(scores.triples(rows), torch.tensor(expected), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        scores.tails(rows[:2, 0], rows[:2, 1])[0, rows[0, 2]], torch.tensor(expected[0]), atol=1e-5, rtol=1e-5
    )


def export_bert(world: Path) -> dict[str, torch.Tensor]:
    """The run's network under Hugging Face's names."""
    from safetensors.torch import load_file

    from workbench.cli.export import export

    export(world / "run", world / "exported", "bert")
    tensors = load_file(world / "exported" / "model.safetensors")
    return {name if name.startswith("bert.") else f"bert.{name}": tensor for name, tensor in tensors.items()}
