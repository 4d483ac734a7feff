"""What published models read of boxes."""

from __future__ import annotations

import torch
from torch import Tensor


def box_numbers(boxes: Tensor, size: int) -> Tensor:
    """What a published model reads of boxes [rows, 4]: [rows, size].

    4: the corners (LXMERT); 5: and the area (ViLBERT); 7: corners, width, height, area (UNITER).
    """
    if size == 4:
        return boxes
    width, height = boxes[:, 2:3] - boxes[:, 0:1], boxes[:, 3:4] - boxes[:, 1:2]
    if size == 5:
        return torch.cat([boxes, width * height], dim=1)
    if size == 7:
        return torch.cat([boxes, width, height, width * height], dim=1)
    raise ValueError(f"box_size = {size}; allowed: 4 (corners), 5 (and area), 7 (and width, height, area)")


def box_waves(boxes: Tensor, waves: int) -> Tensor:
    """Sines and cosines of boxes [rows, 4]: [rows, 4 * 2 * waves] (Vaswani et al.; VL-BERT's geometry embedding).

    Of the centre's x and y, width and height, each times 100: at `waves` rates that fall from 1 to nearly 1 / 1000,
    first the sines of a number, then its cosines.
    """
    low, high = boxes[:, :2], boxes[:, 2:]
    numbers = torch.cat([(low + high) / 2, high - low], dim=1) * 100
    rates = 1000 ** (torch.arange(waves, device=boxes.device, dtype=boxes.dtype) / waves)
    angles = numbers[:, :, None] / rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)
