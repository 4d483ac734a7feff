"""Features as they are stored: half precision, where it holds them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from workbench.core.errors import WorkbenchError

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
