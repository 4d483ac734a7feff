"""A run from a recipe: metrics, checkpoints, going on exactly, loading."""

from __future__ import annotations

import itertools
import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import GroupSpec, InitFrom, NetworkSpec, Recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics import read_metrics
from workbench.runs.names import MODEL
from workbench.runs.weights import read_weights
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training import pretrain as runs
from workbench.training.pretrain import pretrain
from workbench.training.verify import verify_resume


def losses(run: Path, name: str = "mlm/loss") -> list[float]:
    return [record[name] for record in read_metrics(run) if name in record]


def shorter(recipe: Recipe, **changes: Any) -> Recipe:
    """With other keys of `train`; the warm-up ends in time."""
    steps = changes.get("max_steps", recipe.train.max_steps)
    schedule = {**recipe.train.lr_schedule, **changes.pop("lr_schedule", {})}
    schedule["warmup_steps"] = min(schedule["warmup_steps"], steps - 1)
    return replace(recipe, train=replace(recipe.train, lr_schedule=schedule, **changes))


def test_loss_falls_and_the_folder_is_complete(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(shorter(recipe, max_steps=40, lr=0.02), tmp_path / "run")
    values = losses(run)
    assert len(values) == 40
    assert sum(values[-5:]) < 0.8 * sum(values[:5])
    record = read_metrics(run)[-1]
    for name in ("lr", "grad_norm", "tokens_per_second", "samples_per_second", "seconds", "memory_gib"):
        assert record[name] > 0
    assert 0 < record["model_flops_utilisation"] < 1.5
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-35", "step-40"]
    assert (run / "recipe.yaml").is_file()
    assert "step 40/40" in (run / "log.txt").read_text()
    assert list((run / "tensorboard").iterdir())


def test_resumed_equals_uninterrupted(recipe: Recipe, tmp_path: Path) -> None:
    verdict = verify_resume(recipe, tmp_path / "proof", 8)
    assert verdict.equal
    assert verdict.compared >= 16


def test_verify_resume_sees_a_difference(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.training import trainer

    def forgetful(folder: Path, root: Any, optimizer: Any) -> Any:
        state = restore(folder, root, optimizer)
        optimizer.state.clear()
        return state

    restore = trainer.restore
    monkeypatch.setattr(trainer, "restore", forgetful)
    verdict = verify_resume(recipe, tmp_path / "proof", 8)
    assert not verdict.equal
    assert verdict.different[0][0] > 4


def test_metrics_windows_survive_a_restart(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, log_every=4, max_steps=8)
    pretrain(recipe, tmp_path / "whole")
    for until in (3, 6, 8):
        pretrain(recipe, tmp_path / "parted", until=until)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parted")


def test_workers_change_nothing(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=5)
    pretrain(recipe, tmp_path / "none")
    pretrain(shorter(recipe, num_workers=2), tmp_path / "two")
    assert losses(tmp_path / "none") == losses(tmp_path / "two")


def test_lines_beyond_the_checkpoint_are_taken_out(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=6)
    pretrain(recipe, tmp_path / "run", until=3)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "mlm/loss": 99}\n{"step": 5, "mlm/l')
    pretrain(recipe, tmp_path / "run")
    pretrain(recipe, tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.parametrize("optimizer", ["lamb", "adafactor"])
def test_optimizers_groups_and_late_starts_go_on_exactly(recipe: Recipe, tmp_path: Path, optimizer: str) -> None:
    groups = [GroupSpec("heads", lr_factor=2.0), GroupSpec("networks.main.embeddings", start_step=4)]
    recipe = shorter(
        recipe,
        max_steps=8,
        optimizer={"optimizer": optimizer},
        groups=groups,
        layer_decay=0.8,
        save_every=1,
        keep_last=9,
    )
    pretrain(recipe, tmp_path / "whole")
    pretrain(recipe, tmp_path / "run", until=3)
    pretrain(recipe, tmp_path / "run")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    name, steps = "networks.main.embeddings.text.token.weight", Checkpoints(tmp_path / "run")
    tables = [read_weights(steps.path(step) / MODEL)[name] for step in steps.steps()]
    assert [torch.equal(a, b) for a, b in itertools.pairwise(tables)] == [True] * 3 + [False] * 4


def test_another_recipe_is_refused_with_the_keys(recipe: Recipe, tmp_path: Path) -> None:
    pretrain(recipe, tmp_path / "run", until=1)
    with pytest.raises(WorkbenchError, match=r"train\.lr: 0\.01 -> 0\.5") as refused:
        pretrain(shorter(recipe, lr=0.5, save_every=7), tmp_path / "run")
    assert "save_every" not in str(refused.value)
    pretrain(shorter(recipe, save_every=7), tmp_path / "run", until=2)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_steps_that_decide_the_learning_rate_stay(recipe: Recipe, tmp_path: Path, schedule: str) -> None:
    recipe = shorter(recipe, lr_schedule={"lr_schedule": schedule})
    run = pretrain(recipe, tmp_path / "run", until=2)
    before = (run / "recipe.yaml").read_text()
    with pytest.raises(WorkbenchError, match=r"train\.max_steps: 20 -> 30\n.*\n.*model\.init_from="):
        pretrain(shorter(recipe, max_steps=30), run)
    assert (run / "recipe.yaml").read_text() == before


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt"])
def test_steps_that_decide_nothing_may_change(recipe: Recipe, tmp_path: Path, schedule: str) -> None:
    recipe = shorter(recipe, lr_schedule={"lr_schedule": schedule})
    run = pretrain(shorter(recipe, max_steps=4), tmp_path / "longer")
    pretrain(shorter(recipe, max_steps=8), run)
    pretrain(shorter(recipe, max_steps=8), tmp_path / "whole")
    assert losses(run) == losses(tmp_path / "whole")


def test_another_tokenizer_is_refused_by_its_content(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    words = Tokenizer(train_tokenizer(["the old river runs"] * 9, "wordpiece", 60)).save(tmp_path / "other.json")
    before = (run / "recipe.yaml").read_text()
    for tokenizer in (str(words), None):
        with pytest.raises(WorkbenchError, match="which is another; go on with tokenizer="):
            pretrain(replace(recipe, tokenizer=tokenizer), run)
    with pytest.raises(WorkbenchError, match="there is no tokenizer at"):
        pretrain(replace(recipe, tokenizer=str(tmp_path / "gone.json")), run)
    assert (run / "recipe.yaml").read_text() == before
    moved = tmp_path / "moved.json"
    shutil.copy(str(recipe.tokenizer), moved)
    for tokenizer in (str(run / "tokenizer.json"), str(moved)):
        pretrain(replace(recipe, tokenizer=tokenizer), run, until=2)
        assert f"tokenizer: {tokenizer}" in (run / "recipe.yaml").read_text()
    moved.unlink()
    pretrain(replace(recipe, tokenizer=str(moved)), run, until=3)  # a run is whole without its inputs


def test_the_best_of_an_attempt_without_a_checkpoint_is_not_the_next_ones(recipe: Recipe, tmp_path: Path) -> None:
    """As a kill between `best` and the first checkpoint leaves it."""
    run = pretrain(recipe, tmp_path / "run", until=1)
    (run / "checkpoints" / "step-1").rename(run / "best")
    (run / "data.json").unlink()  # which names a run with its first checkpoint
    pretrain(replace(recipe, seed=7), run, until=2)
    pretrain(replace(recipe, seed=7), tmp_path / "alone", until=2)
    assert not (run / "best").exists()
    assert same_weights(run, tmp_path / "alone")


def test_the_best_of_another_run_is_not_used(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    other = pretrain(replace(recipe, seed=7), tmp_path / "other", until=2)
    shutil.copytree(other / "checkpoints" / "step-2", run / "best")
    before = workbench.load(run).model.state_dict()
    shutil.rmtree(run / "best")
    assert all(torch.equal(before[name], tensor) for name, tensor in workbench.load(run).model.state_dict().items())


def same_weights(one: Path, other: Path) -> bool:
    first, second = workbench.load(one).model.state_dict(), workbench.load(other).model.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_damaged_weights_are_not_loaded(recipe: Recipe, tmp_path: Path, name: str) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    path = run / "checkpoints" / "step-1" / name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    for use in (lambda: workbench.load(run), lambda: pretrain(started_from(recipe, run), tmp_path / "next", until=1)):
        with pytest.raises(WorkbenchError, match=r"step-1 is no whole checkpoint: .* move it away"):
            use()


def started_from(recipe: Recipe, run: Path) -> Recipe:
    assert isinstance(recipe.model, NetworkSpec)
    return replace(recipe, model=replace(recipe.model, init_from=[InitFrom(str(run))]))


def test_damaged_lines_of_metrics_are_set_aside(
    recipe: Recipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = pretrain(recipe, tmp_path / "run", until=3)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    bad = [b'{"mlm/loss": 1}\n', b"\xff\xfe{}\n", b"[1]\n", b'{"step": "2"}\n', b"[" * 9999 + b"\n"]
    (run / "metrics.jsonl").write_bytes(b"".join([lines[0], *bad, *lines[1:]]))
    assert [record["step"] for record in read_metrics(run)] == [1, 2, 3]
    assert "5 damaged lines" in caplog.text
    pretrain(recipe, run, until=4)
    assert (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:3] == lines
    assert (run / "metrics.damaged.jsonl").read_bytes() == b"".join(bad)


def test_what_a_kill_leaves_in_the_folder_does_not_stop_the_next_start(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    for rest in (".metrics.jsonl.tmp", ".tokenizer.json.15520.tmp", ".recipe.yaml.ab12.part", ".lock"):
        (run / rest).write_text("half")
    pretrain(recipe, run, until=2)
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def test_a_start_that_was_killed_at_once_does_not_stop_the_next(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for rest in (".lock", f".recipe.yaml.99999999@{socket.gethostname()}.x1.part"):
        (run / rest).write_text("half")
    pretrain(recipe, run, until=1)
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def test_a_signal_during_the_start_saves_the_first_step(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = runs.check_training

    def signalled(*given: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        plain(*given)

    monkeypatch.setattr(runs, "check_training", signalled)  # called once, at a first start
    with pytest.raises(runs.Stopped) as stopped:
        pretrain(recipe, tmp_path / "run")
    assert stopped.value.code == 143
    assert Checkpoints(tmp_path / "run").steps() == [1]
    assert not (tmp_path / "run" / ".lock").exists()


def test_evaluating_on_nothing_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="evaluate_every = 2, but no task names held-out corpora"):
        pretrain(shorter(recipe, max_steps=4, evaluate_every=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_things_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    with pytest.raises(WorkbenchError, match="not empty and not a run"):
        pretrain(recipe, tmp_path / "run")


def test_a_finished_run_stays_as_it_is(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=2)
    run = pretrain(recipe, tmp_path / "run")
    before = (run / "metrics.jsonl").read_text()
    pretrain(recipe, run)
    assert (run / "metrics.jsonl").read_text() == before


def test_load_gives_the_trained_model(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(shorter(recipe, max_steps=3), tmp_path / "run")
    one, two = workbench.load(run), workbench.load(run)
    samples = [{"key": "a", "text": "the old river", "draw": (0, 0, 0)}]
    batch = one.transforms["text"].micro_batch(samples, (0, 0, 0))
    with torch.no_grad():
        first, second = (loaded.model(batch, ["mlm"])["mlm"].loss for loaded in (one, two))
    assert torch.equal(first, second)
    assert one.tokenizer is not None
    assert one.tokenizer.vocab_size == 90
    assert not one.model.training


def test_load_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="not a run"):
        workbench.load(tmp_path)


def test_held_out_losses_and_best(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=12, evaluate_every=4, best="mlm/loss", lr=0.02)

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    values = losses(run, "held_out/mlm/loss")
    assert len(values) == 3
    assert values[-1] < values[0]
    assert (run / "best" / "model.safetensors").is_file()
    loaded = workbench.load(run)
    assert loaded.recipe.train.best == "mlm/loss"


def test_a_limited_evaluation_says_how_much_it_reads(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=2, lr_schedule="linear", evaluate_every=1, evaluate_steps=1)

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    assert "tasks.text: held-out losses read 12 of 32 items" in (run / "log.txt").read_text()


def test_held_out_corruption_is_the_same_every_time(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=4, evaluate_every=1, lr=1e-30, lr_schedule="linear")

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    values = losses(run, "held_out/mlm/loss")
    assert len(values) == 4
    assert len(set(values)) == 1


def test_best_names_a_metric_that_exists(make_recipe: Any, world_folder: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=1, lr_schedule="linear", evaluate_every=1, best="mlm/los")

    with pytest.raises(WorkbenchError, match="Did you mean 'held_out/mlm/loss'"):
        pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")


def test_non_finite_loss_stops_before_the_update(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"].append({"objective": "toy_parts:Exploding", "name": "boom", "steps": 3})
        tree["train"].update(save_every=1, keep_last=1)

    recipe = load_recipe(str(make_recipe(change)), trust=True)
    with pytest.raises(WorkbenchError, match="step 4: the loss of objective 'boom' of task 'text' is nan"):
        pretrain(recipe, tmp_path / "run")
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-3"]
    weights = workbench.load(tmp_path / "run", trust=True).model.state_dict()
    assert all(torch.isfinite(t).all() for t in weights.values())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_the_loader_keeps_its_words(make_recipe: Any, tmp_path: Path, workers: int) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"] = [{"objective": "mlm"}, {"objective": "toy_parts:Contrast"}]
        tree["tasks"]["text"]["sequence"]["steps"] = [{"step": "toy_parts:Failing"}]
        tree["train"]["num_workers"] = workers

    with pytest.raises(
        WorkbenchError, match=r"^tasks\.text\.sequence\.steps\[0\]: step 'toy_parts:Failing': sample r\d+ is bad$"
    ):
        pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run")


def test_init_from_a_run(make_recipe: Any, recipe: Recipe, tmp_path: Path) -> None:
    source = pretrain(shorter(recipe, max_steps=15, lr=0.02), tmp_path / "source")
    changed = load_recipe(str(make_recipe(lambda t: t["model"].update(init_from=str(source)))))
    pretrain(shorter(changed, lr=1e-30, max_steps=2), tmp_path / "copy")
    one, two = workbench.load(source).model.state_dict(), workbench.load(tmp_path / "copy").model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_init_from_nothing_that_fits(make_recipe: Any, tmp_path: Path) -> None:
    nowhere = load_recipe(str(make_recipe(lambda t: t["model"].update(init_from=str(tmp_path / "nowhere")))))
    with pytest.raises(WorkbenchError, match="there is no such folder"):
        pretrain(nowhere, tmp_path / "run")


def test_init_from_another_size_names_the_tensor(make_recipe: Any, recipe: Recipe, tmp_path: Path) -> None:
    source = pretrain(shorter(recipe, max_steps=1), tmp_path / "source")

    def wider(tree: dict[str, Any]) -> None:
        tree["model"]["init_from"] = str(source)
        tree["model"]["streams"]["text"]["hidden_size"] = 32

    with pytest.raises(WorkbenchError, match=r"embeddings\.text\.\S+: found \[\d+, 16\], expected \[\d+, 32\]"):
        pretrain(load_recipe(str(make_recipe(wider))), tmp_path / "run")


def test_own_modules_travel_with_the_run(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"].append({"objective": "toy_parts:Contrast"})

    run = pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run", until=1)
    assert (run / "code" / "toy_parts.py").read_text() == (tmp_path / "toy_parts.py").read_text()
    assert "contrast" in workbench.load(run, trust=True).model.heads


def test_recomputed_activations_change_nothing(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=3)
    pretrain(recipe, tmp_path / "kept")
    pretrain(shorter(recipe, activation_checkpointing=True), tmp_path / "recomputed")
    assert losses(tmp_path / "kept") == losses(tmp_path / "recomputed")


def test_bfloat16_trains(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(shorter(recipe, max_steps=30, lr=0.02, precision="bfloat16"), tmp_path / "run")
    values = losses(run)
    assert sum(values[-5:]) < 0.8 * sum(values[:5])


def test_frozen_parts_stay(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=3, freeze=["networks.main.embeddings"])
    pretrain(recipe, tmp_path / "run", until=1)
    before = workbench.load(tmp_path / "run").model.state_dict()
    pretrain(recipe, tmp_path / "run")
    after = workbench.load(tmp_path / "run").model.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed
    assert not any("embeddings" in name for name in changed)
