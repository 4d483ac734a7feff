"""Boxes: x1, y1, x2, y2 in 0..1 of the image's width and height."""

from __future__ import annotations

import numpy as np

from workbench.sequences.sequence import Fields

WHOLE = (0.0, 0.0, 1.0, 1.0)


def grid_boxes(grid: int) -> np.ndarray:
    """The cells of a grid x grid division of the image, row by row: [grid * grid, 4] float32."""
    return cell_boxes(grid, grid)


def cell_boxes(height: int, width: int) -> np.ndarray:
    """The cells of a division into `height` rows and `width` columns, row by row: [height * width, 4] float32."""
    down, right = (np.arange(cells + 1, dtype=np.float32) / cells for cells in (height, width))
    rows, columns = (index.ravel() for index in np.mgrid[:height, :width])
    return np.stack([right[columns], down[rows], right[columns + 1], down[rows + 1]], axis=1)


def check_boxes(regions: Fields) -> None:
    """Check that boxes are [n, 4] with 0 <= x1 <= x2 <= 1 and 0 <= y1 <= y2 <= 1, one per feature.

    Raises:
        ValueError: names the first bad row.
    """
    features, boxes = regions["features"], regions["boxes"]
    if features.ndim != 2 or boxes.shape != (len(features), 4):
        raise ValueError(f"features {features.shape} need boxes of shape ({len(features)}, 4); found {boxes.shape}")
    slack = 1e-4  # rounding of detectors that work in pixels
    low, high = boxes[:, :2], boxes[:, 2:]
    bad = ~((boxes >= -slack).all(1) & (boxes <= 1 + slack).all(1) & (low <= high + slack).all(1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"box {row} is {boxes[row].tolist()}; allowed: x1, y1, x2, y2 with 0 <= x1 <= x2 <= 1 and "
            "0 <= y1 <= y2 <= 1 (divide pixels by the image's width and height)"
        )
