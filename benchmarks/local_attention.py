"""A layer's window on a CPU: time and memory of one attention call and its backward, next to attention without a
window.

    python -m benchmarks.local_attention
    python -m benchmarks.local_attention --rows 1024 2048 --dropout 0.1
    python -m benchmarks.local_attention --rows 8192 --everywhere 8

`full` sees all rows of one sequence; `padded` has the window as a mask over all pairs; `banded` multiplies chunks with
the keys around them. Rounds alternate (`benchmarks.rounds`), with queries, keys and values of 12 heads of 64; memory is
the growth of the process's peak over its inputs, of a process for each. What would need more than `--limit` GiB is not
run.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.rounds import clock_of, compared

KERNELS = ("full", "padded", "banded")


def step(kernel: str, rows: int, args: argparse.Namespace, window: int) -> Callable[[], None]:
    """A forward and backward of one sequence."""
    import torch

    from workbench.models.attention.call import attend, use_kernel
    from workbench.models.layout import Layout

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    q, k, v = (torch.randn(rows, args.heads, args.size, requires_grad=True) for _ in range(3))
    marks = torch.zeros(rows, dtype=torch.long)
    marks[: args.everywhere] = 1
    integers = {"everywhere": marks} if args.everywhere and kernel != "full" else {}
    offsets = torch.tensor([0, rows])

    def run() -> None:
        layout = Layout([rows], offsets, integers)  # masks are made anew, as with each batch
        with use_kernel("padded" if kernel == "full" else kernel):
            near = None if kernel == "full" else window
            out, _ = attend(q, k, v, layout, layout, window=near, dropout=args.dropout)
        torch.autograd.grad(out.sum(), (q, k, v))

    return run


def most() -> float:
    """The most memory that this process had [MiB]; what it was started from does not count, as in ru_maxrss."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def peak(kernel: str, rows: int, args: argparse.Namespace, window: int, found: mp.Queue[float]) -> None:
    """The growth of this process's peak [MiB] in a step, without what small ones need."""
    step("banded", 64, args, 8)()
    run = step(kernel, rows, args, window)
    before = most()
    run()
    found.put(most() - before)


def memory(kernel: str, rows: int, args: argparse.Namespace, window: int) -> float:
    context = mp.get_context("spawn")
    found: mp.Queue[float] = context.Queue()
    process = context.Process(target=peak, args=(kernel, rows, args, window, found))
    process.start()
    value = found.get(timeout=600)
    process.join()
    return value


def fits(kernel: str, rows: int, args: argparse.Namespace) -> bool:
    """Whether what is made for all pairs stays below the limit: masks, and with dropout all weights."""
    pairs = rows * rows / 2**30
    needed = {"full": 0.0, "padded": 10 * pairs, "banded": 0.0}[kernel]
    if kernel != "banded" and args.dropout:
        needed += args.heads * 14 * pairs
    return needed < args.limit


def timed(kernels: list[str], rows: int, args: argparse.Namespace, window: int) -> dict[str, float]:
    """Milliseconds of each."""
    steps = {kernel: step(kernel, rows, args, window) for kernel in kernels}
    return {kernel: 1000 * each for kernel, each in compared(steps, args.rounds, clock_of(args.threads)).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 2048, 8192, 32768])
    parser.add_argument("--windows", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--everywhere", type=int, default=0, help="first rows that the window does not hold back")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=4.0, help="GiB")
    args = parser.parse_args()
    sys.stdout.write("| rows | window | " + " | ".join(f"{k} ms | MiB" for k in KERNELS) + " | banded / full |\n")
    for rows in args.rows:
        for window in args.windows:
            kernels = [kernel for kernel in KERNELS if fits(kernel, rows, args)]
            times = timed(kernels, rows, args, window)
            cells = [
                f"{times[k]:,.0f} | {memory(k, rows, args, window):,.0f}" if k in times else "- | -" for k in KERNELS
            ]
            ratio = f"{times['banded'] / times['full']:.3f}" if "full" in times else "-"
            sys.stdout.write(f"| {rows:,} | {window} | {' | '.join(cells)} | {ratio} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
