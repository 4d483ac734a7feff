"""Values that make no sense, for keys of recipes and options: exit code 2 and one message that names the key."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

from tests.robustness.bad_values import flaw, of_commands, of_recipes
from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.processes import run

NO_NUMBER = ["abc", "[1]", "{a: 1}", ".nan", "''"]
COUNT = ["0", "-1", "-100", "1.5", *NO_NUMBER]
WHOLE = ["-1", "-7", "1.5", *NO_NUMBER]
POSITIVE = ["0", "-1", "-1e-9", ".inf", "-.inf", *NO_NUMBER]
DECLARED = [*of_recipes("tiny-text"), *of_commands()]
"""What the declared types of keys and options do not allow."""
OPTIONS = {
    "prepare text notes.txt -o out": {
        "--shard-size": COUNT,
        "--workers": WHOLE,
        "--shard-bytes": COUNT,
        "--limit": COUNT,
        "--min-length": WHOLE,
        "--split": ["held-out=2", "held-out=-1", "a/b=0.1", "x", "=0.1"],
        "--format": ["nonsense"],
        "--on-error": ["nonsense"],
    },
    "prepare tokenizer corpora/text -o out.json": {"--vocab-size": COUNT, "--kind": ["nonsense"]},
    "prepare vectors corpora/graph -o out.safetensors": {
        "--dim": COUNT,
        "--epochs": COUNT,
        "--batch-size": COUNT,
        "--lr": POSITIVE,
        "--negatives": COUNT,
        "--model": ["nonsense"],
        "--loss": ["nonsense"],
    },
    "prepare linker corpora/graph -o out": {"--case": ["nonsense"], "--min-length": WHOLE, "--skip": ["nonsense"]},
    "encode run notes.txt -o out.safetensors": {
        "--batch-size": COUNT,
        "--limit": COUNT,
        "--stream": ["nonsense"],
        "--pool": ["nonsense"],
    },
    "show corpora/text": {"--samples": COUNT, "--seed": WHOLE},
    "verify-resume tiny-text -o out": {"--steps": COUNT},
}
"""Bad values of options of commands that have everything else they need."""
NEEDS = ("corpora/text", "corpora/tokenizer.json", "corpora/graph", "run")


def trial(trial: Trial) -> None:
    """One bad value, the rest as it should be."""
    key, command = _drawn(trial.rng)
    folder = trial.world.copy(trial.folder, *NEEDS)
    before = _names(folder)
    ended = run(shlex.split(command), folder, folder / "output.log")
    trial.counts["bad values"] += 1
    trial.counts[f"bad values of {command.split()[0]}"] += 1
    wanted = f"workbench {command}\n(wanted: exit code 2, one message that names {key!r}, nothing left)"
    require(
        not ended.hung and not flaw(key, ended.code, ended.said),
        f"{wanted}\n{flaw(key, ended.code, ended.said)}\n{ended}",
    )
    left = sorted(_names(folder) - before - {"output.log"})
    require(not left, f"{wanted}\nleft behind: {', '.join(left)}\n{ended}")


def _drawn(rng: random.Random) -> tuple[str, str]:
    """A key or an option, and a command line with a bad value of it."""
    if rng.random() < 0.8:
        bad = rng.choice(DECLARED)
        return bad.key, bad.command
    command = rng.choice(list(OPTIONS))
    option = rng.choice(list(OPTIONS[command]))
    value = rng.choice(OPTIONS[command][option])
    return option, f"{command} {shlex.quote(f'{option}={value}')}"


def _names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}
