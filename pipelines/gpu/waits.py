"""Where a base-size step waits for the card, and how long the card has nothing to do.

Waits are reported by torch's own debug mode (`torch.cuda.set_sync_debug_mode`), each with the innermost line of this
project's code. It does not see collectives. The idle share is what kernels, copies and fills do not cover of the time
between the first and the last of them in a few steps, as `torch.profiler` recorded it.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from pipelines.gpu.record import CheckRecord, Setting
from pipelines.gpu.steps import SYSTEMS, WARM_UP, Stepper, emptied, recipe_of

ALLOWED = 1
"""Waits of a step: that for its losses and its gradient's norm, at its end."""
IDLE, STEPS = 0.2, 3
WARNING = "called a synchronizing"
"""Of torch's message about a wait; that about the mode itself has other words."""
HOUSE = Path(__file__).resolve().parents[2]
Found = Counter[str]


def run_waits(setting: Setting, record: CheckRecord) -> None:
    """The waits of a step of each system, by line, after one that must be seen."""
    with waits() as found:
        one_wait(setting.device)
    record.check("a wait on purpose", found.total() == 1, f"{found.total()} seen", "1")
    for name in record.in_time(list(SYSTEMS)):
        with record.guarded(name):
            step = _warm(name, setting)
            with waits() as found:
                step()
            places = ", ".join(f"{place} x{count}" for place, count in found.most_common())
            text = f"{found.total()} ({places})" if places else "0"
            record.check(f"{name}, waits of a step", found.total() <= ALLOWED, text, f"<= {ALLOWED}", waits=dict(found))
            del step
        emptied()


def run_idle(setting: Setting, record: CheckRecord) -> None:
    """The idle share of a few steps of each system."""
    for name in record.in_time(list(SYSTEMS)):
        with record.guarded(name):
            share, kernels = idle(_warm(name, setting))
            text = f"{share:.1%} of the time, {kernels} kernels and copies a step"
            record.check(f"{name}, idle", share <= IDLE, text, f"<= {IDLE:.0%}", share=share, kernels=kernels)
        emptied()


def one_wait(device: torch.device) -> None:
    """Read a number of the card."""
    torch.ones(1, device=device).item()


def _warm(name: str, setting: Setting) -> Stepper:
    step = Stepper(recipe_of(name, setting), setting.world, WARM_UP)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    return step


@contextmanager
def waits() -> Iterator[Found]:
    """Counts the waits inside, by file and line."""
    found: Found = Counter()

    def reported(message: Any, category: Any, *place: Any, **more: Any) -> None:
        if WARNING in str(message):
            found[_place()] += 1

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = reported
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(mode)


def _place() -> str:
    """The innermost line of the project's code that led here."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_stack()]
    own = [(path, line) for path, line in frames if path.is_relative_to(HOUSE) and path != Path(__file__)]
    if not own:
        return "a backward"  # another thread, which no line of the project's runs in
    path, line = own[-1]
    return f"{path.relative_to(HOUSE)}:{line}"


def idle(step: Callable[[], object]) -> tuple[float, int]:
    """The share of the time in which the card does nothing, and what it does in a step.

    Raises:
        RuntimeError: the profiler recorded nothing of the card.
    """
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    own = [e for e in profiler.events() or [] if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
    spans = sorted((event.time_range.start, event.time_range.end) for event in own)
    if not spans:
        raise RuntimeError("the profiler recorded nothing of the card (is CUPTI there, and allowed to be used?)")
    return 1 - covered(spans) / max(max(end for _, end in spans) - spans[0][0], 1e-9), len(spans) // STEPS


def covered(spans: list[tuple[float, float]]) -> float:
    """The length of the union of spans, which are sorted by their start."""
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
