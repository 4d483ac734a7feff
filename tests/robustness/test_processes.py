"""A real `python -m workbench pretrain`: stopped politely, stopped hard, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import BUG

ROOT = Path(__file__).resolve().parents[2]
Start = Callable[..., subprocess.Popen[str]]
LONG = ("train.max_steps=100000", "train.save_every=50", "train.lr_schedule=constant")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `python -m workbench ARGUMENTS` in a folder; what still runs in the end is killed."""
    processes: list[subprocess.Popen[str]] = []

    def run(folder: Path, *arguments: str, program: Sequence[str] = ("-m", "workbench")) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        processes.append(
            subprocess.Popen(
                [sys.executable, *program, *arguments],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return processes[-1]

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def steps(run: Path) -> list[int]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n")]


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(process.communicate()[0])
        time.sleep(0.01)


@pytest.mark.scale
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_says_how_to_continue_and_continuing_works(
    world: Path, start: Start, number: signal.Signals, code: int
) -> None:
    """The terminal signals the whole group, loader workers too."""
    run = world / "a run"
    process = start(world, "pretrain", "recipe.yaml", *LONG, "train.num_workers=1", "--run", "a run")
    wait_for(lambda: len(steps(run)) > 3, process)
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    assert "Traceback" not in output
    last = steps(run)[-1]
    assert (run / "checkpoints" / f"step-{last}" / "state.json").is_file()
    assert "continue with" in output
    assert "pretrain recipe.yaml" in output
    assert "'a run'" in output
    again = start(world, "pretrain", "recipe.yaml", *LONG[1:], f"train.max_steps={last + 2}", "--run", "a run")
    output, _ = again.communicate(timeout=600)
    assert again.returncode == 0, output
    assert f"continuing from a run/checkpoints/step-{last}" in output
    assert steps(run) == list(range(1, last + 3))


LISTED = """
import sys
from workbench.cli.app import main

try:
    main()
finally:
    print("compilers:", sorted({"torch._dynamo", "torch._inductor", "sympy"} & sys.modules.keys()))
"""


@pytest.mark.scale
def test_kill_9_and_the_same_command_again(world: Path, start: Start) -> None:
    run = world / "run"
    command = ("pretrain", "recipe.yaml", LONG[0], LONG[2], "train.save_every=5", "--run", "run")
    process = start(world, *command)
    wait_for(lambda: len(steps(run)) > 12, process)
    process.kill()
    process.communicate()
    saved = max(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))
    again = start(world, *command[:2], f"train.max_steps={saved + 4}", *command[3:], program=("-c", LISTED))
    output, _ = again.communicate(timeout=600)
    assert again.returncode == 0, output
    assert f"step-{saved}" in output
    assert output.rstrip().endswith("compilers: []")  # their import takes 1.3 s, and nothing is compiled here
    assert steps(run) == list(range(1, saved + 5))
    assert not list(run.rglob("*.tmp"))


def test_an_error_in_a_real_process(world: Path, start: Start) -> None:
    process = start(world, "pretrain", "recipe.yaml", "train.max_step=3")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 2
    assert output.startswith("error: ")
    assert "'max_steps'" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error_of_ours(world: Path, start: Start) -> None:
    process = start(world, "recipes")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=600) in (0, 1)


WITHOUT_TORCH = """
import sys
from workbench.cli.app import main

sys.modules["torch"] = None  # to import it is an error
for command in sys.stdin.read().splitlines():
    sys.argv = ["workbench", *command.split()]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 2, ended.code
"""


def test_cheap_refusals_do_not_wait_for_torch(world: Path) -> None:
    """It takes seconds to import."""
    reported = {
        "pretrain recipe.yaml train.max_step=3": "unknown key 'max_step'",
        "pretrain no-such-recipe": "unknown recipe 'no-such-recipe'",
        "pretrain recipe.yaml train.lr=fast": "train.lr = 'fast'",
        "pretrain recipe.yaml tasks.text.corpora=[gone]": "tasks.text.corpora=[FOLDER]",
        "pretrain recipe.yaml tasks.text.held_out=[gone]": "tasks.text.held_out=[FOLDER]",
        "pretrain recipe.yaml tokenizer=gone.json --output new": "there is no tokenizer at",
        "pretrain recipe.yaml train.lr_schedule.warmup_steps=9999 train.max_steps=9": "does not end before",
        "pretrain recipe.yaml train.evaluate_every=5 tasks.text.held_out=[]": "no task names held-out corpora",
        "verify-resume recipe.yaml train.max_step=3": "unknown key 'max_step'",
        "show gone": "gone is no corpus, run, recipe or Hugging Face folder",
        "show no-such-recipe --batch": "unknown recipe 'no-such-recipe'",
        "prepare tokenizer gone --output tokenizer.json": "there is no corpus at",
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        cwd=world,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300"},
        input="\n".join(reported),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == len(reported), done.stderr
    for error, words in zip(errors, reported.values(), strict=True):
        assert words in error


def test_an_interruption_while_the_command_line_is_imported_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "recipes"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "error: stopped\n")


@pytest.mark.parametrize(
    "error", [ImportError("libtorch_cpu.so: failed to map segment from shared object"), MemoryError()]
)
def test_a_library_that_does_not_fit_into_the_memory_is_the_machines_failure(
    here: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("workbench.cli.app.importlib.import_module", fail)
    assert "not enough memory" in refused("recipes", code=1)


def test_a_library_that_is_broken_otherwise_is_no_message(
    here: Path, workbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ImportError("undefined symbol")

    monkeypatch.setattr("workbench.cli.app.importlib.import_module", fail)
    ended = workbench("recipes")
    assert ended.code == BUG
    assert ended.err.rstrip().endswith("ImportError: undefined symbol")
