"""The overview of a run before its first step, on lines and on a terminal; and the rates in the lines of its steps."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.short_runs import shorter
from tests.training.test_ranks import free_port
from workbench.core.terminal import Terminal
from workbench.corpora.reading.reader import Reader
from workbench.pretraining.loader import MicroBatches
from workbench.pretraining.schedule import TaskSchedule
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.capacity import GIB
from workbench.training.plan import check
from workbench.training.preamble import Preamble
from workbench.training.pretrain import pretrain

SOON = 60


def facts(run: Path) -> dict[str, str]:
    """The block in log.txt, the last one of it."""
    lines = [line.split(" ", 2)[2] for line in (run / "log.txt").read_text().splitlines() if line.count(" ") > 1]
    first = max(i for i, line in enumerate(lines) if line.startswith("run  "))
    block = lines[first : next(i for i, line in enumerate(lines) if i > first and line.startswith("expected")) + 1]
    return {line.partition("  ")[0].strip(): line.partition("  ")[2].strip() for line in block}


def test_the_block(recipe: Recipe, tmp_path: Path) -> None:
    recipe = replace(recipe, name="tiny", description="A model of two layers.")
    run = pretrain(shorter(recipe, max_steps=35, freeze=["*embeddings*"]), tmp_path / "run", until=1)
    reported = facts(run)
    assert reported["run"] == f"{run}: new, up to step 1 of 35"
    assert reported["recipe"] == "tiny: A model of two layers."
    assert reported["model"] == "2 x self(text) (width: text 16)"
    trained, _, every = reported["parameters"].partition(" trained of ")
    weights = read_sizes(run)
    assert int(every.replace(",", "")) == sum(weights.values())
    assert int(trained.replace(",", "")) == sum(n for name, n in weights.items() if "embeddings" not in name)
    assert reported["device"].startswith("cpu, 1 thread, ")
    assert reported["device"].endswith(" free, loading in the main process")
    assert reported["precision"] == "float32"
    assert reported["task text"] == "train, 120 texts of 13,680 characters in 210 items, 2 epochs"  # 35 x 12 / 210
    assert reported["batch"] == "12 = 4 x 3 accumulated x 1 rank"
    assert reported["expected memory"].startswith("weights, gradients and moments take ")
    pretrain(shorter(recipe, max_steps=35, freeze=["*embeddings*"]), run, until=2)
    assert facts(run)["run"] == f"{run}: continues from step 1, up to step 2 of 35"


def on_two_ranks(launch: Any, recipe: Path, run: Path, *overrides: str, **also: str) -> list[str]:
    """The outputs of two ranks."""
    port = free_port()
    ranks = [launch(recipe, run, *overrides, rank=rank, size=2, port=port, **also) for rank in range(2)]
    ends = [rank.wait(SOON) for rank in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    return [output for _, output in ends]


def fact(output: str, name: str) -> str:
    """What a line of the block says, without the free memory, which changes."""
    (line,) = [line for line in output.splitlines() if f" {name}  " in f" {line}"]
    return re.sub(r" of [\d,.]+ [GM]iB", "", line.partition(f"{name}  ")[2].strip())


@pytest.mark.scale
def test_a_dry_run_of_shards_says_what_the_run_says(make_recipe: Any, launch: Any, tmp_path: Path) -> None:
    """The head of a global-batch objective and buffers are whole on every rank. The main rank alone prints."""

    def contrasting(tree: dict[str, Any]) -> None:
        tree["model"]["poolers"] = ["text"]
        tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Contrast"})

    recipe, shard = make_recipe(contrasting), "train.parallel.shard=full"
    dry, silent = on_two_ranks(launch, recipe, tmp_path / "run", shard, "--dry-run")
    real, _ = on_two_ranks(launch, recipe, tmp_path / "run", shard, "train.max_steps=4")
    for name in ("expected memory", "parameters", "batch", "parallel"):
        assert fact(dry, name) == fact(real, name)
    assert fact(dry, "parallel") == "parameters sharded over 2 ranks"
    idle = "1 rank idle in the last of 2 passes"
    assert fact(dry, "batch") == f"12 = 4 x 3 micro-batches, 1 or 2 on each of 2 ranks; {idle}"
    words = " ".join(dry.split())
    assert words.index("expected memory") < words.index("can start; this was a dry run")
    assert "dry run" not in silent
    nodes = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    apart, _ = on_two_ranks(launch, recipe, tmp_path / "nodes", "train.parallel.shard=node", "--dry-run", **nodes)
    assert fact(apart, "parallel") == "nothing is sharded: each node has one rank, so shard = node has no effect"


def read_sizes(run: Path) -> dict[str, int]:
    """Numbers of every tensor of the run's model."""
    import workbench

    return {name: p.numel() for name, p in workbench.load(run).torch.named_parameters()}


