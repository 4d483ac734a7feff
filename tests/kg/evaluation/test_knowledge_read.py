"""The graph of a transform fits its embedding, holds the linked entities, and is reported in evaluation results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from kg.evaluation.task_options import FactsScoring, TypingScoring, TypingTuning
from kg.evaluation.tasks.entity_typing import EntityTyping
from kg.evaluation.tasks.facts import FactRanking
from kg.sequences.entity_vocabulary import save_entity_vocabulary
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from tests.kg.evaluation.conftest import make_world, recipe_tree, typed, typing_records, write
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.interop import checkpoint_writer
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.runs.names import EVALUATIONS
from workbench.training.pretrain import pretrain

QUICK = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.num_workers=0"]
OTHER = r"numbers the entities of .*turned\.safetensors, but the embedding model\S* has the rows of .*entities\.safet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world with the vectors of the same entities in another order, typing sets with links of another graph, and
    runs."""
    folder = make_world(tmp_path_factory.mktemp("world"))
    ids = load_vectors(folder / "entities.safetensors").ids
    save_vectors(
        GraphVectors(list(reversed(ids)), torch.zeros(len(ids), 8), ["r"], torch.zeros(1, 8)),
        folder / "turned.safetensors",
    )
    save_vectors(
        GraphVectors(list(ids), torch.ones(len(ids), 8), ["r"], torch.zeros(1, 8)), folder / "copy.safetensors"
    )
    records = typing_records(test=True)
    for record in records:
        record["spans"][0][2] = "Q64"
    write(folder / "typing-foreign", records)
    write(folder / "typing-mixed", [*typing_records(test=True)[:10], *records[:3]])
    for knowledge in ("entities", "tree"):
        pretrain(recipe_from_dict(recipe_tree(folder, knowledge)), folder / knowledge, until=1)
    for knowledge in ("entities", "tree"):
        fine_tune(EntityTyping(), tuning(folder, knowledge, folder / f"typing-{knowledge}"))
    return folder


def tuning(folder: Path, run: str, output: Path, *overrides: str) -> TypingTuning:
    reported: dict[str, Any] = {"output": output, "max_length": 24, "overrides": [*QUICK, *overrides]}
    return TypingTuning(run=folder / run, corpus=str(folder / "typing"), **reported)


@pytest.mark.parametrize(("max_length", "tokens", "reported"), [(None, 24, ""), (40, 40, "8 of 8 branches (100 %)")])
def test_a_text_does_not_take_the_room_of_its_step_unless_asked(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, max_length: int | None, tokens: int, reported: str
) -> None:
    """In pretraining texts have 24 tokens and trees 40, as many as the model has positions."""
    write(tmp_path / "long", [typed("the stead", f"t{town}", ["town"], "we saw " * 30) for town in range(8)])
    options = replace(tuning(folder, "tree", tmp_path / "run"), corpus=str(tmp_path / "long"), max_length=max_length)
    builder = recipe_of(EntityTyping(), options).tasks["entity-typing"].sequence.builder
    assert isinstance(builder, dict)
    assert builder["max_length"] == tokens
    assert ("have no room next to the text" in caplog.text) == bool(reported)
    assert reported in caplog.text


@pytest.mark.parametrize("unknown", [8, 1])
@pytest.mark.parametrize(("run", "reason"), [("entities", "without a vector"), ("tree", "not in the graph")])
def test_entities_that_mostly_bring_no_knowledge_are_reported(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, run: str, reason: str, unknown: int
) -> None:
    records = typing_records(test=False)[:10]
    for record in records[:unknown]:
        record["spans"][0][2] = "Q64"
    write(tmp_path / "typing", records)
    recipe_of(EntityTyping(), replace(tuning(folder, run, tmp_path / "run"), corpus=str(tmp_path / "typing")))
    found = f"8 of 10 linked entities (80 %) bring no knowledge (entities {reason})" in caplog.text
    assert found == (unknown == 8)
    assert found == ("bring no knowledge" in caplog.text)


@pytest.mark.parametrize("control", [None, "no-kg"])
def test_an_export_under_no_kg_leaves_out_no_knowledge(folder: Path, control: str | None) -> None:
    recipe = replace(read_recipe(folder / "tree"), control=control)
    lost = checkpoint_writer._transforms_lost({}, recipe, "main")
    assert any("kg.sentence_tree" in each for each in lost) == (control is None)


def test_other_vectors_than_those_that_are_embedded_are_refused(folder: Path, tmp_path: Path) -> None:
    turned = folder / "turned.safetensors"
    tree = recipe_tree(folder, "entities")
    tree["tasks"]["facts"]["sequence"]["transforms"][0]["table"] = str(turned)
    with pytest.raises(WorkbenchError, match=OTHER):
        pretrain(recipe_from_dict(tree), tmp_path / "run")
    changed = f"sequence.transforms[0].table={turned}"
    again = tuning(folder, "entities", tmp_path / "run", f"tasks.entity-typing.{changed}")
    with pytest.raises(WorkbenchError, match=OTHER):
        fine_tune(EntityTyping(), again)
    with pytest.raises(WorkbenchError, match=OTHER):
        workbench.load(folder / "entities", [f"tasks.facts.{changed}"])
    scoring = FactsScoring(run=folder / "entities", corpus=str(folder / "facts"), overrides=[f"tasks.facts.{changed}"])
    with pytest.raises(WorkbenchError, match=OTHER):
        evaluate(FactRanking(), scoring)


