"""Values that make no sense, for keys of recipes and options: exit code 2 and one message that names the key."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path

from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.processes import run

NO_NUMBER = ["abc", "[1]", "{a: 1}", ".nan", "''"]
COUNT = ["0", "-1", "-100", "1.5", *NO_NUMBER]
WHOLE = ["-1", "-7", "1.5", *NO_NUMBER]
POSITIVE = ["0", "-1", "-1e-9", ".inf", "-.inf", *NO_NUMBER]
SHARE = ["-0.1", "1.5", "-1", ".inf", *NO_NUMBER]
CHOICE = ["nonsense", "[1]", "{a: 1}", "3"]
FLAG = ["maybe", "2.5", "[1]", "{a: 1}"]
KEYS = {
    "train.max_steps": COUNT,
    "train.global_batch_size": COUNT,
    "train.micro_batch_size": COUNT,
    "train.lr": POSITIVE,
    "train.warmup_steps": WHOLE,
    "train.lr_schedule": CHOICE,
    "train.weight_decay": ["-0.1", "-50", *NO_NUMBER],
    "train.betas": ["[2,3]", "[-1,0.9]", "[0.9]", "[0.9,1.0]", "0.9", "abc", "[a,b]"],
    "train.eps": POSITIVE,
    "train.clip_norm": POSITIVE,
    "train.precision": CHOICE,
    "train.compile": FLAG,
    "train.activation_checkpointing": FLAG,
    "train.num_workers": [*WHOLE, "1000000"],
    "train.log_every": COUNT,
    "train.evaluate_every": WHOLE,
    "train.evaluate_steps": COUNT,
    "train.save_every": WHOLE,
    "train.keep_last": COUNT,
    "train.on_error": CHOICE,
    "train.freeze": ["3", "{a: 1}"],
    "train.nonsense": ["1"],
    "seed": ["-1", "1.5", *NO_NUMBER],
    "name": ["a/b", "..", "''"],
    "kind": ["nonsense", "3"],
    "control": ["nonsense", "3"],
    "tokenizer": ["nonsense.json", "[1]"],
    "model.layers": ["[]", "3", "[3]", "[{layer: nonsense}]"],
    "model.layers.0.num_heads": [*COUNT, "5"],
    "model.layers.0.intermediate_size": COUNT,
    "model.layers.0.repeat": COUNT,
    "model.layers.0.layer": CHOICE,
    "model.layers.0.stream": ["nonsense", "3"],
    "model.layers.0.dropout": SHARE,
    "model.layers.0.nonsense": ["1"],
    "model.streams.text.hidden_size": [*COUNT, "100000000"],
    "model.streams.text.max_positions": [*COUNT, "16"],
    "model.streams.text.embedding": CHOICE,
    "tasks.text.sequence.max_length": [*COUNT, "1"],
    "tasks.text.sequence.builder": CHOICE,
    "tasks.text.corpora": ["[]", "[nonsense]", "3", "{corpora/text: -1}", "{corpora/text: 0}"],
    "tasks.text.objectives": ["[]", "3", "[{objective: nonsense}]"],
    "tasks.text.objectives.0.rate": SHARE,
    "tasks.text.objectives.0.policy": CHOICE,
    "tasks.text.objectives.0.weight": ["-1", *NO_NUMBER],
}
"""Bad values of a recipe's keys, for tiny-text."""
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
"""Bad values of commands' options."""
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
    require(ended.code == 2 and not ended.hung, f"{wanted}\n{ended}")
    require("Traceback" not in ended.said and len(re.findall(r"(?i)\berror\b", ended.said)) == 1, f"{wanted}\n{ended}")
    require(key.strip("-").split(".")[-1] in ended.said, f"{wanted}\n{ended}")
    left = sorted(_names(folder) - before - {"output.log"})
    require(not left, f"{wanted}\nleft behind: {', '.join(left)}\n{ended}")


def _drawn(rng: random.Random) -> tuple[str, str]:
    """A key or an option, and a command line that gives it a bad value."""
    if rng.random() < 0.65:
        key = rng.choice(list(KEYS))
        value = rng.choice(KEYS[key])
        return key, f"pretrain tiny-text train.max_steps=1 {shlex.quote(f'{key}={value}')} -o out"
    command = rng.choice(list(OPTIONS))
    option = rng.choice(list(OPTIONS[command]))
    value = rng.choice(OPTIONS[command][option])
    return option, f"{command} {shlex.quote(f'{option}={value}')}"


def _names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}
