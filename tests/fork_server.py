"""The one process that the processes of tests are forked from. It has imported what they need, and has run nothing.

Starting Python anew would take most of their time. A process of tests has a single fork server, which imports what was
named before its first fork: all that is forked has to be named here.
"""

from __future__ import annotations

import multiprocessing

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "tests.optimization.sharded_ranks",
        "tests.runs.gloo_ranks",
        "tests.training.command_processes",
        "tests.training.sharded_recipes",
        # what commands import when they need it
        "scipy.special",
        "tensorboard.summary.writer.event_file_writer",
        "torch._dynamo",
        "torch.distributed.fsdp",
        "torch.utils.tensorboard",
        "workbench.cli.training",
        "workbench.report.page",
        "workbench.training.pretrain",
    ]
)
