"""Linear probes by layer, of any network, compared with a control task: accuracy and selectivity.

Edge probing (Tenney et al., arXiv:1905.06316) with a linear probe: with h the mean state of a span in a layer, or the
states of a word and of its head, one after the other,

    L = mean of -log softmax(W h + b)[label] + decay / 2 |W|^2

The control task (Hewitt and Liang, arXiv:1909.03368, section 2) has the same spans. The label of a span depends on its
characters alone. It is drawn at random, as often as in the training labels. Selectivity is the accuracy less that of
the control task.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError, choices
from workbench.core.keyed import digest, generator
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.network_task import NetworkTask, StretchedText, by_layer, states_of, texts_of, wholes
from workbench.evaluation.analysis_options import LayersScoring
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result, corpus_input
from workbench.metrics.probes import LinearProbe
from workbench.metrics.tallies import Tally
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
FIELDS = ("tags", "marks", "dependencies")
OUTSIDE = "O"
TESTED = 4
"""One of so many records is for testing, where the probes are trained on the same corpus."""


class Probed(NamedTuple):
    """Spans of a corpus.

    Attributes:
        keys, words, labels: of each span its record, its characters and its label [spans].
        states: [layers + 1, spans, width], float32.
    """

    keys: list[str]
    words: list[str]
    labels: np.ndarray
    states: np.ndarray

    def some(self, which: np.ndarray) -> Probed:
        places = np.flatnonzero(which).tolist()
        keys, words = ([column[n] for n in places] for column in (self.keys, self.words))
        return Probed(keys, words, self.labels[which], self.states[:, which])


class LayerProbes(NetworkTask[LayersScoring]):
    """Accuracy of probes of tagged spans, marked spans or dependencies."""

    scoring = LayersScoring
    scored = True

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: LayersScoring) -> Result:
        field = scoring.field or _only_field(corpus)
        found = _probed(run, corpus, field, scoring)
        train, test = _halves(found)
        shared = {}
        if scoring.train is not None:
            shared = _shared(corpus, Corpus.open(scoring.train), scoring.limit)
            train, test = _probed(run, Corpus.open(scoring.train), field, scoring), found
        if not len(test.keys) or len({*train.labels}) < 2:
            raise WorkbenchError(
                f"corpus {corpus.name!r}: a probe needs spans of at least two labels to train on and one to test on; "
                f"found {len({*train.labels})} labels of {len(train.keys)} spans, and {len(test.keys)} to test on. "
                "Raise --limit, or take more records"
            )
        predicted = _predicted(train.states, train.labels, test.states, scoring.decay)
        drawn = _Control(train.labels)
        controlled = _predicted(train.states, drawn(train.words), test.states, scoring.decay)
        right, by_heart = predicted == test.labels, controlled == drawn(test.words)
        tallies = by_layer("accuracy", right, share=True) | by_layer("control_accuracy", by_heart, share=True)
        tallies |= by_layer("selectivity", right.astype(float) - by_heart)
        lines: list[dict[str, Any]] = [
            {"key": key, "word": word, "gold": gold, "prediction": by[-1], "layers": by}
            for key, word, gold, by in zip(
                test.keys, test.words, test.labels.tolist(), predicted.T.tolist(), strict=True
            )
        ]
        return Result(
            self.name,
            wholes(tallies),
            {"spans": len(test.keys), "training spans": len(train.keys), "labels": len({*train.labels}), **shared},
            variant=f"{field}, decay {scoring.decay:g}",
            inputs={} if scoring.train is None else {"train": corpus_input(Corpus.open(scoring.train))},
            baselines=_baselines(train, test, len(predicted)),
            predictions=EvaluationItems(lines, tallies),
        )


def _shared(corpus: Corpus, training: Corpus, limit: int | None) -> dict[str, int]:
    """How many texts are for training too, as a count of the result; with a warning."""
    seen = {sample["text"] for sample in texts_of(training, limit)}
    count = sum(sample["text"] in seen for sample in texts_of(corpus, limit))
    if not count:
        return {}
    logger.warning(
        "%d texts of corpus %r are in --train too, so the probes are tested on what they have learned by heart; take "
        "other records, or leave out --train",
        count,
        corpus.name,
    )
    return {"texts in --train too": count}


class _Control:
    """The labels of the control task: one for each sequence of characters, from the distribution of labels."""

    def __init__(self, labels: np.ndarray) -> None:
        self.labels = np.sort(labels)

    def __call__(self, words: Iterable[str]) -> np.ndarray:
        places = [int(generator("control task", word).integers(len(self.labels))) for word in words]
        return self.labels[places]


def _only_field(corpus: Corpus) -> str:
    """
    Raises:
        WorkbenchError: the corpus has no labels of spans, or several kinds of them.
    """
    found = [field for field in FIELDS if corpus.manifest.fields.get(field)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise WorkbenchError(f"corpus {corpus.name!r} has none of {', '.join(FIELDS)}, which probes are trained on")
    raise WorkbenchError(f"corpus {corpus.name!r} has several labels of spans; choose one: {choices('--field', found)}")


def _probed(run: EvaluatedRun, corpus: Corpus, field: str, scoring: LayersScoring) -> Probed:
    """The labelled spans of the first records, at most `scoring.spans` of them; those without a token are left out."""
    texts, keys, words, labels = list[StretchedText](), list[str](), list[str](), list[str]()
    for sample in texts_of(corpus, scoring.limit):
        spans = list(_spans(sample, field))[: scoring.spans - len(keys)]
        if not spans:
            continue
        places = np.array([place for of, _ in spans for place in of], np.int64).reshape(-1, 2)
        texts.append(StretchedText(sample, places))
        each = len(places) // len(spans)
        keys += [str(sample["key"])] * len(spans)
        words += [texts[-1].word(each * n) for n in range(len(spans))]
        labels += [label for _, label in spans]
    if not keys:
        raise WorkbenchError(f"corpus {corpus.name!r} has no texts with `{field}`; take one that has")
    states, found = states_of(run, texts, scoring.batch_size)
    count = len(keys)
    read = np.all(found.reshape(count, -1), axis=1)
    return Probed(keys, words, np.array(labels), states.reshape(len(states), count, -1).numpy()).some(read)


def _spans(sample: Sample, field: str) -> Iterator[tuple[list[list[int]], str]]:
    """The labelled spans of a record: one place each, or a word and its head. A root has no head."""
    if field != "dependencies":
        yield from (([[start, end]], name) for start, end, name in sample.get(field, ()) if name != OUTSIDE)
        return
    arcs = sample.get(field, ())
    ends = {start: end for start, end, *_ in arcs}
    for start, end, distance, relation in arcs:
        if distance and start + distance in ends:
            yield [[start, end], [start + distance, ends[start + distance]]], relation


def _halves(found: Probed) -> tuple[Probed, Probed]:
    """The spans for training and for testing; those of a record together, wherever it is in the corpus."""
    tested = np.array([digest("probe", key) % TESTED == 0 for key in found.keys], dtype=bool)
    return found.some(np.logical_not(tested)), found.some(tested)


def _predicted(train: np.ndarray, labels: np.ndarray, test: np.ndarray, decay: float) -> np.ndarray:
    """The labels [layers + 1, spans] that a probe of each layer predicts."""
    return np.stack([LinearProbe.trained(x, labels, decay).predict(y) for x, y in zip(train, test, strict=True)])


def _baselines(train: Probed, test: Probed, layers: int) -> dict[str, dict[str, float]]:
    """The most frequent label, and that of each word, for every layer."""
    by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(train.words, train.labels.tolist(), strict=True):
        by_word[word][label] += 1
    most = _most_frequent(Counter(train.labels.tolist()))
    of_words = [_most_frequent(by_word[word]) if word in by_word else most for word in test.words]
    guesses: dict[str, Sequence[str]] = {f"always {most}": [most] * len(test.words), "label of the word": of_words}
    found = {name: Tally.share(np.array(guess) == test.labels).whole for name, guess in guesses.items()}
    return {name: {f"accuracy/layer_{layer}": value for layer in range(layers)} for name, value in found.items()}


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda name: (-counts[name], name))
