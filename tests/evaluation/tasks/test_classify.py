"""Classification of texts, from raw lines to the result, and the metrics that a held-out pass measures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, network, prepare, pretrain_on, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.finetuning.seed_runs import fine_tune_seeds
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.task_panels import classified
from workbench.evaluation.tasks.classify import Classification
from workbench.objectives.classify import Classify
from workbench.recipe.trees import recipe_from_dict
from workbench.report.run import load_run
from workbench.runs.loaded_run import load
from workbench.sequences.sequence import Sequence, text_fields
from workbench.training.held_out import Measured
from workbench.training.pretrain import pretrain

GOOD, BAD = ["good", "new", "lost"], ["bad", "old"]


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Films that are good (1, three in five) or bad (0), by one word."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        label = int(rng.random() < 0.6)
        made.append({"text": f"the film is {rng.choice(GOOD if label else BAD)} .", "labels": {"verdict": label}})
    return made


def contract_world(folder: Path) -> World:
    base, corpus = pretrain_on(make_texts(folder)), prepare(folder, "train", rows(24, 0))
    return World(fine_tune(Classification(), tuning(base, corpus, folder / "run", epochs=1.0)), corpus, base, {})


CASE = EvaluationCase(world=contract_world)


def tuning(run: Path, corpus: str, output: Path, *overrides: str, **options: Any) -> ClassifyTuning:
    wanted: dict[str, Any] = {"epochs": 6.0, "batch_size": 8, "lr": 1e-2, **options}
    quick = ["train.num_workers=0", *overrides]
    return ClassifyTuning(run=run, corpus=corpus, output=output, overrides=quick, **wanted)


@pytest.fixture(scope="session")
def tuned(pretrained: Path, prepared: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    train, dev = prepared("movies", rows(64, 0)), prepared("movies-dev", rows(20, 1))
    best = ["train.evaluate_every=12", "train.best=classify/macro_f1"]
    output = tmp_path_factory.mktemp("classify") / "run"
    return fine_tune(Classification(), tuning(pretrained, train, output, *best, held_out=dev))


def test_it_learns_and_the_majority_does_not(tuned: Path, prepared: Callable[..., str]) -> None:
    found = evaluate(Classification(), ClassifyScoring(run=tuned, corpus=prepared("movies-dev", [])))
    assert found.numbers["accuracy"] == found.numbers["macro_f1"] == found.numbers["mcc"] == 1
    assert found.counts == {"texts": 20, "classes": 2, "classes never predicted": 0}
    assert {name: of["f1"] for name, of in found.classes.items()} == {"0": 1, "1": 1}
    share = sum(row["labels"]["verdict"] for row in rows(20, 1)) / 20
    assert found.baselines["always 1"]["accuracy"] == pytest.approx(share)
    assert found.baselines["always 1"]["mcc"] == 0
    assert found.examples[0] == {"text": rows(20, 1)[0]["text"], "second": "", "prediction": "1", "label": "1"}
    shown = classified(load_run(tuned))
    assert shown is not None
    assert "✓ 1" in shown


def test_a_run_with_other_classes_continues_with_a_fresh_head(
    tuned: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    other = prepared(
        "three", [{"text": f"the film is {word} .", "labels": {"stars": i % 3}} for i, word in enumerate(GOOD)]
    )
    again = fine_tune(Classification(), tuning(tuned, other, tmp_path / "other", epochs=1.0))
    assert dict(load(again).recipe.tasks["classify"].objectives[0])["classes"] == ["0", "1", "2"]
    kept = recipe_of(Classification(), tuning(tuned, prepared("movies", []), tmp_path / "same"))
    assert kept.networks["main"].init_from[0].heads is None


def test_a_metric_of_the_whole_pass_chooses_the_best_checkpoint(tuned: Path, prepared: Callable[..., str]) -> None:
    lines = [json.loads(line) for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    measured = [line["held_out/classify/macro_f1"] for line in lines if "held_out/classify/macro_f1" in line]
    state = json.loads((tuned / "best" / "state.json").read_text())
    assert state["best"]["metric"] == "held_out/classify/macro_f1"
    assert state["best"]["value"] == max(measured)
    result = evaluate(Classification(), ClassifyScoring(run=tuned, corpus=prepared("movies-dev", [])))
    assert result.numbers["macro_f1"] == pytest.approx(max(measured))


def test_streams_that_pretrainings_objective_made_may_stay_empty(
    texts: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    model = network(16)
    model["streams"]["asking"] = {"embedding": "vector", "hidden_size": 16}
    model["layers"][0] |= {"layer": "two_stream", "query": "asking"}
    tree = recipe_tree(texts, model, [{"objective": "plm", "query": "asking"}])
    run = pretrain(recipe_from_dict(tree), tmp_path / "permuted")
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0"]
    tuned = fine_tune(Classification(), tuning(run, prepared("movies", rows(64, 0)), tmp_path / "tuned", *quick))
    assert load(tuned).recipe.tasks.keys() == {"classify"}


def test_several_seeds_are_tabulated(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    train, dev = prepared("movies", rows(64, 0)), prepared("movies-dev", rows(20, 1))
    with pytest.raises(WorkbenchError, match="no corpus is named for it; pass --held-out"):
        fine_tune_seeds(Classification(), tuning(pretrained, train, tmp_path / "x", seeds=2))
    options = {"epochs": 1.0, "seeds": 3, "held_out": dev}
    several = tuning(pretrained, train, tmp_path / "x", score=["limit=12"], **options)
    spread = fine_tune_seeds(Classification(), several)
    logs = [(Path(run) / "log.txt").read_text() for run in spread.runs]
    assert not any("is never evaluated" in log for log in logs)  # the test corpus is read after the trainings
    assert spread.options == {"limit": 12}
    always = spread.baselines["always 1"]
    assert 0 < always["accuracy"] < 1
    for wrong, message in (("limet=3", "unknown option 'limet'.*limit"), ("limit=none", "--score limit")):
        with pytest.raises(WorkbenchError, match=message):
            fine_tune_seeds(Classification(), tuning(pretrained, train, tmp_path / "y", score=[wrong], **options))
    with pytest.raises(WorkbenchError, match="--score limit=12: options of the evaluation need --seeds"):
        fine_tune(Classification(), tuning(pretrained, train, tmp_path / "y", score=["limit=12"]))
    assert not list(tmp_path.glob("y*"))
    assert [Path(run).name for run in spread.runs] == ["x-seed-0", "x-seed-1", "x-seed-2"]
    assert [load(run).recipe.seed for run in spread.runs] == [0, 1, 2]
    accuracies = [numbers["accuracy"] for numbers in spread.runs.values()]
    written = json.loads((tmp_path / "x-seeds.json").read_text())["numbers"]["accuracy"]
    assert written["mean"] == pytest.approx(np.mean(accuracies))
    assert written["deviation"] == pytest.approx(np.std(accuracies, ddof=1))


def test_what_cannot_be_learned_is_refused(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    plain = prepared("plain", [{"text": "the film is good ."}])
    several = prepared("several", [{"text": "the film is good .", "labels": {"verdict": 1, "stars": 5}}])
    for corpus, label, message in [
        (plain, None, "has no labels"),
        (several, None, "has the labels stars, verdict; choose one: --label"),
        (several, "star", "unknown label 'star'"),
        (several, "stars", "have stars = 5; nothing can be learned"),
    ]:
        with pytest.raises(WorkbenchError, match=message):
            recipe_of(Classification(), tuning(pretrained, corpus, tmp_path / "run", label=label))


def test_classes_that_the_run_does_not_know_are_named(tuned: Path, prepared: Callable[..., str]) -> None:
    odd = prepared("odd", [{"text": "the film is good .", "labels": {"verdict": 7}}])
    plain = prepared("plain", [{"text": "the film is good ."}])
    for corpus, message in ((odd, "unknown class '7'"), (plain, "no texts with the label 'verdict'")):
        with pytest.raises(WorkbenchError, match=message):
            evaluate(Classification(), ClassifyScoring(run=tuned, corpus=corpus))


def test_a_class_that_training_lacks_is_wrong_and_counted(
    tuned: Path, prepared: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    known = rows(8, 2)
    other = [{"text": "the film is good .", "labels": {"verdict": label}} for label in ("awful", "awful", 7)]
    alone, mixed = (
        evaluate(Classification(), ClassifyScoring(run=tuned, corpus=prepared(name, made)))
        for name, made in (("known-classes", known), ("other-classes", [*known, *other]))
    )
    assert mixed.numbers["accuracy"] == pytest.approx(alone.numbers["accuracy"] * 8 / 11)
    assert mixed.counts["gold of unknown classes"] == 3
    assert "gold of unknown classes" not in alone.counts
    assert mixed.classes["awful"] == {"precision": 0, "recall": 0, "f1": 0, "gold": 2, "predicted": 0}
    assert [line["gold"] for line in mixed.predictions.lines[8:]] == ["awful", "awful", "7"]
    assert [*mixed.predictions.lines[8]["scores"]] == ["0", "1"]
    (said,) = [record.getMessage() for record in caplog.records if "does not know" in record.getMessage()]
    assert (
        "has 3 gold labels of 2 classes that the run does not know, and they count as wrong: awful (2), 7 (1)" in said
    )


def test_classes_that_look_alike_are_reported_and_those_of_the_held_out_set_are_known(
    pretrained: Path, prepared: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def labelled(name: str, *labels: str | int) -> str:
        return prepared(name, [{"text": "the film", "labels": {"verdict": label}} for label in labels])

    mixed = labelled("mixed", "good", "Good", "bad", 1, 1.0)
    wanted = tuning(pretrained, mixed, tmp_path / "run", held_out=labelled("awful", "awful", "bad"))
    (objective,) = recipe_of(Classification(), wanted).tasks["classify"].objectives
    assert objective["classes"] == ["1", "1.0", "Good", "awful", "bad", "good"]
    (warning,) = [record.getMessage() for record in caplog.records if "look alike" in record.getMessage()]
    assert "'1' (1 texts) and '1.0' (1 texts); 'Good' (1 texts) and 'good' (1 texts)" in warning
    assert "some are numbers ('1' (1 texts)), others names ('Good' (1 texts))" in warning


def test_a_long_text_is_one_item_and_a_pair_keeps_both(tuned: Path, prepared: Callable[..., str]) -> None:
    task = load(tuned).tasks["classify"]
    assert (task.builder.unit, task.builder.window) == (None, None)
    long = {"key": "a", "draw": (0,), "text": "the film is good . " * 30, "labels": {"verdict": 1}}
    (sequence,) = task.sequences([long])
    assert sequence.length("text") <= task.builder.max_length
    assert not sequence.streams["text"]["token_type_ids"].any()


def test_ranks_measure_together_in_the_order_of_the_pass() -> None:
    class Recording(Classify):
        def measure(self, made: Any) -> dict[str, float]:
            return {"predicted": float("".join(str(int(p)) for p in made["predicted"]))}

    class Task:
        name = "movies"

        def __init__(self) -> None:
            placed = Recording(["no", "yes"])
            self.objectives = [type("Placed", (), {"name": "classify", "objective": placed})()]

    ranks = [Measured({"movies": Task()}) for _ in range(2)]  # type: ignore[dict-item]
    for number in range(2):
        for lane, rank in enumerate(ranks):
            made = {"predicted": torch.tensor([number, lane]), "gold": torch.zeros(2)}
            rank.add(("movies", "classify"), (number, lane), made)
    world: Any = type("World", (), {"gather": lambda self, kept: [rank.kept for rank in reversed(ranks)]})()
    assert ranks[0].metrics(world) == {"classify/predicted": 11011.0}
    with pytest.raises(WorkbenchError, match="unknown tensor 'predicted'"):
        ranks[0].add(("movies", "classify"), (0, 0), {})


def test_a_sequence_without_the_label_is_not_counted() -> None:
    objective = Classify(["no", "yes"], label="verdict")
    objective.name = "classify"
    text = {"text": text_fields(np.arange(3))}
    made = [Sequence(text, (0,)), Sequence(text, (1,), labels={"verdict": 1})]
    with pytest.raises(WorkbenchError, match=r"unknown class '1'.* It belongs to another set of labels"):
        objective.corrupt(made, None)  # type: ignore[arg-type]
    made[1].labels = {"verdict": "yes"}  # type: ignore[dict-item]
    objective.corrupt(made, None)  # type: ignore[arg-type]
    assert [int(s.targets["classify"]["labels"][0]) for s in made] == [-100, 1]
