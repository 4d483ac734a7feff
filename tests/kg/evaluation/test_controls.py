"""A control needs the support of every component that adds what it removes, in training and evaluation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kg.evaluation.task_options import TypingTuning
from kg.evaluation.tasks.entity_typing import EntityTyping
from kg.graph.store import GraphStore
from tests.kg.evaluation.conftest import recipe_tree
from tests.kg.evaluation.graph_world import write_triples
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluated_run import open_run
from workbench.objectives.mlm import Mlm
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer
from workbench.training.plan import check_recipe_control
from workbench.training.pretrain import pretrain

PARTS = """
from torch import nn

from kg.graph.store import GraphStore
from workbench.objectives.mlm import Mlm
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.maskings import TokenMasking
from workbench.sequences.protocols import Transform


class Linked(Transform):
    reads_spans = True

    def __call__(self, sequences, draws):
        return sequences


class Heeding(Linked):
    controls = ("no-kg",)

    def __init__(self, control=None):
        self.reported = control


class Silent(Transform):  # reads links and says nothing of that
    found = 0

    def __call__(self, sequences, draws):
        self.found += sum(len(sequence.spans) for sequence in sequences)
        return sequences


class Bare(Linked):
    controls = "no-kg"

    def __init__(self, control=None):
        pass


class Deaf(Linked):
    controls = ("no-kg",)


class Wrong(Linked):
    controls = ("no-graph",)

    def __init__(self, control=None):
        pass


class Reading(Transform):
    def __init__(self, graph):
        self.graph = GraphStore(graph)

    def __call__(self, sequences, draws):
        return sequences


class LinkedDocument(DocumentBuilder):
    reads_spans = True


class LinkedTokens(TokenMasking):
    reads_spans = True


