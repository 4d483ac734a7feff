"""Pretraining workbench: text, knowledge and vision-language Transformers in one loop.

`workbench.load(run)` gives a trained run's (or a release's) model, tokenizer and transforms back in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.shipped import find_beside

if TYPE_CHECKING:
    from workbench.interop.opening import load as load

__all__ = ["load"]

find_beside()


def __getattr__(name: str) -> Any:
    if name == "load":  # imported when used: the command line starts without torch
        from workbench.interop.opening import load

        return load
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")
