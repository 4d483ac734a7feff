"""A command of the product on the pretend device, with values: `python -m workbench ...` under the emulation.

torchrun --nproc-per-node 2 -m tests.gpu_without_gpu.emulated pretrain ...
"""

from __future__ import annotations

import sys

from tests.gpu_without_gpu.emulation.mode import install

EMULATION = install()  # before the product is imported


def main() -> None:
    from workbench.__main__ import main as command

    with EMULATION:
        command()


if __name__ == "__main__":
    sys.exit(main())