class Layer(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.size = GraphStore(graph).num_entities

    def forward(self, hidden, context):
        return hidden


class Told(Mlm):
    def __init__(self, graph, tokenizer):
        super().__init__(tokenizer)
        self.size = GraphStore(graph).num_entities


class ToldHead(Mlm):
    def __init__(self, graph, tokenizer):
        super().__init__(tokenizer)
        self.path = graph

    def head(self, network):
        GraphStore(self.path)
        return super().head(network)
"""


@pytest.fixture(autouse=True)
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_parts", None)


def tree(world: Path, control: str | None = None, knowledge: str = "tree") -> dict[str, Any]:
    return {**recipe_tree(world, knowledge), "control": control}


def checked(recipe: Recipe | dict[str, Any]) -> None:
    """What a training asks before its first step."""
    made = recipe if isinstance(recipe, Recipe) else recipe_from_dict(recipe)
    tokenizer = Tokenizer.load(str(made.tokenizer))
    tasks = tasks_of(made, tokenizer)
    check_recipe_control(made, tasks, make_model(made, tasks, tokenizer))


def with_part(world: Path, kind: str, part: str, control: str) -> dict[str, Any]:
    """A model with K-BERT's transform, which supports no-kg and shuffled-kg, and a component that supports nothing."""
    recipe, graph = tree(world, control), str(world / "graph")
    task = recipe["tasks"]["facts"]
    spec = {kind: f"own_parts:{part}", **({} if part.startswith("Linked") else {"graph": graph})}
    if kind == "transform":
        task["sequence"]["transforms"].append(spec)
    elif kind == "builder":
        task["sequence"]["builder"] = f"own_parts:{part}"
    elif kind == "layer":
        recipe["model"]["layers"].append(spec)
    elif kind == "masking":
        task["objectives"][0]["masking"] = f"own_parts:{part}"
    else:
        task["objectives"].append(spec)
    return recipe


@pytest.mark.parametrize(
    ("kind", "part", "control", "read"),
    [
        ("transform", "Linked", "no-kg", "linked entities"),
        ("transform", "Reading", "no-kg", "graph"),
        ("transform", "Reading", "shuffled-kg", "graph"),
        ("transform", "Reading", "permuted-kg", "graph"),
        ("transform", "Reading", "random-entities", "graph"),
        ("transform", "Linked", "mentions-only", "linked entities"),
        ("builder", "LinkedDocument", "no-kg", "linked entities"),
        ("masking", "LinkedTokens", "no-kg", "linked entities"),
        ("layer", "Layer", "shuffled-kg", "graph"),
        ("objective", "Told", "no-kg", "graph"),
        ("objective", "ToldHead", "no-kg", "graph"),
    ],
)
def test_a_part_that_brings_it_and_supports_nothing_is_named(
    world: Path, kind: str, part: str, control: str, read: str
) -> None:
    with pytest.raises(WorkbenchError, match=rf"control {control} is not valid .*{part}' reads {read} and does"):
        checked(with_part(world, kind, part, control))


def test_what_a_control_takes_nothing_of_may_be_next_to(world: Path) -> None:
    recipe = with_part(world, "transform", "Linked", "shuffled-kg")
    checked(recipe)
    with pytest.raises(WorkbenchError, match="Valid controls here: permuted-kg, random-entities, shuffled-kg"):
        checked({**recipe, "control": "no-kg"})


@pytest.mark.parametrize("control", ["no-kg", "random-entities", "mentions-only"])
def test_links_and_vectors_are_taken_by_the_part_that_brings_them(world: Path, control: str) -> None:
    checked(tree(world, control, "entities"))


def test_objectives_are_asked(world: Path, tmp_path: Path) -> None:
    """KEPLER's objective exchanges the tails; its builder reads texts, which stay."""
    triples = [("t0", "country", "c0"), ("t1", "country", "c1"), ("t2", "country", "c2")]
    write_triples(tmp_path / "triples", triples)
    described = {entity: {"description": "a place"} for triple in triples for entity in triple[::2]}
    graph = str(GraphStore.build(triples, tmp_path / "graph", entity_texts=described).path)
    recipe = tree(world, "shuffled-kg", "none")
    recipe["tasks"]["triples"] = {
        "corpora": [str(tmp_path / "triples")],
        "sequence": {"builder": "kg.described_triple", "max_length": 16, "graph": graph},
        "objectives": [{"objective": "kg.knowledge_embedding", "graph": graph}],
    }
    checked(recipe)
    with pytest.raises(
        WorkbenchError, match=r"'kg\.knowledge_embedding': control no-kg: .* Allowed here: shuffled-kg, permuted-kg"
    ):
        checked({**recipe, "control": "no-kg"})


def test_training_fine_tuning_and_evaluation_ask_alike(world: Path, tmp_path: Path) -> None:
    recipe = with_part(world, "transform", "Linked", "shuffled-kg")
    recipe["train"] |= {"max_steps": 1, "lr_schedule": "linear"}
    run = pretrain(recipe_from_dict(recipe), tmp_path / "run")
    refused = r"control no-kg is not valid in .*own_parts:Linked' reads linked entities"
    with pytest.raises(WorkbenchError, match=refused):
        pretrain(recipe_from_dict({**recipe, "control": "no-kg"}), tmp_path / "other")
    with pytest.raises(WorkbenchError, match=refused):
        open_run(run, Mlm, "", control="no-kg")
    assert open_run(run, Mlm, "", control="shuffled-kg").task.transforms
    corpus = str(world / "typing")
    reported = ["train.num_workers=0", 'tasks.entity-typing.sequence.transforms=[{transform: "own_parts:Linked"}]']
    tuning = TypingTuning(run=run, corpus=corpus, overrides=reported, max_length=24, control="no-kg")
    with pytest.raises(WorkbenchError, match=refused):
        fine_tune(EntityTyping(), tuning)


def test_a_part_that_is_never_informed_of_a_control_is_a_fault() -> None:
    assert build("transform", "own_parts:Heeding", control="no-kg").reported == "no-kg"
    with pytest.raises(WorkbenchError, match=r"Deaf' declares that it supports no-kg .*has no argument `control`"):
        build("transform", "own_parts:Deaf")
    with pytest.raises(WorkbenchError, match=r"unknown control 'no-graph' in .*Wrong', in its `controls`"):
        build("transform", "own_parts:Wrong")
    with pytest.raises(WorkbenchError, match=r"Bare.*`controls` is the text 'no-kg'; allowed: a tuple, \('no-kg',\)"):
        build("transform", "own_parts:Bare")


@pytest.mark.parametrize(("control", "links"), [(None, True), ("shuffled-kg", True), ("no-kg", False)])
def test_without_knowledge_no_link_reaches_a_part_that_does_not_say_that_it_reads_some(
    world: Path, control: str | None, links: bool
) -> None:
    recipe = recipe_from_dict(tree(world, control))
    recipe.tasks["facts"].sequence.transforms.insert(0, {"transform": "own_parts:Silent"})
    task = tasks_of(recipe, Tokenizer.load(str(recipe.tokenizer)))["facts"]
    corpus = Corpus.open(next(iter(recipe.tasks["facts"].corpora)))
    samples = [{**corpus.read(0, i), "key": str(i), "draw": (i,)} for i in range(4)]
    assert any(sample["spans"] for sample in samples)
    task.micro_batch(samples, (0,))
    trained, task.transforms[0].found = task.transforms[0].found, 0
    task.sequences(samples)
    assert (trained > 0, task.transforms[0].found > 0) == (links, links)
    assert any(sample["spans"] for sample in samples), "the reader's samples stay as they are"
