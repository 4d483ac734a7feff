"""Kills of preparing commands at any operation on their files: run again, they write the same bytes, and no more."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.robustness.soak.comparing import no_leftovers, same_content
from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.faults import Fault
from tests.robustness.soak.kills import killed
from tests.robustness.soak.processes import orphans, run

INPUTS = ("corpora/text", "corpora/graph", "corpora/pairs")
COMMANDS = {
    "text": "prepare text notes.txt --output out/it --workers {workers} --split held-out=0.1 --shard-size {size}",
    "image-text": "prepare image-text captions.jsonl --images photos --output out/it --shard-size {size}"
    " --workers {workers}",
    "triples": "prepare triples graph.tsv --entities entities.jsonl --relations relations.jsonl --output out/it",
    "link": "prepare link corpora/text --graph corpora/graph --output out/it --workers {workers}",
    "regions": "prepare regions corpora/pairs --backbone tf_efficientnet_lite0 --size 32 --grid 1 --limit 12"
    " --output out/it --workers {workers}",
    "tokenizer": "prepare tokenizer corpora/text --output out/it.json --vocab-size 200",
    "linker": "prepare linker corpora/graph --output out/it",
    "vectors": "prepare vectors corpora/graph --output out/it.safetensors --dim 4 --epochs 1",
}


def drawn(trial: Trial) -> str:
    """A kind of preparing command."""
    return trial.rng.choice(list(COMMANDS))


def command_of(trial: Trial, kind: str) -> list[str]:
    """Such a command."""
    sizes = {"size": trial.rng.choice([7, 20, 50]), "workers": trial.rng.randint(1, 2)}
    return COMMANDS[kind].format(**sizes).split()


def filled(trial: Trial, folder: Path) -> Path:
    """The folder with what the commands read."""
    trial.world.copy(folder, *INPUTS)
    (folder / "out").mkdir()
    return folder


def trial(trial: Trial) -> None:
    """One command."""
    kill(trial, drawn(trial))


def kill(trial: Trial, kind: str) -> None:
    """One to three kills of it."""
    rng, command = trial.rng, command_of(trial, kind)
    reference = trial.world.reference(command, "out", lambda folder: filled(trial, folder))
    folder = filled(trial, trial.folder)
    trial.counts[kind] += 1
    for number in range(rng.randint(1, 3)):
        fault = Fault(
            str(folder / "out"), at=trial.moment(reference.operations), after=rng.random() < 0.3, signal=signal.SIGKILL
        )
        ended = run(command, folder, folder / f"start-{number}.log", fault=fault)
        if ended.code == 0:
            break
        require(killed(ended), f"a start of prepare {kind} {ended}")
        trial.counts["kills"] += 1
    ended = run(command, folder, folder / "last.log")
    require(ended.code == 0, f"started again after a kill, prepare {kind} {ended}")
    no_leftovers(folder / "out")
    same_content(folder / "out", reference.output)
    left = orphans()
    require(not left, f"processes of prepare {kind} still run: {left}")
