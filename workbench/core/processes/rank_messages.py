"""What the ranks that torchrun started say once: they read the same inputs, and meet the same error."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import timedelta

PATIENCE = timedelta(seconds=20)
"""How long a rank waits for another's words before it says them itself."""


def say_once(message: str, say: Callable[[str], None]) -> None:
    """Call `say(message)` on the first of torchrun's ranks that has this message; the others return when it was said.

    Whatever only one rank has to say is said, and nothing is lost: where torchrun's store does not answer, or the
    first rank ended before it spoke, every rank speaks. So does every process that torchrun did not start.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        say(message)
        return
    import torch.distributed as dist  # a second, for those alone who need it

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"workbench/{attempt}/{hashlib.sha256(message.encode()).hexdigest()}"
    try:
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=PATIENCE
        )
        if store.add(f"{key}/came", 1) > 1:
            store.wait([f"{key}/said"])
            return
    except (RuntimeError, KeyError, ValueError):  # torch's errors of connections are RuntimeErrors
        say(message)
        return
    say(message)
    store.set(f"{key}/said", "")
