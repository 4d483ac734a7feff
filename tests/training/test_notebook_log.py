"""A training in a notebook is one output of its cell."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.front_end import in_a_notebook
from tests.training.short_runs import shorter
from workbench.recipe.spec import Recipe
from workbench.training.notebook_log import NUMBERS, TOTAL, NotebookLog
from workbench.training.pretrain import pretrain


def test_a_run_is_one_output_with_its_losses(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_a_notebook() as outputs:
        run = pretrain(shorter(recipe, max_steps=4, log_every=2), tmp_path / "run")
    assert capsys.readouterr() == ("", "")
    [output] = outputs
    html, plain = output.data["text/html"], output.data["text/plain"]
    assert output.states > 10
    assert html.startswith('<p><progress max="4" value="4"></progress> step 4/4  mlm/loss ')
    assert plain.startswith("step 4/4  mlm/loss ")
    assert html.count("<tr>") == 3  # the head, and steps 2 and 4
    folded = html.partition("<details>")[2]
    assert f"saved {run}/checkpoints/step-4" in folded
    assert "parameters" in folded
    assert "saved" in (run / "log.txt").read_text()


def test_warnings_are_not_folded_and_held_out_losses_stand_next_to_the_others() -> None:
    with in_a_notebook() as outputs:
        logger, log = logging.Logger("workbench"), NotebookLog()
        logger.addHandler(log)
        for number in range(1, 41):
            numbers = {"step": number, "mlm/loss": 1.0, "lr": 0.1, "tokens_per_second": 5.0}
            logger.info("step %d", number, extra={NUMBERS: numbers, TOTAL: 40})
        logger.info("held out", extra={NUMBERS: {"step": 40, "held_out/mlm/loss": 2.0}, TOTAL: 40})
        logger.warning("a <label> is missing")
    [output] = outputs
    open_part = output.data["text/html"].partition("<details>")[0]
    assert "<pre>a &lt;label&gt; is missing</pre>" in open_part
    assert open_part.count("<tr>") == 21
    last = open_part.rpartition("<tr>")[2]
    assert [last.find(cell) > 0 for cell in (">40<", ">1.0000<", ">2.0000<")] == [True] * 3
    assert "tokens_per_second" not in open_part
    assert output.data["text/plain"] == "a <label> is missing\nstep 40"


def test_an_output_that_fails_does_not_end_the_run(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no front end")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr("workbench.core.live_output.LiveOutput.show", fail)
    with in_a_notebook() as outputs:
        run = pretrain(shorter(recipe, max_steps=2), tmp_path / "run")
    assert outputs == []
    assert (run / "checkpoints/step-2").is_dir()
