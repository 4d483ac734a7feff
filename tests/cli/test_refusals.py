"""What can be refused without torch is refused before it is loaded, within a second; loading it is announced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.evaluation.scoring.task_finder import find_task
from workbench.evaluation.task_modules import options_of_task, task_modules

REFUSALS = {
    "export empty --as bert --output out": "empty is not a run",
    "export nowhere --as bert --output out": "nowhere is not a run",
    "export nowhere --as berd --output out": "unknown family 'berd'. Did you mean 'bert'",
    "export nowhere --as mine:Bert --output text.txt/out": "--output",
    "encode nowhere text.txt --output out.safetensors": "nowhere is not a run",
    "encode package:no-such-package text.txt --output out.safetensors": "no-such-package",
    "encode checkpoint nothing.txt --output out.safetensors": "nothing.txt: No such file",
    "encode checkpoint text.txt --output empty": "--output",
    "encode checkpoint text.txt --output out.safetensors --batch-size 0": "--batch-size = 0; allowed",
    "generate nowhere text.txt": "nowhere is not a run",
    "generate checkpoint nothing.txt": "nothing.txt: No such file",
    "generate checkpoint text.txt --beams 0": "--beams = 0; allowed",
    "generate checkpoint text.txt --sample --beams 2": "--sample draws one text, and --beams is 2",
    "finetune clasify checkpoint corpora/x": "Did you mean 'workbench finetune classify'",
    "finetune classify nowhere corpora/x": "nowhere is not a run",
    "finetune classify checkpoint corpora/x": "there is no corpus at",
    "finetune classify checkpoint corpora/x --epochs -1": "--epochs = -1.0; allowed",
    "finetune perplexity checkpoint corpora/x": "the task perplexity has nothing to train",
    "finetune vqa nowhere corpora/x": "nowhere is not a run",
    "finetune entity-typing nowhere corpora/x": "nowhere is not a run",
    "evaluate clasify checkpoint corpora/x": "Did you mean 'workbench evaluate classify'",
    "evaluate classify nowhere corpora/x": "nowhere is not a run",
    "evaluate classify checkpoint corpora/x": "there is no corpus at",
    "evaluate classify checkpoint corpora/x --precision float8": "'float8' is not one of 'float32', 'bfloat16'",
    "evaluate linking corpora/x --linker nowhere": "there is no nowhere",
    "evaluate link-prediction nowhere corpora/x --graph g": "nowhere is not a run",
    "pretrain tiny-text tasks.text.corpora=[nowhere]": "there is no corpus at",
    "pretrain tiny-text train.max_steps=-1": "train.max_steps = -1; allowed",
    "verify-resume tiny-text tasks.text.corpora=[nowhere]": "there is no corpus at",
    "show attention nowhere corpora/x": "nowhere is not a run",
    "report nowhere": "nowhere is not a run",
    "recipes --from nowhere": "nowhere is not a run",
    "recipes nope": "unknown recipe 'nope'",
    "pretrain bert-lage": "Did you mean 'bert-large'",
    "show nope": "nope is no corpus, run, recipe or Hugging Face folder",
    "downstream nope": "unknown task 'nope'",
    "prepare vectors nope --output v.safetensors": "there is no graph store at nope",
}
"""Command lines, and what is said of them."""
HELP = [
    "finetune classify",
    "evaluate facts",
    "encode",
    "generate",
    "export",
    "pretrain",
    "verify-resume",
    "show",
    "downstream",
    "recipes",
    "verify",
    "index",
    "report",
    "components",
    "compare",
]
RUN = """
import json, sys, time
from workbench.cli.app import main

seen = []
for line in json.loads(sys.argv[1]):
    start, code = time.process_time(), None
    sys.argv = ["workbench", *line.split()]
    print(f"<{line}>", file=sys.stderr, flush=True)
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    seen.append([line, code, "torch" in sys.modules, time.process_time() - start])
with open("seen.json", "w") as file:
    json.dump(seen, file)
"""
FACTOR = 5  # for a busy machine; without torch a command takes half a second, with it four


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a text, an empty folder, and what looks like a checkpoint from outside."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "text.txt").write_text("a line\n")
    (folder / "empty").mkdir()
    (folder / "checkpoint").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / "checkpoint" / name).write_text("{}")
    return folder


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[2])
    reported = {**os.environ, "PYTHONPATH": root, "COLUMNS": "200", **environment}
    return subprocess.run([sys.executable, *words], cwd=folder, env=reported, capture_output=True, text=True)


def commands(folder: Path, lines: list[str]) -> tuple[str, list[Any]]:
    """All in one process: what one had loaded, the next would show."""
    ended = run(folder, "-c", RUN, json.dumps(lines))
    assert ended.returncode == 0, ended.stderr
    return ended.stderr, json.loads((folder / "seen.json").read_text())


def test_refusals_do_without_torch(folder: Path) -> None:
    said, seen = commands(folder, list(REFUSALS))
    for (line, code, loaded, seconds), reported in zip(seen, REFUSALS.values(), strict=True):
        here = " ".join(said.partition(f"<{line}>")[2].partition("\n<")[0].replace("│", "").split())
        assert code == 2, (line, here)
        assert reported in here, (line, here)
        assert not loaded, line
        assert seconds < FACTOR, (line, seconds)
    assert "loading" not in said


def test_help_does_without_torch(folder: Path) -> None:
    said, seen = commands(folder, [f"{name} --help" for name in HELP])
    assert [(code, loaded) for _, code, loaded, _ in seen] == [(0, False)] * len(HELP)
    assert "loading" not in said


def test_a_refusal_takes_a_second(folder: Path, record_property: Any) -> None:
    """Of processor time, from the shell, including the start of Python."""
    before = os.times()
    ended = run(folder, "-m", "workbench", "evaluate", "classify", "nowhere", "corpora/x")
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    record_property("seconds", seconds)
    assert ended.returncode == 2
    assert seconds < FACTOR, seconds


@pytest.mark.long
@pytest.mark.parametrize(("words", "rank", "lines"), [("", "0", 1), ("", "1", 0), ("--help", "0", 0)])
def test_what_loads_torch_says_so_once(folder: Path, words: str, rank: str, lines: int) -> None:
    """`show alignment` is imported with torch, also for its help."""
    own = "import sys; from workbench.cli.app import main; sys.modules.pop('torch', None); main()"
    arguments = ["show", "alignment", *(words.split() or ["checkpoint", "corpora/x"])]
    ended = run(folder, "-c", own, *arguments, RANK=rank)
    assert ended.stderr.count("loading ...") == lines, ended.stderr
    assert "loading" not in ended.stdout


@pytest.mark.parametrize("name", task_modules())
def test_options_stand_apart_from_the_task(name: str) -> None:
    task, place = find_task(name), task_modules()[name]
    assert options_of_task(place, "tuning") is task.tuning
    assert options_of_task(place, "scoring") is task.scoring
