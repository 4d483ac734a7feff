"""`python -m pipelines.demo FOLDER`: write the raw files of the demo."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from pipelines.demo.easy_vqa import write_easy_vqa
from pipelines.demo.scene_files import write_scenes
from pipelines.demo.world_files import write_world
from workbench.errors import WorkbenchError

log = logging.getLogger("pipelines.demo")


def main(arguments: list[str] | None = None) -> int:
    """Write `world/`, `scenes/` and `easy_vqa/` below the folder."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.demo",
        description="Write the demo's raw files: a world graph with texts, rendered scenes, and easy-VQA.",
        epilog="example: python -m pipelines.demo data/demo",
    )
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--seed", type=int, default=0, help="decides wordings, held-out facts and scenes (default 0)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parts = {
        "world": lambda folder: write_world(folder, options.seed),
        "scenes": lambda folder: write_scenes(folder, options.seed),
        "easy_vqa": write_easy_vqa,
    }
    for name, write in parts.items():
        started = time.perf_counter()
        try:
            counts = write(options.folder / name)
        except WorkbenchError as error:
            log.error("%s", error)
            return 2
        log.info("%s: %s (%.1f s)", options.folder / name, counts, time.perf_counter() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
