"""Helpers of the stages that compute features: the stored precision, and unusable samples.

Features are stored in half precision if they fit. An unusable sample stops the run, or is dropped and counted.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from pipelines.readers.reader import Drop
from workbench.core.errors import BadValueError, WorkbenchError

FeatureType = Literal["float16", "float32"]


def device_of(name: str) -> str:
    """The device of a stage in this process: `auto` is its GPU, where it has one."""
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def stored(features: np.ndarray, dtype: FeatureType, where: str, maker: str) -> np.ndarray:
    """The features as `dtype`.

    Args:
        where: the name of the sample, for an error.
        maker: the backbone, for an error.

    Raises:
        WorkbenchError: they exceed its range, or are not finite.
    """
    most = float(np.abs(features).max(initial=0))
    if most <= float(np.finfo(dtype).max):
        return features.astype(dtype)
    if not np.isfinite(most):
        raise WorkbenchError(f"{where}: {maker} returned features that are not finite; check its weights")
    raise WorkbenchError(
        f"{where}: {maker} returned features up to {most:.3g}, more than {dtype} holds "
        f"({np.finfo(dtype).max:,.0f}); store them with --dtype float32"
    )


OnError = Literal["stop", "skip"]


def unusable(error: BadValueError, on_error: OnError, what: str) -> Drop:
    """The drop, by the error's reason; raises the error unless samples are skipped.

    Args:
        what: the plural name of what is skipped.

    Raises:
        WorkbenchError: nothing is to be skipped.
    """
    if on_error == "skip":
        return Drop(error.reason)
    raise WorkbenchError(f"{error}; or skip such {what} with --on-error skip") from error
