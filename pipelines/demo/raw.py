"""Writes the demo's raw files: a world (graph and texts), rendered scenes, easy-VQA."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pipelines.demo.easy_vqa_files import write_easy_vqa
from pipelines.demo.scenes import write_scenes
from pipelines.demo.world_files import write_world

RAW_SPLITS: dict[str, Callable[[Path, int], object]] = {
    "scenes": write_scenes,
    "world": write_world,
    "easy_vqa": lambda folder, seed: write_easy_vqa(folder),
}


def write_raw_split(name: str, folder: Path, seed: int = 0) -> None:
    """Write `folder`/`name` whole or not at all; skip it if it exists.

    Raises:
        WorkbenchError: a package that it uses is not installed.
    """
    target = folder / name
    if target.is_dir():
        return
    draft = folder / f".{name}"
    shutil.rmtree(draft, ignore_errors=True)
    RAW_SPLITS[name](draft, seed)
    draft.replace(target)
