"""KnowBERT's parts together: two graphs in one stack, resumed, on two ranks, under controls and in fine-tuning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import workbench
from kg.evaluation.task_options import TypingTuning
from kg.evaluation.tasks.entity_typing import EntityTyping
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.kg.evaluation.conftest import TOWNS, WORDINGS, make_world, typed, write
from tests.kg.evaluation.tasks.test_disambiguation import reported, tree
from tests.training.conftest import launch  # noqa: F401 - a fixture
from tests.training.test_ranks import columns, run_ranks
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.pretraining.forward import read
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

METRICS = ("mlm/loss", "towns_linking/loss", "words_linking/loss", "towns_linking/prior_accuracy")


@pytest.fixture(scope="module")
def reported_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose towns and countries are linked to one graph, and whose words to another; and the latter's vectors."""
    folder = make_world(tmp_path_factory.mktemp("two-graphs"))
    records = [reported(t, w) for t in range(len(TOWNS)) for w in WORDINGS[:2]]
    for record in records:
        start = record["text"].index("town")
        words = [[start, start + 4, "w1", 0.7, {"right": 0}], [start, start + 4, "w2", 0.3, {"right": 1}]]
        record["spans"] = sorted([*record["spans"], *words], key=lambda span: span[:2])
    write(folder / "reported", records)
    write(folder / "typing", [typed("the stead", f"t{i}", ["place"], "we saw") for i in range(8)])
    words = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    save_vectors(GraphVectors(["w1", "w2", "w3"], words, ["r"], torch.zeros(1, 4)), folder / "words.safetensors")
    return folder


def both(folder: Path, **top: Any) -> dict[str, Any]:
    """Dropout on, several lanes, masked words next to the linkers of both graphs."""
    recipe = tree(folder, steps=6) | top
    vectors = str(folder / "words.safetensors")
    recipe["model"]["streams"]["words"] = {"embedding": "kg.entity_table", "path": vectors}
    plain = {"stream": "text", "num_heads": 2, "dropout": 0.2, "attention_dropout": 0.2}
    second = {"layer": "kg.kar", "candidates": "words", "mentions": "word_mentions", "threshold": 0.0, **plain}
    recipe["model"]["layers"] += [{"layer": "self", **plain}, second, {"layer": "self", **plain}]
    task = recipe["tasks"]["facts"]
    step = {"transform": "kg.candidates", "table": vectors, "stream": "words", "mentions": "word_mentions"}
    task["sequence"]["transforms"].append(step)
    linking = {"objective": "kg.entity_linking"}
    task["objectives"] = [
        {"objective": "mlm", "rate": 0.2},
        {**linking, "name": "towns_linking", "stream": "towns", "mentions": "places"},
        {**linking, "name": "words_linking", "stream": "words", "mentions": "word_mentions", "loss": "margin"},
    ]
    recipe["train"] |= {"global_batch_size": 12, "micro_batch_size": 6, "log_every": 1, "lr_schedule": "constant"}
    return recipe


@pytest.fixture
def recipe_file(reported_world: Path, tmp_path: Path) -> Path:
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump(both(reported_world)))
    return path


def test_resumed_equals_uninterrupted(reported_world: Path, tmp_path: Path) -> None:
    assert verify_resume(recipe_from_dict(both(reported_world), "both"), tmp_path, steps=4).equal


def test_all_continues_from_linkers_that_were_taught_alone(reported_world: Path, tmp_path: Path) -> None:
    first = both(reported_world)
    for layer in (1, 3):
        first["model"]["layers"][layer]["inverted"] = True
    del first["tasks"]["facts"]["objectives"][0]
    first["train"]["train_only"] = [f"networks.main.layers.{layer}.linker" for layer in (1, 3)]
    linkers = pretrain(recipe_from_dict(first), tmp_path / "linkers", until=3)
    second = both(reported_world)
    second["model"]["init_from"] = str(linkers)
    second["train"]["lr"] = 1e-9
    made = pretrain(recipe_from_dict(second), tmp_path / "all", until=1)
    before, after = (workbench.load(run).torch.network("main").state_dict() for run in (linkers, made))
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, before[name], atol=1e-6, rtol=0, msg=name)
    for layer in (1, 3):
        there, back = (after[f"layers.{layer}.{name}.weight"] for name in ("linker.project", "project_back"))
        torch.testing.assert_close(there @ back, torch.eye(len(there)), atol=1e-4, rtol=0)


