"""What schedulers, terminals and the kernel send: stops that save first, dead workers and ranks, a second start."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from pathlib import Path

import psutil

from tests.robustness.soak.comparing import metrics, same_run, steps
from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.faults import Fault
from tests.robustness.soak.processes import ROOT, Command, Ended, spawn, start
from tests.robustness.soak.runs import NEEDS, STEPS, Disturbed

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
SOON = 300.0
"""Seconds in which a command has to end whose worker or rank is dead, on a busy machine."""
TRAINING = ".step-"
"""Operations on such files are those of checkpoints: training has begun."""


def trial(trial: Trial) -> None:
    """One of them, the common ones more often."""
    kinds = (
        [stop] * 10
        + [dead_worker] * 4
        + [second_start] * 3
        + [dead_rank] * 2
        + [dead_rank_of_torchrun] * (not trial.number % 5)
    )
    kind = trial.rng.choice(kinds)
    trial.counts[kind.__name__.replace("_", " ")] += 1
    kind(trial, Disturbed(trial, workers=trial.rng.randint(kind is dead_worker, 3)))


def stop(trial: Trial, disturbed: Disturbed) -> None:
    """A signal, once or twice, to the process or to its group: the finished step is saved, and continuing is exact."""
    rng = trial.rng
    number, twice = rng.choice(STOPS), rng.random() < 0.15
    fault = Fault(
        str(disturbed.run),
        at=trial.moment(disturbed.reference.operations // 3),
        signal=number,
        begin=TRAINING,
        group=rng.random() < 0.5,
        again=rng.random() * 0.1 if twice else -1.0,
    )
    ended = disturbed.start(fault, fresh=rng.random() < 0.04).wait()
    trial.counts[signal.Signals(number).name] += 1
    if ended.code == 0 and metrics(disturbed.run)[-1]["step"] == STEPS:
        trial.counts["over before the signal"] += 1
    elif not twice:
        _saved(disturbed, number, ended)
    require(not ended.hung, f"after {signal.Signals(number).name} pretrain {ended}")
    disturbed.finish()


def _saved(disturbed: Disturbed, number: int, ended: Ended) -> None:
    name = signal.Signals(number).name
    require(ended.code == 128 + number, f"after {name} (exit code wanted: {128 + number}) pretrain {ended}")
    require("continue with" in ended.said and "Traceback" not in ended.said, f"after {name} pretrain {ended}")
    last = metrics(disturbed.run)[-1]["step"]
    require(
        steps(disturbed.run)[-1:] == [last], f"after {name} at step {last} there are the steps {steps(disturbed.run)}"
    )


def dead_worker(trial: Trial, disturbed: Disturbed) -> None:
    """SIGKILL of a loader worker (out of memory): the run ends soon, with a message and an exit code."""
    command, lines = disturbed.start(), trial.rng.randint(0, 4)
    begun = command.wait_for(lambda: len(metrics(disturbed.run)) >= lines)
    command.signal(signal.SIGSTOP)  # so that it does not end before its worker is dead
    workers = command.children() if begun else []
    if workers:
        with contextlib.suppress(psutil.Error):
            trial.rng.choice(workers).kill()
            trial.counts["workers killed"] += 1
    command.signal(signal.SIGCONT)
    _ends_soon(command, "one of its loader workers was killed")
    disturbed.finish()


def second_start(trial: Trial, disturbed: Disturbed) -> None:
    """Two starts in one folder: the second is refused with one message, the first does not notice."""
    first, lines = disturbed.start(), trial.rng.randint(1, 4)
    if first.wait_for(lambda: len(metrics(disturbed.run)) >= lines):
        first.signal(signal.SIGSTOP)
        trial.counts["second starts"] += 1
        ended = disturbed.start().wait()
        refused = ended.code == 2 and ended.said.count("error:") == 1 and "Traceback" not in ended.said
        require(refused, f"a second start in the folder of a running one {ended}")
    first.signal(signal.SIGCONT)
    disturbed.finish(first.wait())


def dead_rank(trial: Trial, disturbed: Disturbed) -> None:
    """SIGKILL of one of two ranks: the other ends soon, and both can continue."""
    victim, lines = trial.rng.randint(0, 1), trial.rng.randint(1, 5)
    ranks = _ranks(disturbed)
    if ranks[0].wait_for(lambda: len(metrics(disturbed.run)) >= lines):
        ranks[victim].signal(signal.SIGKILL)
    _ends_soon(ranks[1 - victim], f"rank {victim} was killed")
    ranks[victim].wait()
    for rank in _ranks(disturbed):
        ended = rank.wait()
        require(ended.code == 0, f"continuing on two ranks, a rank {ended}")
    same_run(disturbed.run, _of_two_ranks(disturbed))


def dead_rank_of_torchrun(trial: Trial, disturbed: Disturbed) -> None:
    """The same under a real torchrun, which has to end too."""
    command, lines = _torchrun(disturbed), trial.rng.randint(1, 5)
    begun = command.wait_for(lambda: len(metrics(disturbed.run)) >= lines)
    ranks = [p for p in command.children() if "-m workbench" in " ".join(p.cmdline())] if begun else []
    if ranks:
        trial.rng.choice(ranks).kill()
        trial.counts["ranks of torchrun killed"] += 1
    _ends_soon(command, "one of its ranks was killed", traceback=True)
    ended = _torchrun(disturbed).wait()
    require(ended.code == 0, f"continuing, torchrun {ended}")
    same_run(disturbed.run, _of_two_ranks(disturbed))


def _torchrun(disturbed: Disturbed) -> Command:
    disturbed.starts += 1
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={_port()}"]
    log = disturbed.folder / f"start-{disturbed.starts}.log"
    return spawn([*program, "-m", "workbench", *disturbed.command], disturbed.folder, log, {"PYTHONPATH": str(ROOT)})


def _ranks(disturbed: Disturbed) -> list[Command]:
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())}
    return [disturbed.start(RANK=str(rank), LOCAL_RANK=str(rank), **environment) for rank in (0, 1)]


def _of_two_ranks(disturbed: Disturbed) -> Path:
    """The same run undisturbed on two ranks (the sums of two ranks are rounded in another order than those of one)."""
    folder = disturbed.folder / "undisturbed"
    folder.mkdir()
    disturbed.trial.world.copy(folder, *NEEDS[disturbed.kind.recipe])
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())}
    ranks = [
        start(
            disturbed.command, folder, folder / f"rank-{r}.log", environment={**environment, "RANK": r, "LOCAL_RANK": r}
        )
        for r in ("0", "1")
    ]
    for rank in ranks:
        ended = rank.wait()
        require(ended.code == 0, f"undisturbed, a rank {ended}")
    return folder / "run"


def _ends_soon(command: Command, after: str, *, traceback: bool = False) -> None:
    ended = command.wait(SOON)
    require(not ended.hung, f"after {after}, it {ended}")
    if ended.code == 0:  # it had all it needed
        return
    said = "error" in ended.said.lower() and (traceback or "Traceback" not in ended.said)
    require(ended.code > 0 and said, f"after {after} (wanted: one message, an exit code), it {ended}")


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
