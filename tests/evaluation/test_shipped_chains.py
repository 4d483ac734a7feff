"""The chains that ship, in a tiny size: each runs by its name, and one that was killed in any stage ends alike."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.conftest import pretrain_on
from workbench.cli.chain import chain
from workbench.core.errors import WorkbenchError
from workbench.evaluation.chain import Chain, shipped_chains

FEW = "train.num_workers=0 train.global_batch_size=8 train.micro_batch_size=8 train.max_steps=3 train.save_every=1"
TUNE = "--epochs 2 --batch-size 8 train.num_workers=0 train.save_every=1"


@pytest.fixture
def overrides(
    texts: Path, prepared: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    monkeypatch.chdir(tmp_path)
    moods = prepared("moods", [{"text": f"a {word} house", "labels": {"mood": word}} for word in ("old", "new") * 8])
    hues = prepared("hues", [{"text": f"a {word} boat", "labels": {"hue": word}} for word in ("red", "green") * 8])
    few = f"tokenizer={texts / 'tokenizer.json'} {FEW}"
    general = str(texts / "texts")

    def of(name: str) -> list[str]:
        own: dict[str, Any] = {
            "dapt-tapt": {
                "model": "tiny-text",
                "domain": general,
                "domain_test": general,
                "domain_options": few,
                "texts_options": few,
                "task_options": TUNE,
            },
            "intermediate-task": {
                "model": "base",
                "intermediate": hues,
                "intermediate_test": hues,
                "options": TUNE,
            },
            "ulmfit": {
                "size": "-tiny",
                "tokenizer": texts / "tokenizer.json",
                "general": general,
                "general_test": general,
                "label": "mood",
                "classes": "[new, old]",
                "general_options": FEW,
                "texts_options": FEW,
                "task_options": f"{FEW} train.groups=[]",
            },
        }[name]
        if own.get("model") == "base":
            own["model"] = pretrain_on(texts)
        return [f"vars.{key}={value}" for key, value in {**own, "task": moods, "task_test": moods}.items()]

    return of


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{name}.chain.json").read_text())["stages"]
    return found


STAGES = {
    "dapt-tapt": {"domain": 2, "texts": 2, "task": 1},
    "intermediate-task": {"direct": 1, "intermediate": 1, "task": 1},
    "ulmfit": {"general": 2, "texts": 2, "task": 1},
}
"""The stages of each chain, with the number of results after each."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "ulmfit" else pytest.mark.slow) for name in STAGES]
)
def test_a_chain_that_ships_runs_by_its_name(
    name: str, overrides: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    chain(name, overrides(name))
    assert {stage: len(found["results"]) for stage, found in kept(name).items()} == STAGES[name]
    assert "last - first" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_a_kill_in_any_stage_leaves_the_numbers_as_they_are(name: str, overrides: Callable[[str], list[str]]) -> None:
    words = overrides(name)
    chain(name, words)
    whole = kept(name)
    for stage in STAGES[name]:
        Path(f"{name}.chain.json").unlink(missing_ok=True)
        again = [*words, f"vars.runs=again-{stage}"]
        run_until(name, again, stage)
        assert stage not in kept_or_none(name)
        chain(name, again)
        assert {each: found["results"] for each, found in kept(name).items()} == {
            each: found["results"] for each, found in whole.items()
        }


def kept_or_none(name: str) -> dict[str, Any]:
    return kept(name) if Path(f"{name}.chain.json").is_file() else {}


def run_until(name: str, words: list[str], stage: str) -> None:
    """Run the chain in a process, and kill it once this stage has saved a checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", "chain", name, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "400"},
    )
    assert process.stderr is not None
    begun = False
    for line in process.stderr:
        begun = begun or line.startswith(f"stage {stage}:")
        if begun and " saved " in line:
            process.send_signal(signal.SIGKILL)
            break
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL


def test_every_chain_has_its_test() -> None:
    assert {*shipped_chains()} == {*STAGES}


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("dapt-tapt", [], "vars.model is null; set it: vars.model=VALUE"),
        ("dapt-tapt", ["vars.modle=x"], "unknown variable 'modle'"),
        ("dapt", [], "unknown chain 'dapt'"),
    ],
)
def test_what_is_open_or_unknown_is_named(name: str, words: list[str], said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        Chain(name, words)
