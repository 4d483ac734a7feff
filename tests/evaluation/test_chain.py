"""Chains of commands: each is run once, what was measured is kept, and what has changed is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.cli.chain import chain
from workbench.core.errors import WorkbenchError
from workbench.evaluation.chain import Chain

FEW = "train.num_workers=0 train.global_batch_size=8 train.micro_batch_size=8"


@pytest.fixture
def file(texts: Path, prepared: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretraining, the same on other texts, and a fine-tuning."""
    monkeypatch.chdir(tmp_path)
    labelled = prepared("moods", [{"text": f"a {word} house", "labels": {"mood": word}} for word in ("old", "new") * 8])
    base = f"pretrain tiny-text tokenizer={texts / 'tokenizer.json'} tasks.text.corpora=[{texts / 'texts'}] {FEW}"
    stages = {
        "first": f"{base} train.max_steps=2 --output runs/first",
        "second": f"{base} train.max_steps=3 model.init_from=runs/first --output=runs/second",
        "task": f"finetune classify runs/second {labelled} --epochs 1 -o runs/task train.num_workers=0",
    }
    after = [
        {"task": "pseudo-perplexity", "corpus": str(texts / "texts"), "until": "second", "options": {"limit": 3}},
        {"task": "classify", "corpus": labelled, "since": "task", "number": "macro_f1"},
    ]
    place = tmp_path / "chain.yaml"
    place.write_text(yaml.safe_dump({"stages": stages, "after_each": after}, sort_keys=False))
    return place


def kept(file: Path) -> dict[str, Any]:
    return json.loads(file.with_name("chain.chain.json").read_text())["stages"]


def test_a_chain_that_is_stopped_anywhere_continues_and_runs_nothing_twice(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain(file)
    whole, printed = kept(file), capsys.readouterr().out
    assert [*whole] == ["first", "second", "task"]
    assert [len(stage["results"]) for stage in whole.values()] == [1, 1, 1]
    assert "last - first" in printed
    record = file.with_name("chain.chain.json")
    for stop in ("first", "second", "task"):  # as it was left by a kill while this stage ran
        left = {name: stage for name, stage in whole.items() if [*whole].index(name) < [*whole].index(stop)}
        record.write_text(json.dumps({"stages": left}))
        asked: list[str] = []
        Chain(file).run(asked.extend)
        assert sum(word in ("pretrain", "finetune") for word in asked) == 3 - len(left), stop
        assert kept(file) == whole, stop
    record.write_text(json.dumps({"stages": whole | {"task": {**whole["task"], "results": {}}}}))
    Chain(file).run(lambda words: pytest.fail("a finished stage is run again"))
    assert kept(file) == whole


def test_a_stage_that_fails_is_named_and_those_before_it_are_kept(file: Path) -> None:
    spec = yaml.safe_load(file.read_text())
    spec["stages"]["second"] = "pretrain tiny-text train.max_steps=0 --output runs/second"
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    with pytest.raises(WorkbenchError, match=r"stage second: .*max_steps"):
        chain(file)
    assert [*kept(file)] == ["first"]


def test_what_cannot_be_measured_is_refused_before_the_first_stage(file: Path) -> None:
    spec = yaml.safe_load(file.read_text())
    for change, message in (
        ({"corpus": "corpora/none"}, "there is no corpus corpora/none, and no stage writes it"),
        ({"task": "classfy"}, "unknown task 'classfy'"),
        ({"options": {"limits": 3}}, "unknown option 'limits'"),
        ({"task": "mine:Mine"}, "trust"),
    ):
        other = {**spec, "after_each": [spec["after_each"][0] | change]}
        file.write_text(yaml.safe_dump(other, sort_keys=False))
        with pytest.raises(WorkbenchError, match=message):
            Chain(file).run(lambda words: pytest.fail("a stage is run"))


def test_another_run_in_the_place_of_a_finished_one_is_refused(file: Path) -> None:
    chain(file)
    shutil.rmtree("runs/first")
    shutil.copytree("runs/second", "runs/first")
    with pytest.raises(WorkbenchError, match="the stage 'first' was finished, and runs/first is another run now"):
        chain(file)


def test_what_has_changed_is_refused(file: Path) -> None:
    Chain(file).run(lambda words: None)  # nothing is written, so nothing is measured
    record = file.with_name("chain.chain.json")
    with pytest.raises(
        WorkbenchError, match="the stage 'first' was finished, and its runs/first is not there any more"
    ):
        Chain(file)
    spec = yaml.safe_load(file.read_text())
    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "was finished as `pretrain .*`, and the chain says `pretrain other -o x`": lambda s: s["stages"].update(
            first="pretrain other -o x"
        ),
        "unknown command 'train'": lambda s: s["stages"].update(more="train x"),
        "unknown stage 'nine'": lambda s: s["after_each"][0].update(until="nine"),
        "stages": lambda s: s.pop("stages"),
        "after_each": lambda s: s["after_each"][0].pop("task"),
    }
    for message, change in changes.items():
        other = json.loads(json.dumps(spec))
        change(other)
        file.write_text(yaml.safe_dump(other, sort_keys=False))
        with pytest.raises(WorkbenchError, match=message):
            Chain(file)
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    record.unlink()
    unsaid = json.loads(json.dumps(spec))
    unsaid["stages"]["first"] = unsaid["stages"]["first"].partition(" --output")[0]
    file.write_text(yaml.safe_dump(unsaid, sort_keys=False))
    with pytest.raises(WorkbenchError, match="the stage 'first' is measured, so it needs a place"):
        Chain(file)
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    record.write_text("{")
    with pytest.raises(WorkbenchError, match="is no record of a chain; put it back, or remove it"):
        Chain(file)
