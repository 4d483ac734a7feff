"""A run that reads entities by their descriptions: it resumes, and writes vectors of entities that it never saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import workbench
from kg.graph.store import GraphStore
from kg.sequences.description_roles import CAST, CastMember
from kg.vectors.scores import VectorScores
from kg.vectors.vectors import load_vectors
from pipelines.commands.knowledge.entity_vectors import entity_vectors
from tests.contracts.material import VOCABULARY, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.options.command import command
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

WORDS = VOCABULARY.split()
SEEN, UNSEEN = [f"Q{i}" for i in range(8)], ["Q8", "Q9"]
TRIPLES = [(f"Q{i}", relation, f"Q{(i + by) % 8}") for i in range(8) for relation, by in (("P1", 1), ("P2", 3))]
SIZE = 16
OLD = {"Q1": {"description": "old songs"}}


def record(entity: str, place: int, triples: list[tuple[str, str, str]]) -> dict[str, Any]:
    facts = [
        {"relation": r, "relation_text": f"past {r}", "tail": t, "tail_text": t} for h, r, t in triples if h == entity
    ]
    return {"id": entity, "label": entity, "description": " ".join(WORDS[2 * place : 2 * place + 3]), "triples": facts}


def write_corpus(folder: Path, entities: list[str]) -> Path:
    records = [record(entity, place, TRIPLES) for place, entity in enumerate(entities)]
    with ShardWriter(folder / "part-000000.tar", kind="triples") as writer:
        for each in records:
            writer.add(each["id"], each)
    assert writer.info is not None
    finish_corpus(folder, kind="triples", shards=[writer.info], provenance={"command": "test"})
    GraphStore.from_records(records, folder / "graph")
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of the seen entities, one of all, and a tokenizer."""
    folder = tmp_path_factory.mktemp("world")
    write_corpus(folder / "seen", SEEN)
    write_corpus(folder / "all", [*SEEN, *UNSEEN])
    tokenizer().save(folder / "tokenizer.json")
    return folder


def recipe(world: Path, **objective: Any) -> Any:
    graph = str(world / "seen")
    task = {
        "corpora": [graph],
        "sequence": {"builder": "kg.described_triple", "graph": graph, "max_length": 16},
        "objectives": [{"objective": "kg.knowledge_embedding", "graph": graph, **objective}],
    }
    text = {"embedding": "token", "hidden_size": SIZE, "max_positions": 16, "dropout": 0.1}
    plain = {
        "description": "Tiny.",
        "tokenizer": str(world / "tokenizer.json"),
        "model": {"streams": {"text": text}, "layers": [{"layer": "self", "stream": "text", "num_heads": 2}]},
        "tasks": {"triples": task},
        "train": {"max_steps": 4, "global_batch_size": 4, "micro_batch_size": 2, "lr": 1e-2, "num_workers": 0},
    }
    return recipe_from_dict(plain, "tiny")


@pytest.fixture(scope="module")
def run(world: Path) -> Path:
    return pretrain(recipe(world), world / "run")


def write(run: Path, graph: Path, output: Path, *options: Any) -> Any:
    app = typer.Typer()
    app.command()(command(entity_vectors))
    given = [str(each) for each in (run, graph, "--output", output, *options)]
    return CliRunner().invoke(app, given, catch_exceptions=False)


@pytest.mark.parametrize("source", ["graph", "micro-batch"])
def test_false_triples_are_drawn_anew_after_a_restart(world: Path, tmp_path: Path, source: str) -> None:
    verdict = verify_resume(recipe(world, negatives={"number": 2, "source": source}), tmp_path / "check", 4)
    assert verdict.compared > 8
    assert verdict.equal


def test_vectors_are_the_first_states_of_descriptions_seen_or_not(run: Path, world: Path, tmp_path: Path) -> None:
    output = tmp_path / "v.safetensors"
    assert write(run, world / "all", output, "--batch-size", 3).exit_code == 0
    vectors = load_vectors(output)
    assert set(vectors.ids) == {*SEEN, *UNSEEN}
    assert vectors.vectors.shape == (10, SIZE)
    loaded = workbench.load(run)
    network, task = loaded.torch.network("main"), loaded.tasks["triples"]
    for entity in ("Q2", "Q9"):
        words = WORDS[2 * int(entity[1]) : 2 * int(entity[1]) + 3]
        ids = [tokenizer().id("cls"), *tokenizer().encode(" ".join(words)).ids.tolist(), tokenizer().id("sep")]
        store = GraphStore.open(world / "all")
        assert store.description(entity) == " ".join(words)
        task.builder.graph = store
        [sequence] = task.sequences([{"key": "0", "draw": (0,), CAST: [CastMember("entity", entity)]}])
        assert sequence.streams["text"]["input_ids"].tolist() == ids
        with torch.inference_mode():
            wanted = network(collate([sequence]))["text"][0]
        torch.testing.assert_close(vectors.vectors[vectors.rows[entity]], wanted, atol=1e-5, rtol=1e-5)
    learned = loaded.torch.heads["knowledge_embedding"].relations.weight
    torch.testing.assert_close(vectors.relations, learned.detach())
    assert vectors.provenance["model"] == "TransE"
    assert vectors.provenance["norm"] == 2
    assert "checkpoint" in vectors.provenance