def test_the_same_entities_may_have_other_vectors(folder: Path, tmp_path: Path) -> None:
    """Only the order of the rows is the step's affair."""
    tree = recipe_tree(folder, "entities")
    tree["tasks"]["facts"]["sequence"]["transforms"][0]["table"] = str(folder / "copy.safetensors")
    pretrain(recipe_from_dict(tree), tmp_path / "run", until=1)


@pytest.mark.parametrize("embedding", ["kg.word_or_entity", "kg.entity_token", "candidates"])
def test_every_embedding_of_entities_is_compared(folder: Path, tmp_path: Path, embedding: str) -> None:
    tree = recipe_tree(folder, "none")
    streams, sequence = tree["model"]["streams"], tree["tasks"]["facts"]["sequence"]
    vectors = {"path": str(folder / "entities.safetensors"), "hidden_size": 8}
    if embedding == "kg.word_or_entity":
        streams["text"] |= {"embedding": embedding, **vectors}
        sequence["transforms"] = [
            {"transform": "kg.entity_words", "table": str(folder / "turned.safetensors"), "separator": "/"}
        ]
    elif embedding == "kg.entity_token":
        for name, counts in {"one": {"t0": 2, "t1": 1}, "turned": {"t1": 2, "t0": 1}}.items():
            save_entity_vocabulary(tmp_path / f"{name}.safetensors", counts, 9, {})
        vocabularies = [str(tmp_path / f"{name}.safetensors") for name in ("one", "turned")]
        streams["entity"] = {"embedding": embedding, "vocabulary": vocabularies[0], "hidden_size": 32}
        sequence["transforms"] = [{"transform": "kg.entity_tokens", "vocabulary": vocabularies[1]}]
    else:
        streams["candidates"] = {"embedding": "kg.entity_table", **vectors}
        sequence["transforms"] = [{"transform": "kg.candidates", "table": str(folder / "turned.safetensors")}]
    with pytest.raises(WorkbenchError, match=r"numbers the entities of .*turned\.safetensors, but the embedding model"):
        pretrain(recipe_from_dict(tree), tmp_path / "run")


@pytest.mark.parametrize(
    ("knowledge", "held"), [("entities", "entities.safetensors"), ("tree", "graph")], ids=["vectors", "graph"]
)
def test_links_of_another_graph_are_no_knowledge(folder: Path, tmp_path: Path, knowledge: str, held: str) -> None:
    reported = rf"none of the entities .*typing-foreign, such as 'Q64', is in .*{held}.*workbench prepare link"
    run, corpus = folder / f"typing-{knowledge}", str(folder / "typing-foreign")
    with pytest.raises(WorkbenchError, match=reported):
        evaluate(EntityTyping(), TypingScoring(run=run, corpus=corpus))
    evaluate(EntityTyping(), TypingScoring(run=run, corpus=corpus, control="no-kg"))
    tree = recipe_tree(folder, knowledge)
    tree["tasks"]["facts"] |= {"corpora": [corpus], "objectives": [{"objective": "mlm", "rate": 0.2}]}
    with pytest.raises(WorkbenchError, match=reported):
        pretrain(recipe_from_dict(tree), tmp_path / "run")


def test_an_evaluation_says_what_was_used_and_what_was_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = str(folder / "typing-mixed")
    found = evaluate(EntityTyping(), TypingScoring(run=folder / "typing-entities", corpus=corpus, batch_size=4))
    assert found.used == {"mentions": 10}
    assert found.dropped == {"entities without a vector": 3}
    shown = " ".join(capsys.readouterr().out.split())
    assert "used: 10 mentions; left out: 3 entities without a vector" in shown
    (file,) = (folder / "typing-entities" / EVALUATIONS).glob("*mixed*.json")
    record = json.loads(file.read_text())
    assert (record["used"], record["dropped"]) == (found.used, found.dropped)
    tree = evaluate(EntityTyping(), TypingScoring(run=folder / "typing-tree", corpus=corpus))
    assert tree.used == {"mentions": 10, "branches": 10}
    assert tree.dropped == {"entities not in the graph": 3}
    reported: dict[str, Any] = {"corpus": str(folder / "facts"), "candidates": folder / "candidates.json"}
    facts = evaluate(FactRanking(), FactsScoring(run=folder / "tree", **reported))
    assert facts.used == {"mentions": 24, "branches": 24}
    assert facts.dropped == {}
