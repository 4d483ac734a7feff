"""Tags by the run's knowledge alone, without a model: how much of a tagging is stated by what the run reads.

The linked mentions of a text are chunks, the longest ones first. The class of one is the one that training texts give
most often to mentions with the same facts (`Transform.facts_of`). With links of a longest match this is a gazetteer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.metrics.tag_schemes import OUTSIDE, SchemeName, in_iobes
from workbench.sequences.sequence import Sample

OF_WORDS: tuple[SchemeName, ...] = ("IOBES", "BILOU", "BMES")
Votes = Mapping[str, Counter[str]]


def stated_tags(
    run: EvaluatedRun, tags: Mapping[str, int], made: Mapping[str, Tensor], samples: Iterable[Sample]
) -> Tensor | None:
    """The tag of each word by the facts of the linked mentions alone [words].

    Args:
        tags: the row of each tag's name.
        made: `places` [words, 2] of the words in the characters of their text, and `words` [texts], how many each has.

    Returns:
        None where the run reads no facts, or its training set is not available.
    """
    texts = [sample for sample in samples if "tags" in sample] if run.task.transforms else []
    trained = run.trained_on() if any(_stated(run, sample) for sample in texts) else None
    if trained is None or len(texts) != len(made["words"]):
        return None
    votes, outside = _votes(run, trained), tags[OUTSIDE]
    parts = []
    for sample, places in zip(texts, made["places"].split(made["words"].tolist()), strict=True):
        found = torch.full((len(places),), outside)
        for start, end, facts in _stated(run, sample):
            name = _elected(votes, facts)
            inside = ((places[:, 0] >= start) & (places[:, 1] <= end)).nonzero()[:, 0]
            if name and len(inside) and bool((found[inside] == outside).all()):
                found[inside[0]], found[inside[1:]] = _spelt(tags, "BS", name), _spelt(tags, "IE", name)
        parts.append(found)
    return torch.cat(parts)


def _spelt(tags: Mapping[str, int], prefixes: str, name: str) -> int:
    """The row of the first tag of a class that is there, O otherwise."""
    return next((tags[f"{prefix}-{name}"] for prefix in prefixes if f"{prefix}-{name}" in tags), tags[OUTSIDE])


def _stated(run: EvaluatedRun, sample: Sample) -> list[tuple[int, int, list[str]]]:
    """The linked mentions of a text of which the run reads facts, the longest first, with these."""
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for start, end, entity, *_ in sample.get("spans", ()):
        for transform in run.task.transforms:
            found[start, end] += transform.facts_of(str(entity))
    stated = [(start, end, facts) for (start, end), facts in found.items() if facts]
    return sorted(stated, key=lambda mention: mention[0] - mention[1])


def _votes(run: EvaluatedRun, trained: Iterable[Sample]) -> Votes:
    """By fact, how often each class of the training texts is that of a mention with this fact."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in trained:
        named = {(start, end): name for start, end, name in annotated_chunks(sample)}
        for start, end, facts in _stated(run, sample):
            for fact in facts if (start, end) in named else ():
                votes[fact][named[start, end]] += 1
    return votes


def annotated_chunks(sample: Sample) -> list[tuple[int, int, str]]:
    """The chunks that the `tags` of a sample spell, in characters, with their classes."""
    found: list[tuple[int, int, str]] = []
    inside = False
    for start, end, tag in sample.get("tags", ()):
        spelt = next(filter(None, (in_iobes(tag, scheme) for scheme in OF_WORDS)), f"S-{tag}")
        prefix, _, name = spelt.partition("-")
        if inside and prefix in "IE" and found[-1][2] == name:
            found[-1] = found[-1][0], end, name
        elif spelt != OUTSIDE:
            found.append((start, end, name))
        inside = prefix in "BI"
    return found


def _elected(votes: Votes, facts: Iterable[str]) -> str:
    """The class with most votes; "" where there are none."""
    counted = sum((votes.get(fact, Counter()) for fact in facts), Counter[str]())
    return max(sorted(counted), key=counted.__getitem__) if counted else ""
