"""Pretraining workbench: text, knowledge and vision-language Transformers in one loop.

`workbench.load(run)` gives a trained run's (or a released model's) model, tokenizer and transforms back in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.core.shipped import find_package_files

if TYPE_CHECKING:
    from workbench.interop.run_or_checkpoint import load as load

__all__ = ["load"]

find_package_files()


def __getattr__(name: str) -> Any:
    if name == "load":  # imported when used: the command line starts without torch
        from workbench.interop.run_or_checkpoint import load

        return load
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")
