"""Linear CKA of the layers of two networks on the same words: how similar their states are.

The states of a word are the means over its tokens, so that networks with other tokenizers can be compared. The
formula is in `workbench.metrics.cka`. Layer i of S layers is compared with layer round(i T / S) of T layers; 0 is the
embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.network_task import (
    NetworkTask,
    StretchedText,
    in_words,
    states_of,
    texts_of,
    wholes,
)
from workbench.evaluation.analysis_options import CkaScoring
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result
from workbench.interop.run_or_checkpoint import load
from workbench.metrics.cka import cka_table, cka_tally


class Cka(NetworkTask[CkaScoring]):
    """CKA of pairs of layers, compared with that of words in another order."""

    scoring = CkaScoring

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: CkaScoring) -> Result:
        texts = _some_words(in_words(texts_of(corpus, scoring.limit)), scoring.words)
        other = self._other(run, scoring)
        sides = [states_of(each, texts, scoring.batch_size) for each in (run, other)]
        found = sides[0][1] & sides[1][1]
        if found.sum() < 3:
            raise WorkbenchError(
                f"corpus {corpus.name!r}: both networks read {found.sum()} words; at least 3 are needed"
            )
        ours, theirs = (states[:, found].numpy() for states, _ in sides)
        matched = np.round(np.arange(len(ours)) * (len(theirs) - 1) / max(1, len(ours) - 1)).astype(int).tolist()
        tallies = {f"cka/layer_{n}": cka_tally(ours[n], theirs[m]) for n, m in enumerate(matched)}
        order = generator("cka", "words").permutation(ours.shape[1])
        apart = {f"cka/layer_{n}": cka_tally(ours[n], theirs[m][order]).whole for n, m in enumerate(matched)}
        keys = [text.key for text in texts for _ in text.places]
        words = [text.word(n) for text in texts for n in range(len(text.places))]
        lines: list[dict[str, Any]] = [
            {"key": key, "word": word, "values": [tally.rows[row, 0] for tally in tallies.values()]}
            for row, (key, word) in enumerate(
                (key, word) for key, word, read in zip(keys, words, found.tolist(), strict=True) if read
            )
        ]
        return Result(
            self.name,
            wholes(tallies),
            {"words": len(lines), "texts": len(texts)},
            variant="linear CKA, mean states of words",
            inputs={"other": other.checkpoint, "other network": other.objective.network},
            baselines={"words in another order": apart},
            examples=[{"cka": cka_table(ours, theirs).tolist()}],
            predictions=EvaluationItems(lines, tallies),
        )

    def _other(self, run: EvaluatedRun, scoring: CkaScoring) -> EvaluatedRun:
        """The second network, on the devices and in the precision of the first one."""
        loaded = load(scoring.other, trust=scoring.trust)
        alone: dict[str, Any] = {"run": scoring.other, "network": scoring.other_network, "task": None, "control": None}
        return self.chosen(loaded, replace(scoring, **alone)).alongside(run)


def _some_words(texts: Sequence[StretchedText], count: int) -> list[StretchedText]:
    """The texts with so many of their words, drawn from all of them, or with all."""
    total = sum(len(text.places) for text in texts)
    kept = np.sort(generator("cka", "sample").permutation(total)[:count])
    firsts = np.cumsum([0, *(len(text.places) for text in texts)])
    own = [kept[(kept >= begin) & (kept < end)] - begin for begin, end in pairwise(firsts)]
    return [text._replace(places=text.places[of]) for text, of in zip(texts, own, strict=True) if len(of)]