def test_a_table_on_a_terminal(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It shows names chosen by users, in which nothing is markup; log.txt has its lines."""
    monkeypatch.setattr(
        "workbench.training.pretrain.Terminal",
        lambda **_: Terminal(stderr=True, force_terminal=True, width=60, color_system=None),
    )
    recipe = replace(recipe, description="[red]of \x1b]0;them[/] " + "long " * 20)
    run = pretrain(shorter(recipe, max_steps=2), tmp_path / "run")
    said = capfd.readouterr().err
    assert "[red]of" in said
    assert "\x1b]0" not in said
    assert said.count("expected memory") == 1
    assert facts(run)["batch"] == "12 = 4 x 3 accumulated x 1 rank"
    assert not [line for line in said.splitlines() if "batch" in line and "2026-" in line]


def test_epochs_are_those_of_the_order(make_recipe: Any, world_folder: Path) -> None:
    """As a count over the steps says, whatever the schedule."""

    def staged(tree: dict[str, Any]) -> None:
        text = tree["tasks"]["text"]
        first = {**text, "objectives": [{"objective": "mlm", "name": "first"}]}
        tree["tasks"] = {"text": text, "first": first}

    recipe = load_recipe(str(make_recipe(staged)))
    text, first = recipe.tasks["text"], recipe.tasks["first"]
    kinds: dict[str, dict[str, Any]] = {
        "together": {"text": text, "first": first},
        "sampled": {"text": replace(text, weight=3.0), "first": replace(first, weight=0.7)},
        "staged": {"text": replace(text, start_step=2), "first": replace(first, end_step=9)},
    }
    for kind, tasks in kinds.items():
        schedule = TaskSchedule(kind, tasks, 5)  # type: ignore[arg-type]
        for steps in (0, 1, 7, 60):
            turns = [turn.task for step in range(steps) for turn in schedule.at(step)]
            assert {name: schedule.turns(name, steps) for name in tasks} == {n: turns.count(n) for n in tasks}


def test_a_slow_loader_is_seen(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = read_metrics(pretrain(shorter(recipe, max_steps=3), tmp_path / "quick"))
    made = MicroBatches.micro_batch

    def slow(self: MicroBatches, place: Any) -> Any:
        time.sleep(0.2)
        return made(self, place)

    monkeypatch.setattr(MicroBatches, "micro_batch", slow)
    run = pretrain(shorter(recipe, max_steps=3), tmp_path / "slow")
    lines = read_metrics(run)
    assert all(0 < line["data_wait_share"] <= 1 for line in (*quick, *lines))
    assert lines[-1]["data_wait_share"] * lines[-1]["seconds_per_step"] >= 3 * 0.2
    assert lines[-1]["data_wait_share"] > quick[-1]["data_wait_share"]
    log = (run / "log.txt").read_text()
    for unit in ("tokens/s", "samples/s", "MFU ", "GiB  data wait "):
        assert unit in log.split("step 3/3")[1]


def test_readers_say_what_they_read(recipe: Recipe) -> None:
    from workbench.pretraining.assembly import tasks_of
    from workbench.text.tokenizer import Tokenizer
    from workbench.training.data import reader_of

    task = tasks_of(recipe, Tokenizer.load(str(recipe.tokenizer)))["text"]
    reader = reader_of(recipe, task)
    assert isinstance(reader, Reader)
    assert [corpus.name for corpus in reader.corpora] == ["train"]


def test_a_card_with_room_for_more_is_reported(make_recipe: Any, tmp_path: Path) -> None:
    """`train.micro_batch_size=auto` is proposed where it would find a larger power of two than the recipe has."""
    shape = {"global_batch_size": 64, "micro_batch_size": 4}
    recipe = load_recipe(str(make_recipe(lambda tree: tree["train"].update(shape))))
    about = Preamble(check(recipe, tmp_path / "run"), 0, 1, 0)
    held = about._resident()
    step = held + 4 * GIB  # a GiB for each sample
    assert about.roomier(step, round((held + 16 * GIB) / 0.84)) == 16
    assert about.roomier(step, round((held + 15 * GIB) / 0.84)) == 8
    assert about.roomier(step, 10**15) == 64
    assert about.roomier(step, step) == 0
