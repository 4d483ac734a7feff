"""Importance of attention heads, of any network, and its score as heads are left out.

Michel et al. (arXiv:1905.10650): the importance of a head is the sum over texts of |dL/dg|, where g = 1 is a factor of
its output (`workbench.evaluation.analysis.removal`). L is the loss of the run's task. A network without a task has

    L = <v, mean state of the text>,  v a random normal vector for each text

so that the expected |dL/dg| is the length of the change of the mean state, times sqrt(2 / pi).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.keyed import digest, generator, normals
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.network_task import STREAM, NetworkTask, StretchedText, states_of, texts_of, wholes
from workbench.evaluation.analysis.removal import (
    AT_ONCE,
    Importance,
    attention_of,
    check_layers,
    importances,
    importances_for,
    kept_parts,
    task_of,
)
from workbench.evaluation.analysis_options import HeadsScoring
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.task_finder import fitting_tasks
from workbench.metrics.tallies import Tally
from workbench.models.network import Network
from workbench.models.pooler import mean_rows
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sample

SHARES = (20, 40, 60, 80)
"""Percentages of the heads that are left out; the numbers name what whole heads allow."""
Scored = tuple[list[dict[str, Any]], str, Tally]
"""The items of a network, the name of its score, and the score's tally."""


class HeadImportance(NetworkTask[HeadsScoring]):
    """The score without the least important heads, and without random ones."""

    scoring = HeadsScoring

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: HeadsScoring) -> Result:
        network, of = run.network, run.objective.network
        check_layers(network, run.loaded.recipe.all_networks[of], f"{run.folder}, network {of!r}", biased=True)
        texts = texts_of(corpus, scoring.limit)
        ranked = _importances(run, corpus if scoring.rank is None else Corpus.open(scoring.rank), scoring)
        rng = generator("heads", "random order")
        drawn = [Importance(torch.from_numpy(rng.random(len(one.heads))), one.features) for one in ranked]
        whole = _last_states(run, texts, scoring.batch_size)
        lines, name, first = self._scored(run, corpus, scoring, texts, whole)
        tallies = {f"{name}/removed_0": first, f"random_{name}/removed_0": first}
        before, total = 0.0, sum(len(one.heads) for one in ranked)
        for asked in SHARES:
            found = {
                prefix: [heads for heads, _ in kept_parts(order, asked / 100, 0.0)]
                for prefix, order in (("", ranked), ("random_", drawn))
            }
            share = 100 - 100 * sum(map(len, found[""])) / total
            if share == before:  # few heads, or each the last one of its layer
                continue
            before = share
            for prefix, kept in found.items():
                with heads_alone(network, kept):
                    scored = self._scored(run, corpus, scoring, texts, whole)[2]
                tallies[f"{prefix}{name}/removed_{share:.3g}"] = scored
        relative = [(one.heads / one.heads.norm().clamp_min(1e-12)).tolist() for one in ranked]
        return Result(
            self.name,
            wholes(dict(sorted(tallies.items()))),
            {"items": len(lines), "heads": sum(map(len, relative))},
            variant=f"{name}; ranked by {'the losses of the task' if _trained(run) else 'the mean states of texts'}",
            examples=[{"importance of the heads (columns) of each layer": relative}],
            predictions=EvaluationItems(lines, tallies),
        )

    def _scored(
        self, run: EvaluatedRun, corpus: Corpus, scoring: HeadsScoring, texts: list[Sample], whole: Tensor
    ) -> Scored:
        """The score by the task that the run was fine-tuned for, or else its agreement with the whole network."""
        tasks = fitting_tasks(run.loaded)
        if len(tasks) == 1:
            return _by_task(tasks[0], run, corpus, scoring)
        cosines = F.cosine_similarity(_last_states(run, texts, scoring.batch_size), whole, dim=-1).tolist()
        lines = [{"key": str(text["key"]), "values": [1.0]} for text in texts]
        return lines, "agreement", Tally.mean(cosines)


def _by_task(task: DownstreamTask[Any, Any], run: EvaluatedRun, corpus: Corpus, scoring: HeadsScoring) -> Scored:
    """The first number of a downstream task of the run, as `evaluate` reports it."""
    same = ("run", "corpus", "network", "control", "batch_size", "limit", "precision")
    own = task.scoring(**{option: getattr(scoring, option) for option in same})
    found = task.score(task.chosen(run.loaded, own).on(run.world, scoring.precision), corpus, own)
    name = next(iter(found.numbers))
    return found.predictions.lines, name, found.predictions.tallies[name]


def _trained(run: EvaluatedRun) -> bool:
    """Whether the run has a task whose losses train the network."""
    placed = [each for task in run.loaded.tasks.values() for each in task.objectives]
    return any(each.network == run.objective.network and each.weight != 0 for each in placed)


def _importances(run: EvaluatedRun, corpus: Corpus, scoring: HeadsScoring) -> list[Importance]:
    """By the losses of the run's task, or by the mean states of texts."""
    if _trained(run):
        task = task_of(run.loaded, run.objective.network, scoring.task, run.folder)
        return importances(run.loaded.model, run.network, task, corpus, scoring.limit)
    device, width = next(run.network.parameters()).device, run.network.sizes[STREAM]

    def loss(number: int, samples: list[Sample]) -> tuple[Tensor, Batch]:
        sequences = run.task.sequences(samples, (number,))
        batch = collate(sequences).to(device)
        rows = np.array([digest(sequence.key) % 2**32 for sequence in sequences])
        directions = torch.from_numpy(normals(rows, width, "heads", "directions")).to(device)
        return (mean_rows(run.network(batch)[STREAM], batch.streams[STREAM]) * directions).sum(), batch

    texts = texts_of(corpus, scoring.limit)
    groups = (texts[begin : begin + AT_ONCE] for begin in range(0, len(texts), AT_ONCE))
    return importances_for(run.network, groups, loss)


def _last_states(run: EvaluatedRun, texts: Sequence[Sample], size: int) -> Tensor:
    """The mean of the last states of each text [texts, hidden_size]."""
    whole = [StretchedText(text, np.array([[0, len(text["text"])]])) for text in texts]
    return states_of(run, whole, size)[0][-1]


@contextmanager
def heads_alone(network: Network, kept: Sequence[Tensor]) -> Iterator[None]:
    """A block in which the outputs of other heads than the `kept` ones of each layer are zeros."""

    def gate(heads: Tensor, count: int) -> Any:
        factors = torch.zeros(count).index_fill(0, heads, 1.0)

        def multiply(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            rows = given[0]
            own = factors.to(rows).repeat_interleave(rows.shape[-1] // count)
            return (rows * own, *given[1:])

        return multiply

    attentions = [attention_of(layer) for layer in network.layers]
    hooks = [a.output.register_forward_pre_hook(gate(of, a.num_heads)) for a, of in zip(attentions, kept, strict=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
