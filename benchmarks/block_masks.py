"""Memory and host time of flex attention's block mask, for 8k to 128k rows: from lengths, and as torch makes it.

    python -m benchmarks.block_masks [--rows 8192 131072] [--limit-gb 40] [--compiled]

Rows are sequences of 512. `torch` is `create_block_mask`, which looks at rows x rows pairs (left out where they would
take more than the limit); `--compiled` adds the same compiled with dynamic sizes, after a first call of other sizes.
Peaks are the allocator's, over what the layout takes; host time is that of this process alone, the median of five.
Needs a CUDA device. On one that only pretends to be a device, memory and host time are as on a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask

from benchmarks.rounds import medians, timed
from workbench.core.errors import WorkbenchError
from workbench.models.attention import flex
from workbench.models.attention.block_mask import block_mask
from workbench.models.attention.request import Request
from workbench.models.layout import Layout

LENGTH = 512
KINDS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "prefix": (("rank",), None),
    "window 64": (("rank",), 64),
    "all five integers": (("doc", "rank", "until", "branch", "anchor"), None),
}


def request_of(rows: int, integers: tuple[str, ...], window: int | None) -> Request:
    """Attention of a layout without a known pattern."""
    count = rows // LENGTH
    offsets = torch.arange(count + 1, device="cuda") * LENGTH
    layout = Layout(
        [LENGTH] * count, offsets, {n: torch.zeros(rows, dtype=torch.long, device="cuda") for n in integers}
    )
    q = torch.empty(rows, 1, 16, device="cuda", dtype=torch.bfloat16)
    return Request(q, q, q, layout, layout, window=window)


def measured(make: Callable[[Request], Any], requests: list[Request]) -> str:
    """Peak memory and host milliseconds of a way to make the mask."""
    times = []
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for request in requests:
        times.append(timed(partial(make, request)))
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return f"{peak / 2**30:8.3f} GiB {medians({'the mask': times})['the mask'] * 1e3:7.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[8192, 16384, 32768, 65536, 131072])
    parser.add_argument("--limit-gb", type=float, default=40.0)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise WorkbenchError(
            "the block mask is measured on a CUDA device, and there is none; run this where there is one"
        )
    compiled = torch.compile(create_block_mask, dynamic=True)

    def by_torch(make: Any) -> Callable[[Request], Any]:
        return lambda r: make(flex._mask_mod(r), None, None, r.queries.rows, r.keys.rows, device="cuda")

    ways = {"lengths": lambda r: block_mask(r, flex._mask_mod(r)), "torch": by_torch(create_block_mask)}
    if options.compiled:
        ways["torch, compiled"] = by_torch(compiled)
        for integers, window in KINDS.values():
            ways["torch, compiled"](request_of(4096, integers, window))
    for kind, (integers, window) in KINDS.items():
        for rows in options.rows:
            for way, make in ways.items():
                needed = rows**2 * (9 if window is None else 17) / 2**30
                if way == "torch" and needed > options.limit_gb:
                    print(f"{kind:18s} {rows:7d} rows  {way:16s} left out: about {needed:.0f} GiB", flush=True)
                    continue
                requests = [request_of(rows, integers, window) for _ in range(5 if way != "torch" else 2)]
                for request in requests:  # what the mask is asked by is there already
                    flex._mask_mod(request)
                print(f"{kind:18s} {rows:7d} rows  {way:16s} {measured(make, requests)}", flush=True)


if __name__ == "__main__":
    main()
