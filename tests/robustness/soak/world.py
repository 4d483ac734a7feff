"""The inputs of trials: raw files, what the commands make of them, and runs without any fault to compare with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.demo.small_files import write_small_files
from tests.robustness.soak.faults import Fault, make_counter
from tests.robustness.soak.processes import run

PREPARED = {
    "corpora/text": "prepare text notes.txt --output corpora/text --shard-size 30 --workers 1",
    "corpora/tokenizer.json": "prepare tokenizer corpora/text --output corpora/tokenizer.json --vocab-size 200",
    "corpora/graph": "prepare triples graph.tsv --entities entities.jsonl --relations relations.jsonl"
    " --output corpora/graph",
    "corpora/wiki-linked": "prepare link corpora/text --graph corpora/graph --output corpora/wiki-linked --workers 1",
    "corpora/pairs": "prepare image-text captions.jsonl --images photos --output corpora/pairs --shard-size 15"
    " --workers 1",
    "corpora/regions": "prepare regions corpora/pairs --backbone tf_efficientnet_lite0 --size 32 --grid 1 --limit 6"
    " --output corpora/regions --workers 1",
    "corpora/vectors.safetensors": "prepare vectors corpora/graph --output corpora/vectors.safetensors --dim 4"
    " --epochs 1",
    "corpora/linker": "prepare linker corpora/graph --output corpora/linker",
    "run": "pretrain tiny-text train.max_steps=4 train.save_every=2 train.log_every=1 --output run",
}
"""What may be asked for, and the command that makes it (in the folder of the raw files)."""
NEEDS = {
    "corpora/tokenizer.json": ["corpora/text"],
    "corpora/wiki-linked": ["corpora/text", "corpora/graph"],
    "corpora/regions": ["corpora/pairs"],
    "corpora/vectors.safetensors": ["corpora/graph"],
    "corpora/linker": ["corpora/graph"],
    "run": ["corpora/text", "corpora/tokenizer.json"],
}


@dataclass(frozen=True)
class Reference:
    """A command's output without faults, and how many operations on files it took."""

    output: Path
    operations: int


class World:
    """A folder that is filled when something is asked for."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self._references: dict[tuple[str, ...], Reference] = {}
        write_small_files(folder)

    def prepare(self, *names: str) -> Path:
        """Make these of `PREPARED`, and what they need, unless they are there; returns the folder."""
        for name in names:
            self.prepare(*NEEDS.get(name, []))
            if not (self.folder / name).exists():
                self._run(PREPARED[name].split(), self.folder, f"{name.replace('/', '-')}.log")
        return self.folder

    def copy(self, into: Path, *names: str) -> Path:
        """A folder with the raw files and these prepared things, as links; what is next to them may be written."""
        self.prepare(*names)
        for entry in self.folder.iterdir():
            if entry.suffix in (".txt", ".tsv", ".jsonl") or entry.name == "photos":
                (into / entry.name).symlink_to(entry)
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).symlink_to(self.folder / name)
        return into

    def reference(self, command: list[str], output: str, make: Callable[[Path], Path]) -> Reference:
        """What `command` writes as `output` in a folder that `make` fills; made once."""
        key = (*command, output)
        if key not in self._references:
            folder = self.folder / "references" / str(len(self._references))
            folder.mkdir(parents=True)
            count = make_counter(folder / "operations")
            place = make(folder)
            fault = Fault(str(place), at=0, counter=str(folder / "operations"))
            self._run(command, place, "reference.log", fault)
            self._references[key] = Reference(place / output, count())
        return self._references[key]

    def _run(self, command: list[str], folder: Path, log: str, fault: Fault | None = None) -> None:
        ended = run(command, folder, self.folder / log, fault=fault)
        if ended.code != 0:
            raise RuntimeError(f"workbench {' '.join(command)}: without any fault it {ended}")
