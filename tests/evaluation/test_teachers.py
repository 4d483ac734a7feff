"""A network of another run as a teacher or a follower: looked up once, frozen with its head, read by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.evaluation.conftest import network, prepare, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluated_run import open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.interop.checkpoint_recipe import recipe_named
from workbench.objectives.classify import Classify
from workbench.objectives.mlm import Mlm
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import dump_recipe, recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

ROWS = [{"text": f"the red house is number {n}", "labels": {"hour": "ab"[n % 2]}} for n in range(16)]
HOUR = {"objective": "classify", "name": "hour", "classes": ["a", "b"], "label": "hour"}
POOLED = {**network(8), "poolers": ["text"]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(tmp_path_factory.mktemp("labelled"), "labelled", ROWS)


def tree_of(texts: Path, corpus: str, model: dict[str, Any], objectives: list[dict[str, Any]]) -> dict[str, Any]:
    tree = recipe_tree(texts, model, objectives)
    tree["tasks"]["text"]["corpora"] = [corpus]
    tree["train"]["max_steps"] = 2
    return tree


@pytest.fixture(scope="module")
def teacher(texts: Path, corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    return pretrain(recipe_from_dict(tree_of(texts, corpus, POOLED, [HOUR, {"objective": "mlm"}])), folder / "run")


def taught(texts: Path, corpus: str, teacher: Path, **stored: Any) -> dict[str, Any]:
    """A student of its own with a teacher that says what it predicts, of the classes and of the hidden tokens."""
    stored = {"run": str(teacher), "heads": {"said": "hour", "shown": "mlm"}, **stored}
    objectives = [
        HOUR,
        {"objective": "mlm"},
        {**HOUR, "name": "said", "network": "old", "targets": "hour", "weight": 0},
        {"objective": "mlm", "name": "shown", "network": "old", "targets": "mlm", "weight": 0},
    ]
    return tree_of(texts, corpus, {"old": stored, "main": POOLED}, objectives)


@pytest.fixture(scope="module")
def student(texts: Path, corpus: str, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(recipe_from_dict(taught(texts, corpus, teacher)), tmp_path_factory.mktemp("student") / "run")


def test_a_stored_network_has_the_weights_and_the_head_of_its_run_and_keeps_them(teacher: Path, student: Path) -> None:
    there, here = load(teacher).model, load(student).model
    for name, tensor in there.network("main").state_dict().items():
        torch.testing.assert_close(here.network("old").state_dict()[name], tensor, rtol=0, atol=0)
    for ours, theirs in (("said", "hour"), ("shown", "mlm")):
        for name, tensor in there.heads[theirs].state_dict().items():
            assert torch.equal(here.heads[ours].state_dict()[name], tensor)
        assert not any(p.requires_grad for p in here.heads[ours].parameters())
    here.train()
    assert here.heads["hour"].training
    assert not any(module.training for name in ("said", "shown") for module in here.heads[name].modules())


def test_a_run_states_what_it_found_and_records_the_teacher_s_weights(teacher: Path, student: Path) -> None:
    spec = load(student).recipe.networks["old"]
    assert (spec.frozen, spec.init_from[0].weights, spec.init_from[0].network) == (True, str(teacher), "main")
    record = json.loads((student / "data.json").read_text())
    assert record["read"]["weights"][str(teacher)].startswith("run ")
    assert record["read"]["base"]  # its frozen weights, checked whenever the run is opened


def test_the_student_is_measured_unless_the_teacher_is_named(teacher: Path, student: Path, corpus: str) -> None:
    def scored(run: Path, **where: str) -> Any:
        return evaluate(Classification(), ClassifyScoring(run=run, corpus=corpus, **where)).numbers

    assert open_run(student, Classify, "").objective.name == "hour"
    assert scored(student, objective="said") == scored(student, network="old") == scored(teacher)


def test_targets_are_those_of_the_objective_that_is_named(texts: Path, corpus: str, teacher: Path) -> None:
    from workbench.pretraining.assembly import tasks_of
    from workbench.text.tokenizer import Tokenizer

    recipe = recipe_from_dict(taught(texts, corpus, teacher))
    task = tasks_of(recipe, Tokenizer.load(str(recipe.tokenizer)))["text"]
    samples = [{**row, "key": f"r{n}", "spans": [], "meta": {}, "draw": (n,)} for n, row in enumerate(ROWS)]
    micro = task.micro_batch(samples, (0, 0, 0))
    targets = micro.views["main"].targets
    assert torch.equal(targets["shown"]["rows"], targets["mlm"]["rows"])
    assert micro.counts["shown"] == micro.counts["mlm"] > 0
    tree = taught(texts, corpus, teacher)
    for name, words in (("hour", "allowed: mlm"), ("shown", "allowed: mlm")):
        tree["tasks"]["text"]["objectives"][3]["targets"] = name
        with pytest.raises(WorkbenchError, match="targets of 'shown'"):
            tasks_of(recipe_from_dict(tree), Tokenizer.load(str(recipe.tokenizer)))
        assert words


def test_a_recipe_file_may_name_the_run_and_is_complete_when_it_is_read(
    texts: Path, corpus: str, teacher: Path, tmp_path: Path
) -> None:
    from omegaconf import OmegaConf

    (tmp_path / "kd.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(taught(texts, corpus, teacher))))
    recipe = recipe_named(str(tmp_path / "kd.yaml"))
    assert recipe.networks["old"].layers == recipe_from_dict(tree_of(texts, corpus, POOLED, [HOUR])).model.layers  # type: ignore[union-attr]
    assert "run:" not in dump_recipe(recipe)
    with pytest.raises(WorkbenchError, match="unknown network 'typo'"):
        recipe_named(str(tmp_path / "kd.yaml"), ["model.old.network=typo"])
    with pytest.raises(WorkbenchError, match="nowhere"):
        recipe_named(str(tmp_path / "kd.yaml"), [f"model.old.run={tmp_path}/nowhere"])


def test_a_follower_is_measured_with_the_head_of_the_network_it_follows(
    texts: Path, corpus: str, tmp_path: Path
) -> None:
    model = {"main": POOLED, "ema": {"follows": "main", "decay": 0.0}}
    recipe: Recipe = recipe_from_dict(tree_of(texts, corpus, model, [HOUR, {"objective": "mlm"}]))
    run = pretrain(recipe, tmp_path / "run")
    followed, own = (open_run(run, Mlm, ""), load(run).model)
    assert followed.network is followed.loaded.model.network("main")
    numbers = [
        evaluate(Classification(), ClassifyScoring(run=run, corpus=corpus, network=name)).numbers
        for name in ("main", "ema")
    ]
    assert numbers[0] == numbers[1]  # with a decay of 0 they are one network
    assert own.followed("ema") == "main"


@pytest.mark.parametrize("count", [1, 2])
def test_a_fine_tuning_learns_the_labels_and_what_its_teachers_say(
    pretrained: Path, corpus: str, tmp_path: Path, count: int
) -> None:
    def tuned(name: str, *overrides: str, **options: Any) -> Path:
        options |= {"label": "hour", "output": str(tmp_path / name), "epochs": 1.0, "batch_size": 8}
        tuning = ClassifyTuning(run=pretrained, corpus=corpus, overrides=list(overrides), **options)
        return fine_tune(Classification(), tuning)

    teachers = [str(tuned(f"large{n}", f"seed={n}")) for n in range(count)]
    run = tuned("small", "model.main.init_from=[]", teacher=teachers) if count == 1 else tuned("s", teacher=teachers)
    recipe = load(run).recipe
    assert [spec["weight"] for spec in recipe.tasks["classify"].objectives] == [0.5, *[0] * count, 0.5]
    assert [network for network, spec in recipe.networks.items() if spec.frozen] == ["teacher", "teacher1", "teacher2"][
        count // 2 : count // 2 + count
    ]
    assert evaluate(Classification(), ClassifyScoring(run=run, corpus=corpus)).counts
    with pytest.raises(WorkbenchError, match=r"it has no objective classify \(it has mlm\)"):
        tuned("none", teacher=[str(pretrained)])


def test_a_teacher_of_other_tokens_is_refused_and_one_of_the_same_classes_in_another_order_is_not(
    pretrained: Path, texts: Path, corpus: str, tmp_path: Path
) -> None:
    def tuned(run: Path, name: str, **options: Any) -> Path:
        options |= {"label": "hour", "output": str(tmp_path / name), "epochs": 1.0, "batch_size": 8}
        return fine_tune(Classification(), ClassifyTuning(run=run, corpus=corpus, **options))

    tree = tree_of(texts, corpus, POOLED, [{"objective": "mlm"}])
    Tokenizer(train_tokenizer(["the red house"], "wordpiece", 40)).save(tmp_path / "few.json")
    few = pretrain(recipe_from_dict({**tree, "tokenizer": str(tmp_path / "few.json")}), tmp_path / "few")
    with pytest.raises(WorkbenchError, match=r"it does not know \d+ of the \d+ tokens that the student reads, such as"):
        tuned(pretrained, "none", teacher=[str(tuned(few, "small"))])
    turned = tree_of(texts, corpus, POOLED, [{**HOUR, "classes": ["b", "a"], "name": "classify"}])
    teacher = pretrain(recipe_from_dict(turned), tmp_path / "turned")
    run = load(tuned(pretrained, "taught", teacher=[str(teacher)]))
    own = load(teacher).model.heads["classify"].classifier.weight
    assert torch.equal(run.model.heads["teacher"].classifier.weight, own.flip(0))
