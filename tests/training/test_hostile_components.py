"""Components that exit in unusual ways, or return values of the right type that cannot be: reported by name, never
silence."""

from __future__ import annotations

import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.show import show_batch
from workbench.core.errors import MachineError, WorkbenchError
from workbench.pretraining.workers import WorkerError
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

PLACE = "tasks.text.objectives[1]: objective 'hostile_components:Hostile'"


@pytest.fixture
def train(make_recipe: Any, tmp_path: Path) -> Any:
    def start(how: str, workers: int = 0, until: int = 2) -> None:
        def change(tree: dict[str, Any]) -> None:
            tree["tasks"]["text"]["objectives"].append({"objective": "hostile_components:Hostile", "how": how})
            tree["train"].update(num_workers=workers)

        pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run", until=until)

    return start


@pytest.mark.parametrize("how", ["local error", "error that cannot be sent", "interrupt"])
def test_whatever_a_worker_raises_arrives(train: Any, how: str) -> None:
    with pytest.raises(WorkerError) as raised:
        train(how, workers=1)
    reported = str(raised.value)
    assert 'hostile_components.py", line' in reported
    assert f"raised in {PLACE}" in reported
    assert not multiprocessing.active_children()


def test_a_micro_batch_that_cannot_be_sent_is_reported(train: Any) -> None:
    with pytest.raises(WorkerError, match=r"[Cc]an't (get|pickle) local object"):
        train("key that cannot be sent", workers=1)


def test_no_memory_in_a_worker_is_still_no_memory(train: Any) -> None:
    with pytest.raises(MachineError, match="out of memory on cpu"):
        train("memory", workers=1)


def test_a_worker_that_ends_with_code_0_is_lost_too(train: Any) -> None:
    with pytest.raises(MachineError, match=r"a loader worker \(process \d+\) ended with exit code 0; .*num_workers=0"):
        train("end the process", workers=1)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("how", "workers"), [("exit", 0), ("exit", 1), ("exit in __init__", 0), ("exit in forward", 0)]
)
def test_a_part_does_not_end_the_command(train: Any, how: str, workers: int) -> None:
    with pytest.raises(WorkbenchError, match=rf"^{re.escape(PLACE)}.*: it called sys\.exit\(0\)"):
        train(how, workers)


def test_a_module_does_not_end_the_command(make_recipe: Any, tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    path = make_recipe(lambda tree: tree["model"]["layers"].append({"layer": "leaving:Layer"}))
    with pytest.raises(WorkbenchError, match=r"^model\.layers\[1\]: layer 'leaving:Layer': it called sys\.exit\(0\)"):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stray_stop_iteration_is_a_bug(train: Any, workers: int) -> None:
    with pytest.raises((RuntimeError, WorkerError), match="StopIteration"):
        train("stop iteration", workers)


@pytest.mark.parametrize("value", ["-3.0", "inf", "nan", "True"])
def test_a_count_is_a_count(train: Any, value: str) -> None:
    with pytest.raises(WorkbenchError, match=rf"^{re.escape(PLACE)}: count returned {value}; allowed: .*finite"):
        train(f"count {value}")


def test_no_metric_takes_the_name_of_the_loss(train: Any) -> None:
    with pytest.raises(
        WorkbenchError, match=rf"^{re.escape(PLACE)}, its head.*metrics a dict with loss: .*named 'loss'"
    ):
        train("metric named loss")


def test_what_a_step_counts_is_counts(make_recipe: Any, tmp_path: Path) -> None:
    path = make_recipe(
        lambda tree: tree["tasks"]["text"]["sequence"].update(
            transforms=[{"transform": "hostile_components:Miscounting"}]
        )
    )
    with pytest.raises(
        WorkbenchError, match=r"^tasks\.text\.sequence\.transforms\[0\].*take_dropped returned a dict with short: -1"
    ):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run", until=1)


@pytest.mark.parametrize(
    ("rows", "reported"),
    [
        ([-1], r"returned row -1 of the stream 'text' with \d+"),
        ([999], r"returned row 999 of the stream 'text' with \d+"),
        ([0], "returned row 0, which is special"),
        ([1, 1], "returned row 1, twice"),
    ],
)
def test_masking_chooses_rows_that_it_may(make_recipe: Any, tmp_path: Path, rows: list[int], reported: str) -> None:
    masking = {"masking": "hostile_components:Fixed", "rows": rows}
    path = make_recipe(lambda tree: tree["tasks"]["text"]["objectives"][0].update(masking=masking))
    place = re.escape("tasks.text.objectives[0].masking: masking 'hostile_components:Fixed'")
    with pytest.raises(WorkbenchError, match=f"^{place}: __call__ {reported}|^{place} {reported}"):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run", until=1)


def test_a_masking_strategy_leaves_what_is_taken(make_recipe: Any, tmp_path: Path) -> None:
    masking = {"masking": "hostile_components:Fixed", "rows": [1]}
    first = {"objective": "mlm", "name": "first", "masking": masking}
    second = {"objective": "mlm", "name": "second", "masking": masking}
    path = make_recipe(lambda tree: tree["tasks"]["text"].update(objectives=[first, second]))
    with pytest.raises(WorkbenchError, match=r"objectives\[1\]\.masking.* returned row 1, which is taken"):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run", until=1)


def test_a_global_batch_head_embeds_as_many_rows_of_each_tensor(make_recipe: Any, tmp_path: Path) -> None:
    path = make_recipe(
        lambda tree: tree["tasks"]["text"]["objectives"].append({"objective": "hostile_components:Partial"})
    )
    with pytest.raises(WorkbenchError, match=r"its head: embed returned .*\[4, 1\].*\[3, 1\].* equally many rows"):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run", until=1)


def test_what_no_head_makes_to_be_measured_is_reported_before_the_first_step(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["train"]["evaluate_every"] = 10
        tree["tasks"]["text"]["held_out"] = [tree["tasks"]["text"]["corpora"][0].replace("train", "held-out")]
        tree["tasks"]["text"]["objectives"].append({"objective": "hostile_components:Ranked"})

    path = make_recipe(change)
    reported = r"unknown tensor 'rank' in measured by \S+, embedded by its global-batch head.*score"
    with pytest.raises(WorkbenchError, match=reported):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ("parameter in forward", r"new: heads\.hostile\.late"),
        ("buffer in forward", r"new: heads\.hostile\.seen"),
        ("new parameter in forward", r"replaced: heads\.hostile\.score\.bias"),
    ],
)
def test_what_forward_makes_is_refused_at_the_first_step(train: Any, tmp_path: Path, how: str, reported: str) -> None:
    with pytest.raises(WorkbenchError, match=rf"not those that it was built with; {reported}\. .*__init__"):
        train(how)
    assert not (tmp_path / "run").exists()


