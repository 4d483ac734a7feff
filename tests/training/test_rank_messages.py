"""Under torchrun a wrong input is reported once, whichever rank meets it; the workbench sets up what torchrun would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import distributed as dist

import workbench.core.processes.rank_messages
from workbench.core.processes.rank_messages import say_once

Launch = Callable[..., Any]
SIZE = 2


@pytest.fixture
def agent() -> Iterator[dict[str, Any]]:
    """The store of torchrun, and the values that its processes get from it."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {"port": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    del store


def outputs(launch: Launch, agent: dict[str, Any], recipe: Path, run: Path, *overrides: str) -> list[str]:
    ranks = [launch(recipe, run, *overrides, rank=rank, size=SIZE, **agent) for rank in range(SIZE)]
    ends = [rank.wait() for rank in ranks]
    assert [code for code, _ in ends] == [2] * SIZE, ends
    return [output for _, output in ends]


@pytest.mark.parametrize(
    ("override", "reported"),
    [
        ("train.max_step=3", "unknown key 'max_step'"),
        ("tasks.text.corpora=[nowhere]", "nowhere: the folder does not exist"),
    ],
    ids=["before the ranks meet", "afterwards"],
)
def test_a_wrong_input_is_reported_once(
    make_recipe: Any, launch: Launch, agent: dict[str, Any], tmp_path: Path, override: str, reported: str
) -> None:
    said = outputs(launch, agent, make_recipe(), tmp_path / "run", override)
    assert sum("error:" in output for output in said) == 1, said
    assert reported in "".join(said)


def test_what_another_rank_alone_meets_is_reported(
    make_recipe: Any, launch: Launch, agent: dict[str, Any], tmp_path: Path
) -> None:
    recipe = make_recipe()
    first = launch(recipe, tmp_path / "run", rank=0, size=SIZE, **agent)
    code, output = launch(recipe, tmp_path / "run", "train.max_step=3", rank=1, size=SIZE, **agent).wait()
    first.process.kill()  # it waits for a rank that never comes; torchrun would end it
    assert code == 2
    assert "unknown key 'max_step'" in output


def test_words_that_the_first_rank_did_not_say_are_not_lost(
    agent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        workbench.core.processes.rank_messages, "PATIENCE", workbench.core.processes.rank_messages.PATIENCE / 20
    )
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(agent["port"])}
    for name, value in {**environment, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)

    def killed(message: str) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        say_once("wrong", killed)
    said: list[str] = []
    say_once("wrong", said.append)
    assert said == ["wrong"]
