"""Vectors of words: similarity of pairs, analogies, nearest words, by the table of a network.

A word's vector is what the embedding says of its tokens, their mean where it has several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.labels import chosen_label
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_network
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.search_options import VectorsScoring
from workbench.metrics.correlations import number_scores, number_tallies
from workbench.objectives.regression import number_of
from workbench.pretraining.objective import Objective
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.sequence import text_fields

STREAM = "text"
EXAMPLES, NEAREST, BLOCK = 12, 5, 4096


class Pair(NamedTuple):
    """Two words and how alike people find them."""

    key: str
    first: str
    second: str
    gold: float


class WordSimilarity(DownstreamTask[Tuning, VectorsScoring]):
    """Similarity of words, and analogies; any network with an embedding of tokens has vectors for it."""

    scoring = VectorsScoring
    objective = Objective
    panels = ("workbench.evaluation.task_panels:near_words",)

    def chosen(self, loaded: LoadedRun, options: VectorsScoring) -> EvaluatedRun:
        return find_network(loaded, options.run, task=options.task, network=options.network, control=options.control)

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: VectorsScoring) -> Result:
        words = WordTable(run)
        label, _ = chosen_label(corpus, scoring.label, example="3.5")
        pairs = [*islice(_pairs(corpus, label), scoring.limit)]
        if not pairs:
            raise WorkbenchError(
                f"corpus {corpus.name!r} has no pairs of words; it needs `text`, `second`, and a label"
            )
        gold = np.array([pair.gold for pair in pairs])
        found = words.cosines([pair.first for pair in pairs], [pair.second for pair in pairs])
        letters = np.array([_shared_trigrams(pair.first, pair.second) for pair in pairs])
        numbers = {name: value for name, value in number_scores(found, gold).items() if name in CORRELATIONS}
        tallies = {name: tally for name, tally in number_tallies(found, gold).items() if name in CORRELATIONS}
        spelled = {name: value for name, value in number_scores(letters, gold).items() if name in CORRELATIONS}
        counts = {"pairs": len(pairs), "pairs with an unknown word": sum(words.lacks(p.first, p.second) for p in pairs)}
        inputs: dict[str, Any] = {}
        if scoring.analogies is not None:
            right, left_out = words.analogies(read_analogies(scoring.analogies))
            numbers["analogy_accuracy"] = float(right.mean())  # without an interval: its items are no pairs
            counts |= {"analogies": len(right), "analogies with words that are no single token": left_out}
            inputs["analogies"] = {"path": str(scoring.analogies), "sha256": sha256_of(scoring.analogies)}
        lines = [
            {"key": pair.key, "gold": pair.gold, "prediction": float(cosine)}
            for pair, cosine in zip(pairs, found.tolist(), strict=True)
        ]
        return Result(
            task=self.name,
            numbers=numbers,
            counts=counts,
            variant=f"label {label}",
            baselines={"shared trigrams of letters": spelled},
            inputs=inputs,
            examples=[{"text": pair.first, "nearest": words.nearest(pair.first)} for pair in pairs[:EXAMPLES]],
            predictions=EvaluationItems(lines, tallies),
        )


CORRELATIONS = ("pearson", "spearman")


class WordTable:
    """The vectors of words of a network, each normalised.

    Raises:
        WorkbenchError: the network has no embedding of tokens.
    """

    def __init__(self, run: EvaluatedRun) -> None:
        embeddings = dict(run.network.embeddings.items())
        if STREAM not in embeddings or "input_ids" not in getattr(embeddings[STREAM], "limits", {}):
            raise WorkbenchError(
                f"the network has no embedding of tokens in a stream {STREAM!r} (its streams: "
                f"{', '.join(embeddings)}); choose another: --network"
            )
        self.embedding, self.tokenizer = embeddings[STREAM].eval(), run.tokenizer
        self.device = next(run.network.parameters()).device
        self.ordinary = torch.from_numpy(self.tokenizer.ordinary_ids)
        blocks = [F.normalize(self._rows(ids), dim=-1) for ids in self.ordinary.split(BLOCK)]
        self.table = torch.cat(blocks)
        self.place = {number: row for row, number in enumerate(self.ordinary.tolist())}

    @torch.inference_mode()
    def _rows(self, ids: Tensor) -> Tensor:
        """The embedding of each token at the first position [tokens, size], float32, on the CPU."""
        fields = {name: torch.from_numpy(value) for name, value in text_fields(ids.numpy()).items()}
        fields["position_ids"] = torch.zeros_like(ids)
        return self.embedding({name: value.to(self.device) for name, value in fields.items()}).float().cpu()

    def _ids(self, word: str) -> Tensor:
        """The tokens of a word within a text."""
        before = len(self.tokenizer.encode("a").ids)
        return torch.from_numpy(self.tokenizer.encode(f"a {word}").ids[before:])

    def lacks(self, *words: str) -> bool:
        """Whether one of the words is unknown to the tokenizer, at least in part."""
        unknown = self.tokenizer.id("unk") if self.tokenizer.has("unk") else -1
        return any(not len(ids) or bool((ids == unknown).any()) for ids in map(self._ids, words))

    def vector(self, word: str) -> Tensor:
        """The mean of the vectors of a word's tokens [size], normalised; 0 for a word without tokens."""
        ids = self._ids(word)
        rows = self._rows(ids) if len(ids) else torch.zeros(1, self.table.shape[1])
        return F.normalize(rows.mean(0), dim=0)

    def cosines(self, first: Iterable[str], second: Iterable[str]) -> np.ndarray:
        """The cosine of each pair of words [pairs]."""
        left, right = (torch.stack([self.vector(word) for word in words]) for words in (first, second))
        return (left * right).sum(1).double().numpy()

    def nearest(self, word: str) -> list[str]:
        """The words with the greatest cosines, without the word itself."""
        cosines = self.table @ self.vector(word)
        for number in self._ids(word).tolist():
            if number in self.place:
                cosines[self.place[number]] = -2.0
        best = cosines.topk(min(NEAREST, len(cosines))).indices
        return [self.tokenizer.decode([int(self.ordinary[row])]).strip() for row in best]

    def analogies(self, asked: list[tuple[str, str, str, str]]) -> tuple[np.ndarray, int]:
        """Whether d is the word nearest to b - a + c, other than these, for each (a, b, c, d) of single tokens
        (3CosAdd, Mikolov et al., arXiv:1301.3781, section 4); and how many were left out.

        Raises:
            WorkbenchError: none of them has single tokens alone.
        """
        tokens = [[self._ids(word) for word in four] for four in asked]
        kept = [[int(ids[0]) for ids in four] for four in tokens if all(len(ids) == 1 for ids in four)]
        rows = [[self.place[number] for number in four] for four in kept if all(n in self.place for n in four)]
        if not rows:
            raise WorkbenchError("--analogies: no line has four words that are one token each; use another tokenizer")
        right = []
        for a, b, c, d in rows:
            cosines = self.table @ (self.table[b] - self.table[a] + self.table[c])
            cosines[[a, b, c]] = -4.0
            right.append(float(int(cosines.argmax()) == d))
        return np.array(right), len(asked) - len(rows)