@pytest.mark.scale
def test_units_are_the_vectors_of_one_pass(run: Path, world: Path, tmp_path: Path) -> None:
    loaded, store = workbench.load(run), GraphStore.open(world / "all")
    task = loaded.tasks["triples"].evaluating()
    network, objective = loaded.torch.network("main"), task.objectives[0].objective
    with torch.inference_mode():
        whole = objective.described(task, network, store, 3)
        units = [objective.described(task, network, store, 3, first, 6) for first in (0, 6)]
    assert torch.equal(torch.cat(units), whole)
    for workers in (1, 2):
        written = write(run, world / "all", tmp_path / f"{workers}.safetensors", "--workers", workers)
        assert written.exit_code == 0
    one, two = (load_vectors(tmp_path / f"{workers}.safetensors") for workers in (1, 2))
    assert torch.equal(one.vectors, two.vectors)
    assert torch.equal(one.relations, two.relations)


def test_a_run_and_its_vectors_score_triples_alike(run: Path, world: Path, tmp_path: Path) -> None:
    """By the distance of the run's norm, unseen entities included."""
    output = tmp_path / "v.safetensors"
    write(run, world / "all", output)
    vectors, store = load_vectors(output), GraphStore.open(world / "all")
    loaded = workbench.load(run)
    task = loaded.tasks["triples"]
    objective, head = task.objectives[0].objective, loaded.torch.heads["knowledge_embedding"]
    scores = objective.triple_scores(task, loaded.torch.network("main"), head, store, 4)
    h, r, t = store.row("Q9"), store.relation_row("P2"), store.row("Q1")
    found = scores.triples(torch.tensor([[h, r, t]]))
    entity = vectors.vectors[[vectors.rows[name] for name in store.ids]]
    distance = (entity[h] + vectors.relations[r] - entity[t]).pow(2).sum().sqrt()
    torch.testing.assert_close(found, -distance[None], atol=1e-5, rtol=1e-5)
    for each in (scores, VectorScores(vectors, store)):
        torch.testing.assert_close(
            each.tails(torch.tensor([h]), torch.tensor([r]))[0, t], -distance, atol=1e-4, rtol=1e-4
        )


def test_a_graph_that_describes_nothing_is_refused(run: Path, tmp_path: Path) -> None:
    GraphStore.build([("Q1", "P1", "Q2")], tmp_path / "other", entity_texts={"Q1": {"label": "old songs"}})
    with pytest.raises(WorkbenchError, match="describes none of its 2 entities"):
        write(run, tmp_path / "other", tmp_path / "v.safetensors")


def test_relations_that_were_not_learned_are_refused_by_name(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    GraphStore.build([("Q1", "P7", "Q2")], other, entity_texts=OLD)
    with pytest.raises(
        WorkbenchError, match=r"1 of the 1 relations of .*'P7', have no vector: the run was trained on another"
    ):
        write(run, other, tmp_path / "v.safetensors")


def test_relations_that_are_read_may_be_new(world: Path, tmp_path: Path) -> None:
    run = pretrain(recipe(world, relations="texts"), tmp_path / "run")
    GraphStore.build([("Q1", "P7", "Q2")], tmp_path / "other", entity_texts=OLD, relation_labels={"P7": "old songs"})
    assert write(run, tmp_path / "other", tmp_path / "v.safetensors").exit_code == 0
    assert load_vectors(tmp_path / "v.safetensors").relations.abs().sum() > 0


def test_a_run_that_embeds_no_entities_is_refused(world: Path, tmp_path: Path) -> None:
    plain = recipe(world)
    plain.tasks["triples"].objectives[:] = [{"objective": "mlm"}]
    run = pretrain(plain, tmp_path / "run")
    with pytest.raises(WorkbenchError, match=r"no task with an objective that encodes entity descriptions.* kepler"):
        write(run, world / "all", tmp_path / "v.safetensors")
