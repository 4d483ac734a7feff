"""Messages that the ranks of torchrun print once: they read the same inputs and meet the same errors."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import timedelta

PATIENCE = timedelta(seconds=20)
"""How long a rank waits for another rank's message before it prints the message itself."""


def say_once(message: str, say: Callable[[str], None]) -> None:
    """Call `say(message)` on the first of torchrun's ranks that has this message; the others return when it was
    printed.

    No message is lost: if torchrun's store does not answer, or the first rank ends before it prints, every rank prints.
    So does every process that torchrun did not start.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        say(message)
        return
    import torch.distributed as dist  # takes a second, and is only needed under torchrun

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"workbench/{attempt}/{hashlib.sha256(message.encode()).hexdigest()}"
    try:
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=PATIENCE
        )
        if store.add(f"{key}/came", 1) > 1:
            store.wait([f"{key}/said"])
            return
    except (RuntimeError, KeyError, ValueError):  # torch raises RuntimeErrors for connections
        say(message)
        return
    say(message)
    store.set(f"{key}/said", "")
