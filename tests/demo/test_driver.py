"""The demo's driver: jobs fit together, failures and signals are reported, the time left is estimated."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.demo.plan import WRITE, DemoJob, plan
from pipelines.demo.raw import RAW_SPLITS, write_raw_split
from pipelines.demo.together import IMPORTED, PRIOR, WINDOW, Board, DemoInterrupted, Pace, _ready, run_together
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import find_recipe, recipe_names


def job(*command: str, output: str, needs: tuple[str, ...] = (), weight: float = 1.0) -> DemoJob:
    return DemoJob("test", command, output, weight, needs)


def order(jobs: list[DemoJob]) -> list[DemoJob]:
    """The jobs in the order of one core."""
    waiting, done = list(jobs), list[DemoJob]()
    while waiting:
        following = _ready(waiting, [])
        assert following is not None
        waiting.remove(following)
        done.append(following)
    return done


def test_everything_is_made_before_it_is_used() -> None:
    made: set[str] = set()
    for each in order(plan()):
        read = [word for word in (*each.command, *each.needs) if word.startswith(("raw/", "corpora/", "runs/"))]
        for word in read:
            parts = {word, *map(str, Path(word).parents)}
            assert parts & made or word == each.output, f"{each.name}: {word} is not there yet"
        if each.command[0] == "pretrain":
            recipe = find_recipe(each.command[1])[0].read_text()
            data = re.findall(r"\$\{vars\.data\}/([\w.-]+)", recipe)
            assert {f"corpora/{name}" for name in data} <= set(each.needs)
        made.add(each.output)


def test_jobs_name_recipes_and_raw_files_that_there_are_and_logs_of_their_own() -> None:
    jobs = plan()
    assert {each.command[1] for each in jobs if each.command[0] == "pretrain"} <= set(recipe_names())
    assert {each.command[1] for each in jobs if each.command[0] == WRITE} == set(RAW_SPLITS)
    names = [each.name for each in jobs]
    assert len(set(names)) == len(names)


def test_a_job_waits_for_what_it_reads_and_for_others_that_write_the_same_output() -> None:
    first, second = job("a", output="raw/x"), job("b", "raw/x/y", output="z", needs=("w",))
    third, fourth = job("c", output="w"), job("d", output="z")
    assert _ready([second, first], []) == first
    assert _ready([second], [first]) is None
    assert _ready([second, third], []) == third
    assert _ready([second], []) == second
    assert _ready([fourth], [second]) is None


@pytest.mark.long
def test_jobs_side_by_side_keep_their_logs(tmp_path: Path) -> None:
    printed = io.StringIO()
    jobs = [job("recipes", output="recipes"), job("evaluate", "--help", output="help")]
    seconds = run_together(jobs, Console(file=printed), at_once=2, threads=1, logs=tmp_path)
    assert seconds["test"] > 0
    logs = [file.read_text() for file in sorted(tmp_path.iterdir())]
    assert len(logs) == 2
    assert any("demo-bert" in log for log in logs)
    assert "$ workbench recipes\n" in printed.getvalue()
    assert "2/2 jobs, about 0:00 left" in printed.getvalue()


def test_a_failing_job_is_named_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"workbench pretrain nothing ended with code 2:[\s\S]*unknown recipe"):
        run_together([job("pretrain", "nothing", output="x")], Console(quiet=True), at_once=1, threads=1, logs=tmp_path)


def test_ctrl_c_stops_the_jobs_and_the_same_jobs_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("An old river runs past a small town.\n" * 20)
    run_together(
        [
            job("prepare", "text", "notes.txt", "--workers", "1", "--output", "corpora/text", output="corpora/text"),
            job(
                *("prepare", "tokenizer", "corpora/text", "--output", "corpora/tokenizer.json", "--vocab-size", "60"),
                output="corpora/tokenizer.json",
            ),
        ],
        Console(quiet=True),
        at_once=2,
        threads=1,
        logs=tmp_path / "logs",
    )
    quick = ("train.num_workers=0", "train.log_every=1", "train.lr_schedule=constant")
    words = ("pretrain", "tiny-text", "--output", "runs/tiny", *quick)
    training = job(*words, "train.max_steps=100000", output="runs/tiny")
    watcher = threading.Thread(target=interrupt_when_there, args=(tmp_path / "runs/tiny/metrics.jsonl",))
    watcher.start()
    with pytest.raises(DemoInterrupted) as stopped:
        run_together([training], Console(quiet=True), at_once=1, threads=1, logs=tmp_path / "logs")
    watcher.join()
    assert stopped.value.code == 128 + signal.SIGINT
    steps = [int(folder.name.removeprefix("step-")) for folder in Path("runs/tiny/checkpoints").iterdir()]
    assert steps
    again = job(*words, f"train.max_steps={max(steps) + 2}", output="runs/tiny")
    run_together([again], Console(quiet=True), at_once=1, threads=1, logs=tmp_path / "logs")
    assert Path(f"runs/tiny/checkpoints/step-{max(steps) + 2}").is_dir()


def interrupt_when_there(metrics: Path) -> None:
    """What Ctrl-C sends, once the run has made steps."""
    while not metrics.is_file() or metrics.read_text().count("\n") < 3:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def test_time_left_begins_with_quiet_cores_and_follows_the_pace() -> None:
    now = [0.0]
    pace = Pace(600, at_once=2, clock=lambda: now[0])
    assert pace.left(0) == pytest.approx(300)
    now[0] = PRIOR
    assert pace.left(0) == pytest.approx(600)
    for now[0] in range(20, 321):
        left = pace.left(now[0] - 20)
    assert left == pytest.approx(300 * (WINDOW + PRIOR) / (WINDOW + 2 * PRIOR))


def test_on_a_terminal_there_is_a_bar_for_everything_and_one_for_each_running_job() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    first, second = job("pretrain", output="runs/one", weight=3), job("pretrain", output="runs/two", weight=1)
    with Board([first, second], console, at_once=2) as board:
        board.start(first, "workbench pretrain one")
        board.follow(first, 5, 10)
        board.live.refresh()
        assert "pretrain one" in screen.getvalue()
        assert "step 5/10" in screen.getvalue()
        assert board.live.tasks[0].completed == pytest.approx(1.5)
        board.end(first, 1.0)
        board.live.refresh()
        assert [task.description for task in board.live.tasks] == ["[bold]demo"]
        assert "1/2 jobs" in screen.getvalue()


def test_a_part_of_the_raw_files_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, seed: int) -> None:
        folder.mkdir(parents=True)
        (folder / "one").write_text(str(seed))
        if (tmp_path / "broken").exists():
            raise WorkbenchError("no")
        (folder / "two").write_text("")

    monkeypatch.setitem(RAW_SPLITS, "world", write)
    (tmp_path / "broken").touch()
    with pytest.raises(WorkbenchError):
        write_raw_split("world", tmp_path / "raw", seed=3)
    assert not (tmp_path / "raw" / "world").exists()
    (tmp_path / "broken").unlink()
    write_raw_split("world", tmp_path / "raw", seed=3)
    write_raw_split("world", tmp_path / "raw", seed=4)
    assert sorted(file.name for file in (tmp_path / "raw" / "world").iterdir()) == ["one", "two"]
    assert (tmp_path / "raw" / "world" / "one").read_text() == "3"


def test_what_jobs_are_forked_with_is_there() -> None:
    """A module that is not would be passed over in silence, and every job would make the import itself."""
    assert [name for name in IMPORTED if importlib.util.find_spec(name) is None] == []
