"""Facts: rank the object of a knowledge-graph triple from a sentence with a slot ("Lyon is a city in ____ .").

A candidate of m tokens is scored in the sentence with m masks in the slot, by the log-probabilities of its tokens,
each given the m masks (the tokens of one candidate don't see each other):

    sum:   sum over its tokens of log p(token | sentence with m masks)      the default
    mean:  that divided by m

`sum` is the candidate's log-probability under that independence and favours short candidates; `mean` removes
this and favours long ones whose last tokens are easy to guess. The result says which was used. Sentences differ
only in the number of masks, so a sentence is run once per distinct length of a candidate, not once per candidate.

The slot is never linked, so no knowledge hangs on the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kg.evaluation.task_options import Normalisation
from workbench.core.errors import WorkbenchError
from workbench.metrics.ranks import RankScores, rank_scores, realistic_rank
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer

RANK_RANGES = ("spans", "tags")
"""Fields of a record whose stretches of its text are kept."""
KEPT_OBJECTS = ("language",)
"""Fields of a record that stay true with another word in the slot, and that transforms read."""
Predict = Callable[[list[Sample]], np.ndarray]


@dataclass(frozen=True)
class FactCloze:
    """A sentence with a slot between `before` and `after`, and the candidate that belongs there.

    `stretches` are those of the record's fields that lie outside the slot, mentions (`spans`) and the tags of words, as
    `[start, end, ...]` in characters of `before + after`; `also_right` are other candidates that make the sentence true
    and don't compete; `kept` are fields of the record that stay as they are.
    """

    key: str
    before: str
    after: str
    gold: int
    stretches: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    also_right: tuple[int, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any], gold: int, also_right: Sequence[int] = ()) -> FactCloze:
        """The slot of a record with `text`, `spans` and one stretch in `mask_spans`; mentions in the slot are left out.

        Raises:
            WorkbenchError: the record names no stretch, or several.
        """
        slots = record.get("mask_spans", [])
        if len(slots) != 1:
            raise WorkbenchError(
                f"facts: record {record.get('key')!r} has {len(slots)} mask_spans; a cloze has exactly one, the object"
            )
        start, end = slots[0][:2]
        found = {
            name: [_moved(each, end, start - end) for each in record[name] if each[1] <= start or each[0] >= end]
            for name in RANK_RANGES
            if name in record
        }
        text = record["text"]
        kept = {name: record[name] for name in KEPT_OBJECTS if name in record}
        return cls(str(record.get("key", "")), text[:start], text[end:], gold, found, tuple(also_right), kept)

    def sample(self, filler: str, draw: tuple[int, ...]) -> Sample:
        """The sample with `filler` in the slot; its `mask_spans` is the slot."""
        start, grown = len(self.before), len(filler)
        moved = {name: [_moved(each, start, grown) for each in of] for name, of in self.stretches.items()}
        slot = {"mask_spans": [[start, start + grown]]}
        text = {"text": self.before + filler + self.after, "spans": []}
        return {"key": self.key, "draw": draw, **self.kept, **text, **moved, **slot}


def _moved(stretch: Sequence[Any], place: int, by: int) -> list[Any]:
    """The stretch `[start, end, ...]` where the text has changed its length before `place`."""
    start, end, *rest = stretch
    return [start + by, end + by, *rest] if start >= place else [start, end, *rest]


@dataclass(frozen=True)
class FactScores:
    """Scores over all sentences, the rank of each, and the normalisation they were made with."""

    scores: RankScores
    ranks: list[float]
    best: list[int]
    normalisation: Normalisation


def rank_objects(
    clozes: Sequence[FactCloze],
    candidates: Sequence[str],
    tokenizer: Tokenizer,
    predict: Predict,
    *,
    normalisation: Normalisation = "sum",
    batch_size: int = 64,
) -> FactScores:
    """Rank the candidates in every sentence.

    Args:
        clozes: the sentences.
        candidates: spellings of the objects; `FactCloze.gold` counts in this list.
        tokenizer: the model's.
        predict: samples whose slots (`mask_spans`) have one number m of tokens -> log-probabilities
            [samples, m, vocabulary] of the slot's tokens, with the slot masked (`kg.evaluation.slots`).
        normalisation: how a candidate's tokens become one score.
        batch_size: samples per call of `predict`.

    Raises:
        WorkbenchError: no sentences, fewer than two candidates, or a candidate without tokens.
    """
    if not clozes or len(candidates) < 2:
        raise WorkbenchError(
            f"facts: {len(clozes)} sentences and {len(candidates)} candidates; at least 1 and 2 are needed"
        )
    scores = np.full((len(clozes), len(candidates)), np.nan)
    for group, tokens in _by_context(clozes, candidates, tokenizer):
        by_length = defaultdict(list)
        for candidate, ids in enumerate(tokens):
            by_length[len(ids)].append(candidate)
        for length, members in by_length.items():
            ids = np.stack([tokens[candidate] for candidate in members])
            for start in range(0, len(group), batch_size):
                chosen = group[start : start + batch_size]
                samples = [clozes[c].sample(candidates[members[0]], (c, length)) for c in chosen]
                found = slot_scores(predict(samples), ids)
                scores[np.ix_(chosen, members)] = found / length if normalisation == "mean" else found
    ranked = [realistic_rank(row, cloze.gold, cloze.also_right) for row, cloze in zip(scores, clozes, strict=True)]
    ranks, competing = [rank for rank, _ in ranked], [number for _, number in ranked]
    return FactScores(rank_scores(ranks, competing), ranks, scores.argmax(1).tolist(), normalisation)


def slot_scores(log_probabilities: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """[sentences, m, vocabulary] and token ids [candidates, m] -> sums of log-probabilities [sentences, candidates]."""
    places = np.arange(candidates.shape[1])
    return log_probabilities[:, places, candidates].sum(-1)


def candidate_tokens(candidates: Sequence[str], before: str, after: str, tokenizer: Tokenizer) -> list[np.ndarray]:
    """The token ids that each candidate has between these characters.

    Raises:
        WorkbenchError: a candidate has no tokens of its own there.
    """
    encoded = tokenizer.encode_batch([before + candidate + after for candidate in candidates])
    tokens = []
    for candidate, e in zip(candidates, encoded, strict=True):
        inside = (e.starts >= len(before)) & (e.ends <= len(before) + len(candidate)) & (e.starts < e.ends)
        if not inside.any():
            raise WorkbenchError(
                f"facts: candidate {candidate!r} has no token of its own between {before!r} and {after!r}; "
                "leave it out, or put spaces around the slot"
            )
        tokens.append(e.ids[inside])
    return tokens


def _by_context(
    clozes: Sequence[FactCloze], candidates: Sequence[str], tokenizer: Tokenizer
) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """Sentences whose slots have the same neighbouring characters, with the candidates' tokens there."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, cloze in enumerate(clozes):
        groups[cloze.before[-1:], cloze.after[:1]].append(number)
    for (left, right), members in groups.items():
        before = f"a{left}" if left.isspace() else left
        yield members, candidate_tokens(candidates, before, right, tokenizer)
