"""The files in the folder of a run, by name, and which of them may be read. No other module has these names.

    recipe.yaml, tokenizer.json   the resolved recipe; the run's own copy of the tokenizer
    checkpoints/step-N/           weights, trainer and state; the memory by lane where texts are read continuously;
                                  of a sharded run, a file of weights and of moments from each rank
    best/, frozen.safetensors     the best weights; weights that are never trained, once
    data.json, code/              identity of data, code and unchanged weights; code next to the recipe
    metrics.jsonl, evaluations/, log.txt, tensorboard/
    status.json                   how the last training ended

Nothing else is state.
"""

from __future__ import annotations

import os
from pathlib import Path

from workbench.components.trust import CODE
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import real_path

RECIPE = "recipe.yaml"
"""The resolved recipe."""
TOKENIZER = "tokenizer.json"
DATA = "data.json"
"""The identities of the run's data and of its own code (`workbench.runs.data_record`)."""
METRICS, DAMAGED_METRICS = "metrics.jsonl", "metrics.damaged.jsonl"
LOG = "log.txt"
STATUS = "status.json"
"""How the last training ended (`workbench.runs.status`)."""
TENSORBOARD = "tensorboard"
CHECKPOINTS, BEST = "checkpoints", "best"
MODEL, TRAINER, MEMORY, STATE = "model.safetensors", "trainer.pt", "memory.safetensors", "state.json"
"""The files of a checkpoint."""
MODEL_PIECES, TRAINER_PIECES, VALUES = "model-pieces", "trainer-pieces", "values.json"
"""The folders with the pieces that each rank of a sharded run saves; the numbers that its optimizer keeps."""
TABLES = "tables"
"""The folder of the rows of sharded tables, and the key of its state with the number of updates of each table."""
FROZEN = "frozen.safetensors"
"""Weights that are not trained (`workbench.runs.frozen_weights`)."""
SNAPSHOT = "snapshot.json"
"""The list of a run's files, of a run on an object store (`workbench.runs.stored_run`)."""
SEEDS = "-seeds.json"
"""The suffix of the table of several seeds, next to their runs."""
EVALUATIONS, FIGURES = "evaluations", "figures"
"""Results as JSON, with the images of their examples in `images/`; drawn figures with their captions as JSON."""
REPORT = "report.html"
FILES = (RECIPE, TOKENIZER, DATA, METRICS, DAMAGED_METRICS, LOG, STATUS)
FOLDERS = (CHECKPOINTS, BEST, TENSORBOARD, CODE)
"""The folders that training writes."""


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return os.path.exists(folder / RECIPE)  # also of a word that is no path, such as a long override


def runs_below(folder: Path) -> list[Path]:
    """The runs that lie in a folder, by name."""
    return sorted(path.parent for path in folder.glob(f"*/{RECIPE}"))


def inside(folder: Path, path: Path) -> Path:
    """The path, if it is in the folder. A run may come from an untrusted source.

    Raises:
        WorkbenchError: the path, or a link on it, leads out of the folder.
    """
    if not real_path(path).is_relative_to(real_path(folder)):
        raise WorkbenchError(f"{path} is {real_path(path)}, outside of the run folder; put the file itself into it")
    return path