@pytest.mark.scale
def test_two_ranks_equal_one(
    reported_world: Path,
    recipe_file: Path,
    launch: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    pretrain(recipe_from_dict(both(reported_world), "both"), tmp_path / "one")
    run_ranks(launch, 2, recipe_file, tmp_path / "two")
    one, two = (columns(tmp_path / run, *METRICS) for run in ("one", "two"))
    assert one.shape == (6, len(METRICS))
    torch.testing.assert_close(torch.tensor(one), torch.tensor(two), atol=1e-5, rtol=1e-5)


def states(run: Path, control: str | None = None) -> torch.Tensor:
    loaded = workbench.load(run, control=control)
    made = loaded.tasks["facts"].evaluating()
    batch = made.micro_batch([{**reported(3, WORDINGS[0]), "key": "a", "corpus": "c", "draw": (0,)}], (0,)).views[
        "main"
    ]
    with torch.no_grad():
        return read(loaded.torch.network("main"), batch).states["text"]


def test_controls_reach_the_tables_of_both_graphs(reported_world: Path, tmp_path: Path) -> None:
    run = pretrain(recipe_from_dict(both(reported_world)), tmp_path / "run", until=1)
    whole, random, none = states(run), states(run, "random-entities"), states(run, "no-kg")
    assert not torch.allclose(whole, random, atol=1e-3)
    assert not torch.allclose(whole, none, atol=1e-3)
    loaded = [workbench.load(run, control=control).torch.network("main") for control in (None, "random-entities")]
    for stream in ("towns", "words"):
        ids = torch.arange(1, 1 + len(loaded[0].embeddings[stream].vectors))
        own, drawn = (network.embeddings[stream]({"entity_ids": ids}) for network in loaded)
        assert not torch.allclose(own, drawn, atol=1e-3)
        torch.testing.assert_close(own.norm(dim=1), drawn.norm(dim=1), atol=1e-5, rtol=1e-5)
    with pytest.raises(WorkbenchError, match="shuffled-kg needs vectors of the shuffled graph"):
        pretrain(recipe_from_dict(both(reported_world, control="shuffled-kg")), tmp_path / "shuffled", until=1)


def test_knowledge_stays_in_fine_tuning(reported_world: Path, tmp_path: Path) -> None:
    run = pretrain(recipe_from_dict(both(reported_world)), tmp_path / "run", until=1)
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.num_workers=0"]
    tuning = TypingTuning(run=run, corpus=str(reported_world / "typing"), overrides=quick, max_length=24)
    tuned = workbench.load(fine_tune(EntityTyping(), tuning))
    (task,) = tuned.tasks.values()
    assert [step.stream for step in task.transforms] == ["towns", "words"]
    sample = {**typed("the stead", "t1", ["place"], "we saw"), "key": "a", "corpus": "c", "draw": (0,)}
    batch = task.evaluating().micro_batch([sample], (0,)).views["main"]
    assert batch.streams["towns"].fields["entity_ids"].tolist() == [2]


def test_texts_without_links_are_refused(reported_world: Path, tmp_path: Path) -> None:
    write(tmp_path / "plain", [{"text": "a town in norway ."}] * 4)
    recipe = both(reported_world)
    recipe["tasks"]["facts"]["corpora"] = [str(tmp_path / "plain")]
    with pytest.raises(
        WorkbenchError,
        match=r"transform kg.candidates reads linked entities, .* has none; link it first .workbench prepare l",
    ):
        pretrain(recipe_from_dict(recipe), tmp_path / "run", until=1)
