"""What the task supersenses is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.evaluation.options import Scoring


@dataclass(frozen=True, kw_only=True)
class SupersenseScoring(Scoring):
    """How often the supersense of a hidden word is one that it may have, beside always the commonest one.

    RUN was pretrained with kg.supersense, CORPUS holds texts. Words are hidden as in pretraining. Of words with a
    single supersense the share is that of right answers; of others a lexicon cannot tell which one is meant.

    Example:

      workbench evaluate supersenses runs/sensebert corpora/text-held-out
    """
