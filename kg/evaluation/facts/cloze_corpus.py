"""The cloze sentences of a corpus by relation, and the candidates that their objects are ranked among."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kg.evaluation.facts.fact_ranking import FactCloze
from kg.graph.store import GraphStore
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.files.text_files import parse_json
from workbench.corpora.corpus import Corpus
from workbench.metrics.ranks import realistic_rank
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class ObjectCandidates:
    """The candidates for the objects of a relation: spellings. Entities with the same label are one candidate.

    `places` has for each entity the place of its label in `labels`. A sentence contains a spelling, and no model can
    distinguish two entities of one spelling: a namesake of the right entity is right too.
    """

    labels: list[str]
    places: dict[str, int]

    @classmethod
    def of(cls, spelt: Iterable[tuple[str, str]]) -> ObjectCandidates:
        """From (entity, label)."""
        numbers: dict[str, int] = {}
        places = {entity: numbers.setdefault(label, len(numbers)) for entity, label in spelt}
        return cls(list(numbers), places)

    @property
    def shared(self) -> int:
        """The spellings that several entities have."""
        return sum(number > 1 for number in Counter(self.places.values()).values())

    def counts(self, of: Mapping[str, int]) -> list[int]:
        """How often each spelling's entities are counted in `of`, together."""
        found = [0] * len(self.labels)
        for entity, place in self.places.items():
            found[place] += of.get(entity, 0)
        return found


@dataclass
class ClozeFacts:
    """The cloze sentences of one relation, the candidates for their objects, and the sentences as they were."""

    relation: str
    candidates: ObjectCandidates
    clozes: list[FactCloze] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def rank_by(self, scores: Sequence[float]) -> tuple[list[float], list[int]]:
        """Ranks and numbers of competitors where every sentence scores the candidates [candidates] alike."""
        ranked = [realistic_rank(np.asarray(scores, float), c.gold, c.also_right) for c in self.clozes]
        return [rank for rank, _ in ranked], [number for _, number in ranked]


def read_candidates(path: Path) -> dict[str, ObjectCandidates]:
    """Relation -> its candidates.

    Raises:
        WorkbenchError: no such file, or another content.
    """
    listed = listed_candidates(path)
    note("candidates", path, sha256_of(path))
    return {name: ObjectCandidates.of((str(c["id"]), str(c["label"])) for c in of) for name, of in listed.items()}


def listed_candidates(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Relation -> its candidates, each with `id` and `label`.

    Raises:
        WorkbenchError: no such file, or another content.
    """
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkbenchError(
            f"there are no candidates at {path}: {error.strerror}; `workbench prepare facts` writes them, or name "
            "others with --candidates"
        ) from error
    except ValueError:
        tree = None
    lists = list(tree.values()) if isinstance(tree, dict) else [None]
    if not all(isinstance(of, list) and all(_is_candidate(each) for each in of) for of in lists):
        raise WorkbenchError(f'{path} is not JSON of the form {{relation: [{{"id": ..., "label": ...}}]}}')
    return dict(tree)


def _is_candidate(each: Any) -> bool:
    return isinstance(each, dict) and {"id", "label"} <= each.keys() and isinstance(each.get("count", 0), int)


def read_facts(
    corpus: Corpus,
    candidates: Mapping[str, ObjectCandidates],
    known: Sequence[GraphStore] = (),
    limit: int | None = None,
) -> dict[str, ClozeFacts]:
    """The sentences of a corpus by relation.

    Args:
        known: graphs whose facts are true too: their objects don't compete, nor do those of any sentence of the
            corpus and those that its `meta.known` lists, whatever the limit.

    Raises:
        WorkbenchError: a record that names no fact, one whose relation or object has no candidates, or graphs that know
            no subject.
    """
    samples = list(corpus)
    true = _true_objects(samples, known)
    found: dict[str, ClozeFacts] = {}
    for sample in samples[:limit]:
        relation, subject, wanted = fact_of(sample)
        places = candidates[relation].places if relation in candidates else {}
        if wanted not in places:
            raise WorkbenchError(
                f"record {sample['key']!r}: ({relation}, {wanted}) is not among the candidates, which are of the "
                f"relations {', '.join(sorted(candidates))}"
            )
        facts = found.setdefault(relation, ClozeFacts(relation, candidates[relation]))
        gold = places[wanted]
        others = {places[entity] for entity in true[subject, relation] if entity in places} - {gold}
        facts.clozes.append(FactCloze.of(sample, gold, sorted(others)))
        facts.samples.append(sample)
    return found


def _true_objects(samples: Sequence[Sample], known: Sequence[GraphStore]) -> dict[tuple[str, str], set[str]]:
    """(subject, relation) -> the objects that the sentences and the graphs state (Bordes et al., NeurIPS 2013: the
    filtered setting)."""
    true: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sample in samples:
        relation, subject, wanted = fact_of(sample)
        true[subject, relation].update({wanted, *map(str, sample["meta"].get("known", ()))})
    subjects = {subject for subject, _ in true}
    stated = [(subject, *edge) for graph in known for subject in subjects for edge in graph.neighbours(subject)]
    for subject, relation, tail in stated:
        true[subject, relation].add(tail)
    if known and not stated:
        raise WorkbenchError(
            f"--known: the graphs have no triples of the {len(subjects)} subjects (for example {min(subjects)!r}); "
            "name graphs whose ids the corpus uses"
        )
    return true


def fact_of(sample: Sample) -> tuple[str, str, str]:
    """Relation, subject and object of a cloze sentence: ids."""
    meta = sample.get("meta", {})
    missing = [name for name in ("relation", "subject", "object") if name not in meta]
    if missing:
        raise WorkbenchError(
            f"record {sample.get('key')!r} has no {', '.join(missing)} in its meta; a fact needs relation, subject and "
            "object in addition to its text and mask_spans"
        )
    return str(meta["relation"]), str(meta["subject"]), str(meta["object"])
