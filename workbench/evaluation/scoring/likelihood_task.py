"""Base of the evaluations that add up probabilities of tokens: the pass, the baseline, and a line for each text."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import LikelihoodScoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.likelihood import Cost, PredictedTokens, entropy, unigram_loss
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.rank_shares import shared_groups
from workbench.evaluation.scoring.result import Result, corpus_input
from workbench.evaluation.scoring.token_memory import ALONE, PERMUTED
from workbench.metrics.tallies import Tally
from workbench.sequences.builder import sample_text
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Encoding

logger = logging.getLogger(__name__)
EXAMPLES, SHOWN = 12, 80
"""Numbers of texts that are shown, and of tokens of each text."""
TEXTS = 64
"""Number of texts that are tokenised at once."""


Options = TypeVar("Options", bound=LikelihoodScoring)


@dataclass
class _GroupCosts:
    """The results of a group of samples: the cost of each text, other costs of all, how often each token was predicted,
    examples."""

    costs: list[tuple[str, Cost]]
    others: dict[str, Cost]
    counts: Counter[int]
    examples: list[dict[str, Any]]


class LikelihoodTask(DownstreamTask[Tuning, Options]):
    """Base of the evaluations that add up -log p of tokens; a subclass says of which, and given what."""

    gathers = True

    def predicted(self, run: EvaluatedRun, samples: list[Sample], scoring: Options) -> Iterable[PredictedTokens]:
        """The predictions of these samples, in order. Windows of a text have its key."""
        raise NotImplementedError(f"{type(self).__name__} must define predicted")

    def predictable(self, run: EvaluatedRun, text: Encoding) -> np.ndarray:
        """The tokens of a text that `predicted` predicts, without the unpredicted beginning."""
        raise NotImplementedError(f"{type(self).__name__} must define predictable")

    def unpredicted(self, run: EvaluatedRun, sample: Sample) -> int:
        """The number of unpredicted characters at the beginning of a text. They don't count as its bytes."""
        return 0

    def convention(self, run: EvaluatedRun, scoring: Options) -> str:
        """The context that a token is predicted from, in words."""
        raise NotImplementedError(f"{type(self).__name__} must define convention")

    def groups(self, run: EvaluatedRun, corpus: Corpus, scoring: Options) -> Iterator[list[Sample]]:
        """Whole records, some at a time."""
        return sample_pass([corpus], size=min(TEXTS, scoring.batch_size), unit=None, limit=scoring.limit)

    def sized(self, run: EvaluatedRun) -> bool:
        """Whether texts are predicted from their beginning to their end, so that they have a cost for each byte."""
        return True

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: Options) -> Result:
        self._check(run, corpus, scoring)
        parts = self._parts(run, corpus, scoring)
        costs: dict[str, Cost] = {}
        others: dict[str, Cost] = {}
        counts: Counter[int] = Counter()
        for part in parts:
            for key, cost in part.costs:
                costs.setdefault(key, Cost()).add(cost)
            counts.update(part.counts)
            for name, cost in part.others.items():
                others.setdefault(name, Cost()).add(cost)
        total = Cost()
        for cost in costs.values():
            total.add(cost)
        if not total.tokens:
            raise WorkbenchError(f"there is nothing to predict in corpus {corpus.name!r}: its texts are empty")
        baseline, inputs = self._baseline(run, total, counts, scoring)
        unknown = _unknown(run, counts)
        if unknown:
            logger.warning(
                "%s: %d of %d tokens (%.3g %%) are unknown to the tokenizer. One token stands for all their spellings, "
                "so that perplexity and bits per byte are too low; take a tokenizer that knows them",
                *(corpus.name, unknown, total.tokens, 100 * unknown / total.tokens),
            )
        return Result(
            task=self.name,
            numbers=total.numbers(self._number) | ({"unknown_share": unknown / total.tokens} if unknown else {}),
            counts={"texts": len(costs), "tokens": total.tokens}
            | ({"unknown tokens": unknown} if unknown else {})
            | ({"bytes": total.bytes, "characters": total.characters} if total.bytes else {}),
            variant=self.convention(run, scoring),
            baselines=baseline
            | {name: self._sized(cost, total).numbers(self._number) for name, cost in others.items()},
            inputs=inputs,
            examples=[example for part in parts for example in part.examples][:EXAMPLES],
            predictions=EvaluationItems(
                [self._line(key, cost) for key, cost in costs.items()], self._tallies([*costs.values()])
            ),
        )

    @property
    def _number(self) -> str:
        return self.name.replace("-", "_")

    def _check(self, run: EvaluatedRun, corpus: Corpus, scoring: Options) -> None:
        if scoring.unigrams is not None and not self.sized(run):
            raise WorkbenchError(
                f"--unigrams: the objective {run.objective.name!r} predicts other tokens than those of whole texts; "
                "leave it out: the baseline then counts the predicted tokens"
            )
        if self.sized(run) and corpus.kind != "text":
            raise WorkbenchError(f"corpus {corpus.name!r} holds {corpus.kind}; {self.name} is of texts")

    def _parts(self, run: EvaluatedRun, corpus: Corpus, scoring: Options) -> list[_GroupCosts]:
        """The results of all groups, in order. Each rank computes its share."""
        groups = self.groups(run, corpus, scoring)
        return shared_groups(run.world, groups, lambda _, samples: self._part(run, samples, scoring))

    def _part(self, run: EvaluatedRun, samples: list[Sample], scoring: Options) -> _GroupCosts:
        costs = {sample["key"]: Cost() for sample in samples}
        if self.sized(run):
            for sample in samples:
                text = sample_text(sample)[self.unpredicted(run, sample) :]
                costs[sample["key"]] = Cost(characters=len(text), bytes=len(text.encode()))
        counts: Counter[int] = Counter()
        others: dict[str, Cost] = {}
        examples: list[dict[str, Any]] = []
        for each in self.predicted(run, samples, scoring):
            nats, *more = each.nats.T if each.nats.ndim > 1 else [each.nats]
            costs[each.key].add(Cost(len(nats), float(nats.sum())))
            for name, own in zip((ALONE, PERMUTED), more, strict=False):
                others.setdefault(name, Cost()).add(Cost(len(own), float(own.sum())))
            each = each._replace(nats=nats)
            counts.update(each.labels.tolist())
            if len(examples) < EXAMPLES and len(each.labels):
                examples.append(_example(run, each))
        return _GroupCosts(list(costs.items()), others, counts, examples)

    def _baseline(
        self, run: EvaluatedRun, total: Cost, counts: Counter[int], scoring: Options
    ) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
        """The cost by how frequent each token is, whatever stands around it; and the corpus where that was counted."""
        name, inputs, loss = "unigrams of the test set", {}, entropy(counts)
        if scoring.unigrams is not None:
            corpus = Corpus.open(scoring.unigrams)
            name, inputs = f"unigrams of {corpus.name}", {"unigrams": corpus_input(corpus)}
            loss = unigram_loss(counts, self._known(run, corpus), run.tokenizer.vocab_size)
        cost = self._sized(Cost(total.tokens, loss * total.tokens), total)
        return {name: cost.numbers(self._number)}, inputs

    def _sized(self, cost: Cost, total: Cost) -> Cost:
        """Another cost of the same texts."""
        return Cost(cost.tokens, cost.nats, total.characters, total.bytes)

    def _known(self, run: EvaluatedRun, corpus: Corpus) -> Counter[int]:
        known: Counter[int] = Counter()
        for sample in corpus:
            known.update(self.predictable(run, run.tokenizer.encode(sample_text(sample))).tolist())
        return known

    def _tallies(self, costs: list[Cost]) -> dict[str, Tally]:
        """The tallies of each text."""
        nats, tokens = [cost.nats for cost in costs], [cost.tokens for cost in costs]
        found = {self._number: Tally.of("exp_mean", nats, tokens), "loss": Tally.of("mean", nats, tokens)}
        bits = [cost.nats / math.log(2) for cost in costs]
        sizes = {name: [getattr(cost, name) for cost in costs] for name in ("bytes", "characters")}
        per = {f"bits_per_{name[:-1]}": Tally.of("mean", bits, of) for name, of in sizes.items() if any(of)}
        return found | per

    def _line(self, key: str, cost: Cost) -> dict[str, Any]:
        """The line of a text. A text without tokens has no numbers."""
        sizes = {"bytes": cost.bytes, "characters": cost.characters} if cost.bytes else {}
        numbers = cost.numbers(self._number) if cost.tokens else {}
        return {"key": key, "tokens": cost.tokens, "nats": cost.nats, **sizes, **numbers}


def _unknown(run: EvaluatedRun, counts: Counter[int]) -> int:
    """The number of predicted tokens that are unknown to the tokenizer."""
    return counts[run.tokenizer.id("unk")] if run.tokenizer.has("unk") else 0


def _example(run: EvaluatedRun, predicted: PredictedTokens) -> dict[str, Any]:
    """The first tokens of a text with the bits that each has cost."""
    bits = (predicted.nats[:SHOWN] / np.log(2)).round(3).tolist()
    return {"key": predicted.key, "tokens": run.tokenizer.tokens(predicted.labels[:SHOWN]), "bits": bits}
