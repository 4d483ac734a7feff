"""`workbench check` on the pretend device, its values computed by the CPU.

python -m tests.gpu_without_gpu.emulated_check --output check --size tiny --part kernels
"""

from __future__ import annotations

import sys

from tests.gpu_without_gpu.emulation.mode import install

EMULATION = install()  # before the product is imported


def main() -> None:
    from workbench.cli import app

    sys.argv.insert(1, "check")
    with EMULATION:
        app.main()


if __name__ == "__main__":
    main()
