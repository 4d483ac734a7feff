"""Checkpoints to try: their jobs suffice, and each opens from anywhere with what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from pipelines.demo import checkpoints
from pipelines.demo.plan import plan
from pipelines.demo.small_files import write_small_files
from workbench.cli.show import show
from workbench.core.errors import WorkbenchError
from workbench.model_api import Model

FEW = {"train.max_steps": 1, "train.num_workers": 0, "train.lr_schedule.warmup_steps": 0}


def test_the_jobs_are_those_of_the_demo_that_the_checkpoints_need() -> None:
    found = checkpoints.jobs()
    made = {job.output for job in found}
    assert {place for place, _ in checkpoints.RUNS.values()} <= made
    places = {job.output for job in [*plan(), *found]}
    for job in found:
        needed = {word for word in (*job.needs, *job.command) if word in places} - {job.output}
        assert needed <= made, job.name
    assert "runs/k-bert-shuffled-graph" not in made


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as of the demo, with a K-BERT of one step."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_small_files(folder)
        workbench.prepare_triples("towns.tsv", "corpora/graph", entities="towns.jsonl")
        workbench.prepare_text("towns.txt", "corpora/towns")
        workbench.prepare("link", corpus="corpora/towns", graph="corpora/graph", output="corpora/world")
        workbench.prepare_text("stated.jsonl", "corpora/facts")
        workbench.prepare("tokenizer", corpora="corpora/towns", output="corpora/tokenizer.json", vocab_size=300)
        workbench.pretrain("demo-k-bert", "runs/k-bert", FEW)
    return folder


def test_a_checkpoint_opens_from_anywhere(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(checkpoints, "RUNS", {"k-bert-world": ("runs/k-bert", "fill in words")})
    with pytest.raises(
        WorkbenchError, match=r"workbench:k-bert-world: this machine has no such checkpoint; it has none"
    ):
        workbench.load("workbench:k-bert-world")
    monkeypatch.chdir(demo)
    text = "[MASK] lies by a river."
    wanted = workbench.load("runs/k-bert").fill_mask(text, task="text")
    for _ in range(2):  # a second time it is replaced
        (place,) = checkpoints.publish(demo)
    monkeypatch.chdir(tmp_path)
    model: Model = workbench.load("workbench:k-bert-world")
    assert model.fill_mask(text, task="text") == wanted
    assert str(place) in str(model.recipe.tasks["text"].sequence.transforms)
    card = (place / "README.md").read_text()
    assert "# k-bert-world" in card
    assert "It was not evaluated." in card
    capsys.readouterr()
    show("workbench:k-bert-world")
    assert "The demo's K-BERT" in capsys.readouterr().out
    with pytest.raises(WorkbenchError, match="it has k-bert-world"):
        workbench.load("workbench:bert")
