"""The labels of a corpus, for the tasks that learn one of them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from workbench.core.errors import WorkbenchError, unknown
from workbench.corpora.corpus import Corpus
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
NUMBER = re.compile(r"-?\d+(\.\d+)?")
OF_READERS = (
    "source",
    "line",
    "image",
    "sha256",
    "backbone",
    "linker",
)  # fields of `meta` that readers and prepare commands write


def label_counts(samples: Iterable[Sample]) -> dict[str, Counter[str]]:
    """The number of samples by label and by its value, as it is written."""
    found: dict[str, Counter[str]] = {}
    for sample in samples:
        for label, value in sample.get("labels", {}).items():
            found.setdefault(label, Counter())[str(value)] += 1
    return found


def labelled(samples: Sequence[Sample], label: str, classes: Mapping[str, int]) -> tuple[list[Sample], np.ndarray]:
    """The samples that have the label with one of the classes, and the rows of these."""
    found = [sample for sample in samples if str(sample.get("labels", {}).get(label)) in classes]
    return found, np.array([classes[str(sample["labels"][label])] for sample in found], np.int64)


def chosen_label(
    corpus: Corpus, label: str | None, example: str = '"positive"', option: str = "--label"
) -> tuple[str, Counter[str]]:
    """The label of this name, or the only one that a corpus has, and how many samples have which value of it.

    Args:
        example: a value as JSON has it, for the advice where there are no labels.
        option: the one that names the label.

    Raises:
        WorkbenchError: the corpus has no labels, no such label, or several and none was named.
    """
    counts = label_counts(corpus)
    if not counts:
        fields = ", ".join(corpus.manifest.fields)
        raise WorkbenchError(f"corpus {corpus.name!r} has no labels (it has {fields}); {_advice(corpus, example)}")
    if label is None and len(counts) > 1:
        raise WorkbenchError(f"corpus {corpus.name!r} has the labels {', '.join(sorted(counts))}; choose one: {option}")
    chosen = label or next(iter(counts))
    if chosen not in counts:
        raise unknown("label", chosen, counts, f"corpus {corpus.name!r}")
    return chosen, counts[chosen]


def check_varied(corpus: Corpus, label: str, counts: Mapping[str, int]) -> None:
    """Raises WorkbenchError where all texts have the same value of the label."""
    if len(counts) < 2:
        raise WorkbenchError(
            f"all texts of corpus {corpus.name!r} have {label} = {next(iter(counts))}; nothing can be learned"
        )


def warn_alike(name: str, label: str, counts: Mapping[str, int]) -> None:
    """Log a warning if classes differ only in spelling, or are numbers and names: mostly mistakes in the data."""
    groups: dict[object, list[str]] = {}
    for each in sorted(counts):
        groups.setdefault(float(each) if NUMBER.fullmatch(each) else each.strip().casefold(), []).append(each)
    alike = [group for group in groups.values() if len(group) > 1]
    numbers = [each for each in sorted(counts) if NUMBER.fullmatch(each)]
    spellings = ["; ".join(" and ".join(_counted(each, counts) for each in group) for group in alike)] if alike else []
    if 0 < len(numbers) < len(counts):
        names = sorted(counts.keys() - set(numbers))
        spellings.append(
            f"some are numbers ({_counted(numbers[0], counts)}), others names ({_counted(names[0], counts)})"
        )
    if spellings:
        logger.warning(
            "corpus %r: some classes of %r look alike, or like mistakes, and each counts as a class of its own: %s",
            name,
            label,
            "; ".join(spellings),
        )


def ordered(names: Iterable[str]) -> list[str]:
    """Classes: numbers in their order, names sorted."""
    found = sorted(names)
    return sorted(found, key=float) if all(map(NUMBER.fullmatch, found)) else found


def _counted(name: str, counts: Mapping[str, int]) -> str:
    return f"{name!r} ({counts[name]} texts)"


def _advice(corpus: Corpus, example: str) -> str:
    """How to get labels: of a column that the reader left to `meta`, where there is one."""
    meta = next(iter(corpus)).get("meta", {})
    left = [name for name, value in meta.items() if name not in OF_READERS and isinstance(value, int | float | str)]
    images = "image" in corpus.manifest.fields
    form = "--format media-jsonl --option media_field=image " if images else ""
    if left:
        return (
            f"its records have {', '.join(left)} in `meta`: if one of them is the label, prepare the corpus again with "
            f"{form}--option 'fields={{labels: [{left[-1]}]}}'"
        )
    if images:
        row = f'{{"image": "a.jpg", "captions": [...], "labels": {{"NAME": {example}}}}}'
        return f"prepare images with `labels`, by name, with {form.strip()}: {row}"
    return f'prepare texts with `labels`, by name: {{"text": ..., "labels": {{"NAME": {example}}}}}'
