"""A job as a process. Imports cost more than many of the jobs, so processes are forked from one that has made them.

On Linux the fork server of `multiprocessing` imports once what nearly all jobs need; elsewhere each process imports
for itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from pipelines.demo.plan import WRITE
from workbench.core.errors import WorkbenchError

IMPORTED = (
    "workbench.cli.app",
    "workbench.cli.training",
    "workbench.training.pretrain",
    "workbench.training.verify_resume",
    "workbench.cli.evaluation",
    "workbench.evaluation.scoring.evaluation",
    "workbench.evaluation.finetuning.finetuning",
    "kg.evaluation.tasks.facts",
    "kg.evaluation.tasks.entity_typing",
    "kg.sequences.transforms.sentence_tree",
    "vision.evaluation.tasks.vqa",
    "vision.evaluation.tasks.retrieval",
    "pipelines.commands.corpora.text",
    "pipelines.commands.corpora.image_text",
    "pipelines.stages.region_features",
    "vision.features.region_sources",
    "torch.utils.tensorboard",
    "torch._dynamo",
)


class Processes:
    """Starts jobs as processes, each with its log file and so many threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.kind: type[BaseProcess] = multiprocessing.get_context("spawn").Process
        if sys.platform == "linux":
            server = multiprocessing.get_context("forkserver")
            server.set_forkserver_preload(list(IMPORTED))
            self.kind = server.Process

    def start(self, command: Sequence[str], log: Path) -> BaseProcess:
        """A process that runs a command in the present folder; what it prints goes to `log`."""
        # the raw files need none of the imports, and are written while these are made
        kind = multiprocessing.get_context("spawn").Process if command[0] == WRITE else self.kind
        process = kind(target=_work, args=(list(command), str(log), os.getcwd(), self.threads))
        process.start()
        return process


def _work(command: list[str], log: str, folder: str, threads: int) -> None:
    """What a process does. It ends when the demo does, and Ctrl-C is for the demo, which then stops its jobs."""
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    if command[0] == WRITE:
        from pipelines.demo.raw import write_raw_split

        try:
            write_raw_split(command[1], Path("raw"))
        except WorkbenchError as error:
            sys.exit(f"error: {error}")
        return
    import torch

    from workbench.cli.app import main

    torch.set_num_threads(threads)
    sys.argv = ["workbench", *command]
    main()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
