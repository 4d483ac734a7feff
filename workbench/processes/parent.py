"""A process that was started to work for another ends when that one does, however it ended."""

from __future__ import annotations

import multiprocessing
import os
import threading


def follow_parent() -> None:
    """End this process when its parent ends, killed ones included, even if that happened already.

    To be called in the child. The parent is known by a pipe that its end closes, not by its number: a child that looks
    for the number after its parent was killed finds whoever took the child over, and would wait for that one.
    """
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
