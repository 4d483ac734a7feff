"""Masked language modelling of matched pairs only (B2T2, arXiv:1908.05054; ViLBERT's paper).

Words are hidden in exchanged pairs, too, as pairs without a mask would be recognised as exchanged; they have no labels.
"""

from __future__ import annotations

import numpy as np

from vision.sequences.matching import MATCHED
from workbench.core.keyed import Draws
from workbench.objectives.mlm import Mlm
from workbench.pretraining.objective import BatchTargets
from workbench.sequences.sequence import Rows, Sequence


class MatchedMlm(Mlm):
    """Masked language modelling of matched pairs only (B2T2, arXiv:1908.05054). It is `mlm` without the texts that itm
    gave to another image. Its options are those of `mlm`."""

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        found = super().corrupt(sequences, draws)
        for sequence in sequences:
            if sequence.labels.get(MATCHED) == 0:
                none = np.zeros(0, np.int64)
                sequence.targets[self.name] = {"rows": Rows(self.stream, none), "labels": none}
        return found