def read_analogies(path: Path) -> list[tuple[str, str, str, str]]:
    """The lines `a b c d` of a file; lines that begin with a colon are headings.

    Raises:
        WorkbenchError: there is no such file, or a line has other columns.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise WorkbenchError(f"--analogies {path}: cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith(":"):
            continue
        if len(words) != 4:
            raise WorkbenchError(
                f"{path}, line {number}: {line!r}; allowed: four words, as in `Oslo Norway Paris France`"
            )
        found.append((words[0], words[1], words[2], words[3]))
    return found


def _pairs(corpus: Corpus, label: str) -> Iterator[Pair]:
    """The pairs of words of a corpus that have a number.

    Raises:
        WorkbenchError: the label of a record is no number.
    """
    for sample in (each for group in sample_pass([corpus], size=256, unit=None) for each in group):
        if label not in sample.get("labels", {}) or not isinstance(sample.get("second"), str):
            continue
        gold = number_of(sample["labels"][label])
        if gold is None:
            raise WorkbenchError(f"record {sample['key']!r}: {label} = {sample['labels'][label]!r}; allowed: a number")
        yield Pair(str(sample["key"]), str(sample["text"]).strip(), sample["second"].strip(), gold)


def _shared_trigrams(first: str, second: str) -> float:
    """The share of trigrams of letters that two words have in common: what spelling alone says of them."""
    one, other = ({f" {word.lower()} "[i : i + 3] for i in range(len(word))} for word in (first, second))
    return len(one & other) / max(len(one | other), 1)
