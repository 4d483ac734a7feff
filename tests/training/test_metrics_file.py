"""metrics.jsonl: it stays where it is while a run writes it, and is compared with the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.recipe.spec import Recipe
from workbench.runs.metrics_file import read_metrics, split_lines
from workbench.training.metrics import MetricsLog
from workbench.training.pretrain import pretrain


def line(step: int, **values: float) -> bytes:
    return json.dumps({"step": step, **(values or {"lr": 0.1})}).encode() + b"\n"


def replace_file(path: Path) -> None:
    path.with_name("other").write_bytes(line(7))
    path.with_name("other").rename(path)


@pytest.mark.parametrize("lose", [Path.unlink, replace_file])
def test_a_file_that_is_removed_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], object]
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(1))
    log = MetricsLog(tmp_path, 1, 1)
    log.write({"step": 2, "lr": 0.1})
    lose(path)
    log.write({"step": 3, "lr": 0.1})
    assert path.read_bytes() == line(1) + line(2) + line(3)
    assert "metrics.jsonl was removed or replaced" in caplog.text
    lose(path)
    log.close()
    assert path.read_bytes() == line(1) + line(2) + line(3)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (line(1) + line(2) + line(2), "line 3 is of step 2, which does not come after step 2"),
        (line(-4) + line(2), "line 1 is of step -4, which does not come after step 0"),
        ((line(1) + line(2)) * 2, "line 3 is of step 1, which does not come after step 2"),
        (line(2) * 9, "and 5 such lines more"),
        (line(1), "its lines of training end at step 1, but there was one of step 2"),
        (line(1) + line(2, **{"held_out/loss": 1.0}), "its lines of training end at step 1"),
        (b"", "its lines of training end at step 0"),
    ],
)
def test_lines_that_do_not_fit_the_checkpoint_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reported: str
) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(content)
    MetricsLog(tmp_path, 3, 2).close()
    assert f"metrics.jsonl does not fit the checkpoint of step 3: {reported}" in caplog.text
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_a_run_knows_its_last_line(recipe: Recipe, tmp_path: Path) -> None:
    def every(steps: int) -> Recipe:
        return replace(recipe, train=replace(recipe.train, log_every=steps))

    run = pretrain(every(4), tmp_path / "run", until=3)  # no line yet
    pretrain(every(2), run, until=5)
    pretrain(every(3), run, until=7)
    assert "does not fit" not in (run / "log.txt").read_text()
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))
    pretrain(recipe, run, until=8)
    assert "end at step 4, but there was one of step 6" in (run / "log.txt").read_text()


@pytest.mark.parametrize(
    ("rest", "record", "damaged"),
    [
        (b'{"st', False, False),
        (b'{"step": 2, "lr": 0.', False, False),
        (line(2).strip(), True, False),
        (b"garbage", False, True),
        (b'{"step": 2, \x00\x00\x00', False, True),
        (b'{"lr": 0.1}', False, True),
        (b"x\r", False, True),
    ],
)
def test_the_end_of_a_file(tmp_path: Path, rest: bytes, record: bool, damaged: bool) -> None:
    """A kill leaves the beginning of a line; anything else was somebody."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(1) + rest)
    steps = [found["step"] for found in read_metrics(tmp_path)]
    assert steps == ([1, 2] if record else [1])
    assert split_lines(path)[1] == ([rest + b"\n"] if damaged else [])