def test_a_metric_may_be_plain_numbers(train: Any, tmp_path: Path) -> None:
    train("metric float")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["hostile/odd"] for line in lines} == {0.25}


def test_a_metric_that_is_no_number_is_left_out(train: Any, tmp_path: Path) -> None:
    train("metric nan")

    def no_constant(found: str) -> None:
        raise AssertionError(found)

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=no_constant) for line in lines]
    assert [record["step"] for record in records] == [1, 2]
    assert all("hostile/odd" not in record and "hostile/loss" in record for record in records)
    said = (tmp_path / "run" / "log.txt").read_text()
    assert said.count("hostile/odd is nan; metrics.jsonl leaves it out") == 1


def test_a_run_that_learns_nothing_ends(make_recipe: Any, tmp_path: Path) -> None:
    path = make_recipe(
        lambda tree: tree["tasks"]["text"].update(
            objectives=[{"objective": "hostile_components:Hostile", "how": "no labels"}]
        )
    )
    with pytest.raises(WorkbenchError, match=r"nothing was learned in 3 steps: no objective \(hostile\) found a label"):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run", until=3)
    assert not list(tmp_path.glob("run/checkpoints/*"))


DETACHED = r"^tasks\.text\.objectives\[1\]: objective '\S+': its loss depends on no trained parameter"


@pytest.mark.parametrize("spec", [{"objective": "Hostile", "how": "detached"}, {"objective": "Whole"}])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_loss_without_gradient_is_refused_at_the_first_step(
    make_recipe: Any, tmp_path: Path, spec: dict[str, Any], lanes: int
) -> None:
    def change(tree: dict[str, Any], weight: float = 1.0) -> None:
        named = {**spec, "objective": f"hostile_components:{spec['objective']}", "weight": weight}
        tree["tasks"]["text"]["objectives"].append(named)
        tree["train"]["micro_batch_size"] = tree["train"]["global_batch_size"] // lanes

    with pytest.raises(WorkbenchError, match=DETACHED):
        pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run", until=1)
    assert not list(tmp_path.glob("run/checkpoints/*"))
    watched = load_recipe(str(make_recipe(lambda tree: change(tree, 0.0))), trust=True)
    pretrain(watched, tmp_path / "watched", until=1)


def test_a_run_without_sequences_ends(make_recipe: Any, tmp_path: Path) -> None:
    path = make_recipe(
        lambda tree: tree["tasks"]["text"]["sequence"].update(transforms=[{"transform": "hostile_components:Nothing"}])
    )
    with pytest.raises(WorkbenchError, match=r"nothing was learned in 20 steps: no objective \(mlm\)"):
        pretrain(load_recipe(str(path), trust=True), tmp_path / "run")


def test_an_objective_without_labels_is_reported_once(train: Any, tmp_path: Path) -> None:
    train("no labels", until=20)
    said = (tmp_path / "run" / "log.txt").read_text()
    assert said.count("objective hostile found no label in the first 20 steps") == 1
    assert "objective mlm" not in said


def test_no_sequences_are_shown_as_such(make_recipe: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_recipe(
        lambda tree: tree["tasks"]["text"]["sequence"].update(transforms=[{"transform": "hostile_components:Nothing"}])
    )
    show_batch(str(path), [], 2, trust=True)
    assert "task text, view main: 0 sequences" in capsys.readouterr().out


@pytest.mark.parametrize("foreign", [True, False])
def test_texts_that_the_tokenizer_does_not_know_are_reported(make_recipe: Any, tmp_path: Path, foreign: bool) -> None:
    def write(tree: Any) -> None:
        tree["tasks"]["text"]["objectives"] = [{"objective": "mlm"}]
        if foreign:
            tree["tokenizer"] = str(tmp_path / "other.json")

    Tokenizer(train_tokenizer(["\u0440\u0435\u043a\u0430"] * 9, "wordpiece", 30)).save(tmp_path / "other.json")
    pretrain(load_recipe(str(make_recipe(write)), trust=True), tmp_path / "run", until=2)
    lines = (tmp_path / "run" / "log.txt").read_text().splitlines()
    reported = [line for line in lines if "unknown to the tokenizer" in line]
    assert len(reported) == foreign
    assert all("other.json" in each and "tasks.text: " in each and "train" in each for each in reported)
