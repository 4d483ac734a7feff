"""Commands of the product on the pretend device, with values: `python -m workbench ...` under the emulation.

    python -m tests.gpu_without_gpu workbench pretrain ... ++ evaluate ... ++ generate ...

`++` stands between commands of one process; the first that fails ends it.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from tests.gpu_without_gpu.emulation.mode import install

EMULATION = install()  # before the product is imported


def main(words: list[str]) -> int:
    _in_every_thread()
    from workbench.cli import app

    with EMULATION:
        while words:
            end = words.index("++") if "++" in words else len(words)
            sys.argv[1:], words = words[:end], words[end + 1 :]
            try:
                app.main()
            except SystemExit as ended:
                if ended.code:
                    return int(ended.code) if isinstance(ended.code, int) else 1
    return 0


def _in_every_thread() -> None:
    """A mode belongs to its thread: one that fetches batches, or writes, has it too."""
    run = threading.Thread.run

    def emulated(self: threading.Thread) -> Any:
        with EMULATION:
            return run(self)

    threading.Thread.run = emulated  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
