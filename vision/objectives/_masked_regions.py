"""Base class of objectives over hidden image rows: the choice of rows, their replacement, and the heads' input."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from vision.sequences.matching import MATCHED
from vision.sequences.region_targets import special_rows
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, SomeShare, Word
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Fields, Rows, Sequence

PIXELS = "pixels"
GREY = np.array([124, 116, 104], np.uint8)[:, None, None]
"""ImageNet's mean colour, which is 0 for networks trained on it."""


class MaskedRegions(Objective):
    """Hides image rows and predicts targets of them (`wanted`).

    Args:
        rate: share of the image rows to predict, at least one an image.
        zero: share of these whose features become zero (and `masked`).
        random: share of these that get the features of a row of another image of the micro-batch; the rest is
        unchanged.
            UNITER: 1, 0. LXMERT: 0.8, 0.1. ViLBERT: 0.9, 0. In an image of pixels (`vision.pixels`,
            `vision.region_pixels`) the boxes of hidden rows become grey, and no row gets one of another image.
        matched_only: rows of pairs that itm exchanged are hidden, but not predicted (ViLBERT's code). If all of them
        were
            visible, that would reveal which pairs are exchanged. LXMERT's code predicts them, too.
        stream: of the image rows.
    """

    def __init__(
        self,
        rate: SomeShare = 0.15,
        zero: Share = 1.0,
        random: Share = 0.0,
        matched_only: bool = True,
        stream: Word = "image",
    ) -> None:
        if zero + random > 1 + 1e-9:
            kind = type(self).__name__
            raise WorkbenchError(f"{kind}: zero = {zero}, random = {random}; allowed: shares of at most 1 together")
        self.rate, self.zero, self.random = rate, zero, random
        self.matched_only = matched_only
        self.stream = stream

    def wanted(self, sequence: Sequence, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The targets of rows [n] that are not hidden yet: arrays [n, ...]."""
        raise NotImplementedError(f"{type(self).__name__} must define wanted")

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        chosen = [s for s in sequences if s.length(self.stream)]
        lent = {id(s): _shown(s.streams[self.stream]) for s in chosen}
        for sequence in chosen:
            rng = draws.of(sequence.draw)
            fields = sequence.streams[self.stream]
            rows = self._select(fields, rng)
            if not len(rows):
                continue
            others = [features for key, features in lent.items() if key != id(sequence) and len(features)]
            if not (self.matched_only and sequence.labels.get(MATCHED) == 0):
                sequence.targets[self.name] = {"rows": Rows(self.stream, rows), **self.wanted(sequence, rows)}
            self._hide(fields, rows, others, rng)
        return {}

    def _select(self, fields: Fields, rng: np.random.Generator) -> np.ndarray:
        """Each free row with probability `rate`; one of them if none was drawn."""
        n = len(fields["boxes"])
        fields.setdefault("taken", np.zeros(n, np.bool_))
        free = np.flatnonzero(~fields["taken"] & ~special_rows(fields))
        rows = free[rng.random(len(free)) < self.rate]
        if not len(rows) and len(free):
            rows = free[[rng.integers(len(free))]]
        return rows

    def _hide(self, fields: Fields, rows: np.ndarray, others: list[np.ndarray], rng: np.random.Generator) -> None:
        fields["taken"][rows] = True
        masked = fields.setdefault("masked", np.zeros(len(fields["boxes"]), np.bool_))
        if PIXELS in fields:
            self._hide_pixels(fields, rows[rng.random(len(rows)) < self.zero])
            return
        features = fields[feature_field(fields)]
        for row, lot in zip(rows, rng.random(len(rows)), strict=True):
            if lot < self.zero or (lot < self.zero + self.random and not others):
                features[row] = 0
                masked[row] = True
            elif lot < self.zero + self.random:
                donor = others[int(rng.integers(len(others)))]
                features[row] = donor[int(rng.integers(len(donor)))]
        if "features" in fields:
            keep_whole(fields)

    def _hide_pixels(self, fields: Fields, rows: np.ndarray) -> None:
        """Fill the boxes of rows in the pixels, so that overlapping rows do not see them either (VL-BERT)."""
        if self.random:
            raise WorkbenchError(
                f"objective {self.name!r}: random = {self.random} uses the features of another image's rows, but here "
                "the image is stored as pixels; allowed: 0"
            )
        fields["masked"][rows] = True
        images = fields.get("image_number", np.zeros(len(fields["boxes"]), np.int64))
        height, width = fields[PIXELS].shape[-2:]
        for row in rows:
            left, top, right, bottom = fields["boxes"][row] * (width, height, width, height)
            down, across = slice(int(top), math.ceil(bottom)), slice(int(left), math.ceil(right))
            fields[PIXELS][images[row], :, down, across] = GREY

    def count(self, batch: Batch) -> float:
        """The number of rows to predict."""
        return float(len(batch.targets.get(self.name, {}).get("rows", ())))


class RegionHead(Head):
    """The first layers of heads: dense, gelu, LayerNorm, on the states of hidden rows."""

    def __init__(self, hidden_size: int, stream: str, norm: bool = True) -> None:
        super().__init__()
        self.stream = stream
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=1e-12) if norm else nn.Identity()

    def transform(self, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> the same shape."""
        transformed: Tensor = self.norm(F.gelu(self.dense(rows)))
        return transformed


def feature_field(fields: Fields) -> str:
    """The field of an image stream that can be hidden.

    Raises:
        WorkbenchError: the features are only computed inside the model.
    """
    for name in ("features", "patches"):
        if name in fields:
            return name
    raise WorkbenchError(
        f"hiding image rows needs stored features or patches; the image stream has {', '.join(sorted(fields))}. "
        "Extract grid features with `workbench prepare regions` and use vision.regions, or use vision.patches"
    )


def keep_whole(fields: Fields) -> None:
    """Set the row of the whole image, if there is one, to the mean of the visible rows: it would otherwise reveal the
    hidden ones (ViLBERT's code)."""
    whole = np.flatnonzero(special_rows(fields))
    if len(whole):
        parts = fields["features"][~special_rows(fields) & ~fields["masked"]]
        fields["features"][whole] = parts.mean(0, dtype=np.float32) if len(parts) else 0


def _shown(fields: Fields) -> np.ndarray:
    """The features of the rows that are regions of the image, before anything is hidden."""
    if PIXELS in fields:
        return np.zeros(0)
    shown: np.ndarray = fields[feature_field(fields)][~special_rows(fields)]
    return shown
