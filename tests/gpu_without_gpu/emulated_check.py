"""`benchmarks.gpu_check` on the pretend device, its values computed by the CPU.

python -m tests.gpu_without_gpu.emulated_check --output check --size tiny --parts kernels
"""

from __future__ import annotations

import sys

from tests.gpu_without_gpu.emulation.mode import install

EMULATION = install()  # before the product is imported


def main() -> int:
    from benchmarks.gpu_check import main as check

    with EMULATION:
        return check()


if __name__ == "__main__":
    sys.exit(main())
