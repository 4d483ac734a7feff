"""What stages that compute features share: how features are stored, and what happens to a sample that is unusable.

Features are stored in half precision, where it holds them. An unusable sample stops the run, or is dropped and counted.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipelines.readers.reader import Drop
from workbench.core.errors import BadValueError, WorkbenchError

FeatureType = Literal["float16", "float32"]


def stored(features: np.ndarray, dtype: FeatureType, where: str, maker: str) -> np.ndarray:
    """The features as `dtype`.

    Args:
        where: of what they are, for an error.
        maker: what computed them.

    Raises:
        WorkbenchError: they are more than it holds, or not finite.
    """
    most = float(np.abs(features).max(initial=0))
    if most <= float(np.finfo(dtype).max):
        return features.astype(dtype)
    if not np.isfinite(most):
        raise WorkbenchError(f"{where}: {maker} gives features that are not finite; check its weights")
    raise WorkbenchError(
        f"{where}: {maker} gives features up to {most:.3g}, more than {dtype} holds "
        f"({np.finfo(dtype).max:,.0f}); store them with --dtype float32"
    )


OnError = Literal["stop", "skip"]


def unusable(error: BadValueError, on_error: OnError, what: str) -> Drop:
    """The drop, by the error's reason.

    Args:
        what: what is left out, in the plural.

    Raises:
        WorkbenchError: nothing is to be left out.
    """
    if on_error == "skip":
        return Drop(error.reason)
    raise WorkbenchError(f"{error}; or leave such {what} out with --on-error skip") from error
