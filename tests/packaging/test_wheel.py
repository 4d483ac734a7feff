"""The built wheel, unpacked somewhere else, in a folder that knows nothing of this checkout."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import PACKAGES, ROOT, Run, tracked_files

pytestmark = pytest.mark.slow

LAYER = '''
import torch
from torch import nn


class Gate(nn.Module):
    """Adds what a gate lets through of a linear map of the rows."""

    def __init__(self, stream: str, sizes: dict[str, int], bias: float = 0.0) -> None:
        super().__init__()
        self.stream = stream
        self.value = nn.Linear(sizes[stream], sizes[stream])
        self.gate = nn.Linear(sizes[stream], sizes[stream])
        self.bias = bias

    def forward(self, hidden, context):
        rows = hidden[self.stream]
        return {**hidden, self.stream: rows + torch.sigmoid(self.gate(rows) + self.bias) * self.value(rows)}
'''
OBJECTIVE = '''
import numpy as np
from torch import nn
from torch.nn import functional as F

from workbench.pretraining.objective import Head, LossOutput, Objective
from workbench.sequences.sequence import Rows


class Length(Objective):
    """Predicts the number of tokens of a sequence from its first row."""

    def corrupt(self, sequences, draws):
        for sequence in sequences:
            length = np.array([sequence.length("text")], np.int64)
            sequence.targets[self.name] = {"rows": Rows("text", np.zeros(1, np.int64)), "labels": length}
        return {}

    def head(self, network):
        return LengthHead(network.sizes["text"])


class LengthHead(Head):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, seen):
        guess = self.score(seen.states["text"][seen.targets["rows"]]).squeeze(-1)
        return LossOutput(F.smooth_l1_loss(guess, seen.targets["labels"].float(), reduction="sum"), {})
'''
RECIPE = """
description: A user's recipe.
tokenizer: corpora/tokenizer.json
model:
  streams:
    text: {embedding: token, hidden_size: 16, max_positions: 64}
  layers:
    - {layer: self, stream: text, num_heads: 2, intermediate_size: 32}
    - {layer: gate:Gate, stream: text, bias: 1.0}
tasks:
  text:
    corpora: [corpora/notes]
    sequence: {builder: document, max_length: 64}
    objectives:
      - {objective: mlm}
      - {objective: length:Length, weight: 0.1}
train: {max_steps: 5, global_batch_size: 8, micro_batch_size: 8, lr: 1e-3, num_workers: 0, log_every: 1}
"""
LOAD = """
import pathlib, workbench
loaded = workbench.load("run", trust=True)
layer = loaded.torch.network().layers[1]
assert type(layer).__name__ == "Gate" and layer.bias == 1.0, layer
assert "length" in loaded.torch.heads
assert not pathlib.Path(workbench.__file__).is_relative_to(CHECKOUT), workbench.__file__
print("loaded")
"""


def test_the_wheel_holds_the_packages_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == set(PACKAGES)
    for package in PACKAGES:
        sources = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert sources <= set(names), sorted(sources - set(names))
        assert f"{package}/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)


def test_the_source_distribution_holds_every_file_of_the_project(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    missing = tracked_files() - names
    assert not missing, sorted(missing)
    made = {name for name in names - tracked_files() if ".egg-info/" not in name}
    assert made == {"PKG-INFO", "setup.cfg"}


def test_the_recipes_are_listed_from_any_folder(run: Run, installed: Path) -> None:
    shipped = {path.stem for path in (installed / "workbench" / "recipes").glob("*/*.yaml")}
    assert shipped == {path.stem for path in (ROOT / "workbench" / "recipes").glob("*/*.yaml")}
    listed = run("-m", "workbench", "recipes").stdout
    assert shipped <= set(listed.split())
    place = run("-c", "import workbench; print(workbench.__file__)").stdout.strip()
    assert Path(place).is_relative_to(installed)


def test_the_version_and_the_command_are_declared(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist() if "info/" in name}
    assert "workbench = workbench.__main__:main" in texts["entry_points.txt"]
    assert "License-Expression: Apache-2.0" in texts["METADATA"]
    assert "Requires-Python: >=3.11" in texts["METADATA"]


def test_the_page_of_an_index_has_no_link_into_this_folder(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        text = archive.read(name).decode().partition("\n\n")[2]
    assert "## Install" in text
    links = re.findall(r"\[[^\]]*\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("http")] == []


def test_a_user_trains_a_layer_and_an_objective_of_their_own(run: Run, tmp_path: Path) -> None:
    notes = [f"The old river number {n} runs past a small town. People buy bread there." for n in range(30)]
    for name, text in {
        "notes.txt": "\n\n".join(notes),
        "gate.py": LAYER,
        "length.py": OBJECTIVE,
        "mine.yaml": RECIPE,
    }.items():
        (tmp_path / name).write_text(text)
    run("-m", "workbench", "prepare", "text", "notes.txt", "--output", "corpora/notes", "--workers", "1")
    tokenizer = ("corpora/tokenizer.json", "--vocab-size", "99")
    run("-m", "workbench", "prepare", "tokenizer", "corpora/notes", "--output", *tokenizer)
    trained = run("-m", "workbench", "pretrain", "mine.yaml", "--trust", "--run", "run").stderr
    assert "mlm/loss" in trained
    assert "length/loss" in trained
    for name in ("gate.py", "length.py", "mine.yaml"):  # the run has what it needs
        (tmp_path / name).unlink()
    assert "loaded" in run("-c", f"CHECKOUT = {str(ROOT)!r}\n{LOAD}").stdout
