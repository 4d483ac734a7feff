"""The cloze sentences of a corpus by relation, and the candidates that their objects are ranked among."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kg.evaluation.facts.ranking import Cloze
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.passes import all_records
from workbench.evaluation.ranks import realistic_rank
from workbench.files.json_values import parse_json
from workbench.sequences.sequence import Sample


@dataclass
class Facts:
    """The cloze sentences of one relation, the candidates for their objects, and the sentences as they were."""

    relation: str
    ids: list[str]
    labels: list[str]
    clozes: list[Cloze] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def rank_by(self, scores: Sequence[float]) -> tuple[list[float], list[int]]:
        """Ranks and numbers of competitors where every sentence scores the candidates [candidates] alike."""
        ranked = [realistic_rank(np.asarray(scores, float), c.gold, c.also_right) for c in self.clozes]
        return [rank for rank, _ in ranked], [number for _, number in ranked]


def read_candidates(path: Path) -> dict[str, dict[str, str]]:
    """Relation -> candidate id -> its spelling.

    Raises:
        WorkbenchError: no such file, or another content.
    """
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        return {relation: {str(c["id"]): str(c["label"]) for c in listed} for relation, listed in tree.items()}
    except OSError as error:
        raise WorkbenchError(f"there are no candidates at {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WorkbenchError(f'{path} is not JSON of the form {{relation: [{{"id": ..., "label": ...}}]}}') from error


def read_facts(
    corpus: Corpus, candidates: Mapping[str, Mapping[str, str]], limit: int | None = None
) -> dict[str, Facts]:
    """The sentences of a corpus by relation.

    Raises:
        WorkbenchError: a record that names no fact, or one whose relation or object has no candidates.
    """
    samples = [sample for sample, _ in zip(all_records(corpus), range(limit or corpus.records), strict=False)]
    right: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sample in samples:
        relation, subject, wanted = fact_of(sample)
        right[subject, relation].add(wanted)
    found: dict[str, Facts] = {}
    for sample in samples:
        relation, subject, wanted = fact_of(sample)
        if wanted not in candidates.get(relation, {}):
            raise WorkbenchError(
                f"record {sample['key']!r}: ({relation}, {wanted}) is not among the candidates, which are of the "
                f"relations {', '.join(sorted(candidates))}"
            )
        ids = list(candidates[relation])
        facts = found.setdefault(relation, Facts(relation, ids, list(candidates[relation].values())))
        others = [i for i, name in enumerate(ids) if name in right[subject, relation] - {wanted}]
        facts.clozes.append(Cloze.of(sample, ids.index(wanted), others))
        facts.samples.append(sample)
    return found


def fact_of(sample: Sample) -> tuple[str, str, str]:
    """Relation, subject and object of a cloze sentence: ids."""
    meta = sample.get("meta", {})
    missing = [name for name in ("relation", "subject", "object") if name not in meta]
    if missing:
        raise WorkbenchError(
            f"record {sample.get('key')!r} has no {', '.join(missing)} in its meta; a fact needs relation, subject and "
            "object beside its text and mask_spans"
        )
    return str(meta["relation"]), str(meta["subject"]), str(meta["object"])
