"""What the pretend device counted, and where in the code the host waits for it."""

from __future__ import annotations

import ctypes
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("workbench", "kg", "vision", "pipelines")
KINDS = (
    "launches",
    "stream_waits",
    "device_waits",
    "event_waits",
    "blocking_copies",
    "to_device",
    "to_host",
    "on_device",
    "fills",
    "allocations",
    "products",
    "collectives",
)
"""As in `device/pretend.h`."""
WAITS = KINDS[1:5]

_library = ctypes.CDLL(None)
_counts = (ctypes.c_long * 16).in_dll(_library, "pretend_counts")
_recorded: list[Record] = []


@dataclass
class Record:
    """What happened while it was open.

    Attributes:
        counts: of each of `KINDS`.
        sites: how often the host waited, by `file:line what`.
    """

    counts: dict[str, int] = field(default_factory=dict)
    sites: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> int:
        return sum(self.counts[kind] for kind in WAITS)


def counts() -> dict[str, int]:
    return dict(zip(KINDS, _counts, strict=False))


@contextmanager
def recorded() -> Iterator[Record]:
    """Counts and waits of what runs inside, the autograd thread's too.

    Anomaly mode is on, so that a wait of the backward is charged to the line whose gradient it computes.
    """
    record, before = Record(), counts()
    _recorded.append(record)
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            yield record
    finally:
        _recorded.remove(record)
        record.counts = {kind: count - before[kind] for kind, count in counts().items()}


@contextmanager
def silence() -> Iterator[None]:
    """What this thread does inside is not counted: the emulation's own work."""
    silenced(1)
    try:
        yield
    finally:
        silenced(-1)


def silenced(change: int) -> None:
    """Begin (1) or end (-1) a silence of this thread."""
    _library.pretend_silence(change)


def launch(count: int = 1) -> None:
    """Count kernels that a GPU would run where the emulation computes something else."""
    for _ in range(count):
        _library.pretend_count(KINDS.index("launches"))


def wait(what: str, count: int = 1) -> None:
    """Count waits that an operator makes inside of itself (it must know how many rows it will give)."""
    for record in _recorded:
        record.sites[f"{site()} {what}"] += count
    for _ in range(count):
        _counts[KINDS.index("stream_waits")] += 1


def _on_event(kind: int) -> None:
    for record in _recorded:
        record.sites[site()] += 1


_hook = ctypes.CFUNCTYPE(None, ctypes.c_int)(_on_event)  # kept: C holds a bare pointer to it
_library.pretend_set_hook(_hook, ctypes.c_ulonglong(sum(1 << KINDS.index(kind) for kind in WAITS)))


def site() -> str:
    """`file:line` of the innermost line of the product that runs, or whose gradient is computed; else of a script."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_stack()]
    node = torch._C._current_autograd_node()
    lines = [_parsed(text) for text in (node.metadata.get("traceback_", []) if node is not None else [])]
    forward = [found for found in lines if found is not None]
    for places, reported in ((frames, _own), (forward, _own), (frames, _outside), (forward, _outside)):
        found = [text for file, line in places if (text := reported(file, line))]
        if found:
            return found[-1] + (" (backward)" if places is forward else "")
    return "the backward"


def _parsed(text: str) -> tuple[str, int] | None:
    """File and line of a formatted frame: '  File "NAME", line 12, in function'."""
    found = re.match(r'\s*File "(.+)", line (\d+)', text)
    return (found[1], int(found[2])) if found else None


def _own(file: str, line: int) -> str | None:
    """The place relative to the checkout, if the file belongs to the product."""
    try:
        inside = Path(file).relative_to(ROOT)
    except ValueError:
        return None
    return f"{inside.as_posix()}:{line}" if inside.parts[0] in PACKAGES else None


def _outside(file: str, line: int) -> str | None:
    """The place, if the file is neither torch's nor the emulation's."""
    skipped = (f"{Path(__file__).parent}/", f"{Path(torch.__file__).parent}/", "<")
    return None if file.startswith(skipped) or "threading" in file else f"{Path(file).name}:{line}"
