"""A few trials of every area, the cheap ones, and what the trials themselves rest on; run by `test_soak.py`."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.robustness.soak import accounting, fulldisk, kills, mutations, preparing, signals, values
from tests.robustness.soak.damage import DAMAGES, damaged
from tests.robustness.soak.engine import Area, FindingError, SkippedError, Soak, Trial
from tests.robustness.soak.faults import Fault, make_counter
from tests.robustness.soak.processes import end_all, fork, warm_up
from tests.robustness.soak.runs import Disturbed, Kind
from tests.robustness.soak.world import World

SEED = 1
TEXT = Kind("tiny-text")
Make = Callable[[int], Trial]


@pytest.fixture(scope="session")
def soak_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    warm_up()
    return World(tmp_path_factory.mktemp("soak") / "world")


@pytest.fixture
def make_trial(soak_world: World, tmp_path: Path) -> Iterator[Make]:
    def make(number: int) -> Trial:
        folder = tmp_path / str(number)
        folder.mkdir()
        return Trial("bounded", SEED, number, folder, soak_world)

    yield make
    end_all()


def test_a_killed_run_continues_as_if_undisturbed(make_trial: Make) -> None:
    for number in range(1, 6):  # a delayed kill may come too late
        trial = make_trial(number)
        kills.kill(trial, Disturbed(trial, TEXT, workers=0))
        if trial.counts["kills"]:
            return
    pytest.fail("no trial killed anything")


def test_a_stopped_run_has_saved(make_trial: Make) -> None:
    trial = make_trial(1)
    signals.stop(trial, Disturbed(trial, TEXT, workers=1))


def test_a_dead_worker_ends_the_run_soon(make_trial: Make) -> None:
    trial = make_trial(1)
    signals.dead_worker(trial, Disturbed(trial, TEXT, workers=2))
    assert trial.counts["workers killed"]


def test_a_second_start_is_refused(make_trial: Make) -> None:
    trial = make_trial(1)
    signals.second_start(trial, Disturbed(trial, TEXT, workers=0))
    assert trial.counts["second starts"]


def test_a_full_disk_is_one_message(make_trial: Make) -> None:
    trial = make_trial(2)
    try:
        fulldisk.pretraining(trial, TEXT)
    except SkippedError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", ["linker", "tokenizer"])
def test_other_commands_on_a_full_disk(make_trial: Make, name: str) -> None:
    try:
        fulldisk.writing(make_trial(1), name)
    except SkippedError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("kind", ["text", "triples"])
def test_a_killed_preparation_is_finished_by_the_next(make_trial: Make, kind: str) -> None:
    trial = make_trial(1)
    preparing.kill(trial, kind)
    assert trial.counts["kills"]


@pytest.mark.parametrize(
    "name",
    [
        "text *.tar",
        "text *.index",
        "text corpus.json",
        "triples *.index",
        "verify text",
        "graph",
        "linker",
        "tokenizer",
        "weights",
        "recipe of a run",
        "metrics",
    ],
)
def test_damage_is_noticed(make_trial: Make, name: str) -> None:
    trial = make_trial(1)
    mutations.mutate(trial, name, 20)
    assert trial.counts["mutations"] == 20


@pytest.mark.parametrize("number", range(8))
def test_a_bad_value_is_refused(make_trial: Make, number: int) -> None:
    values.trial(make_trial(number))


@pytest.mark.parametrize("number", range(2))
def test_every_item_comes_once_an_epoch(make_trial: Make, number: int) -> None:
    accounting.trial(make_trial(number))


def test_a_fault_strikes_at_its_operation_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()

    def write() -> None:
        fault.arm()
        for n in range(9):
            (folder / f"draft-{n}").write_text("words")
            (folder / f"draft-{n}").rename(folder / f"{n}")

    for at, left in {1: [], 4: ["0", "draft-1"], 5: ["0", "1"]}.items():
        for path in folder.iterdir():
            path.unlink()
        count = make_counter(tmp_path / "operations")
        fault = Fault(str(folder), at=at, counter=str(tmp_path / "operations"))
        ended = fork(write, tmp_path, tmp_path / "log").wait()
        assert ended.code == -signal.SIGKILL, ended
        assert sorted(path.name for path in folder.iterdir()) == left
        assert count() == at


def test_damage_is_damage_and_comes_again() -> None:
    text = b"a line of 12 words, or so\n" * 40
    for damage in DAMAGES:
        data = bytearray(text)
        for n in range(5):  # a digit may be drawn that is there already
            damage(data, random.Random(n))
        assert bytes(data) != text, damage.__name__
    for n in range(200):
        assert damaged(b"12", random.Random(n)) == damaged(b"12", random.Random(n)) != ("", b"12")


def test_a_finding_is_kept_with_the_command_that_repeats_it(soak_world: World, tmp_path: Path) -> None:
    drawn: list[float] = []

    def odd(trial: Trial) -> None:
        drawn.append(trial.rng.random())
        trial.counts["tried"] += 1
        (trial.folder / "it").write_text("as found")
        if trial.number % 2:
            raise FindingError("it does not hold")

    areas: dict[str, Area] = {"odd": odd}
    soak = Soak(areas, soak_world, tmp_path, seed=5)
    assert [soak.trial("odd", number) for number in (1, 2)] == ["it does not hold", ""]
    assert soak.findings[0]["command"] == "python -m tests.robustness.soak --areas odd --seed 5 --trial 1"
    assert (tmp_path / "odd" / "1" / "it").read_text() == "as found"
    assert not (tmp_path / "odd" / "2").exists()
    assert soak.tallies["odd"].counts["tried"] == 2
    Soak(areas, soak_world, tmp_path, seed=5).trial("odd", 1)
    assert drawn[0] == drawn[2] != drawn[1]
