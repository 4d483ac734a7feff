"""Scores of facts by how often a corpus links their subjects: does a model know what it has read often?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import linked_entities
from workbench.metrics.tallies import Tally

BUCKETS = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99), "100+": (100, None)}
SPLIT = ("accuracy", "mrr")


def tallies_by_frequency(tallies: dict[str, Tally], subjects: Sequence[str], corpus: Corpus) -> dict[str, Tally]:
    """The tallies `accuracy/subject_links/1-9`, ... of the facts [items] whose subject has as many links in the texts
    of a corpus. A bucket without facts is left out.

    Raises:
        WorkbenchError: the corpus has no links, or none of a subject.
    """
    counts = Counter(entity for sample in corpus for entity in linked_entities(sample))
    if not counts:
        raise WorkbenchError(
            f"--frequencies: corpus {corpus.name!r} has no linked entities; link it: workbench prepare link"
        )
    often = np.array([counts[subject] for subject in subjects])
    if not often.any():
        raise WorkbenchError(
            f"--frequencies: corpus {corpus.name!r} links none of the facts' subjects ({subjects[0]}, ...) among "
            f"{len(counts)} entities ({next(iter(counts))}, ...); take a corpus with the same names of entities"
        )
    found: dict[str, Tally] = {}
    for bucket, (low, high) in BUCKETS.items():
        inside = (often >= low) & (often <= (often.max() if high is None else high))
        if inside.any():
            found |= {
                f"{name}/subject_links/{bucket}": Tally(tallies[name].kind, tallies[name].rows * inside[:, None])
                for name in SPLIT
            }
    return found
