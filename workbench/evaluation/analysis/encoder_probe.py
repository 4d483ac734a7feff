"""A linear probe of the encoder that a fine-tuning started from: the baseline of a classification of texts.

It is a logistic regression from the mean of a text's states in the last layer to its class
(`workbench.metrics.probes`). Its penalty is chosen among `DECAYS` by the accuracy on a fifth of the training texts.
Then it is fitted to all of them. A fine-tuning that is not better has found nothing new in the texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.urls import is_url
from workbench.core.keyed import digest
from workbench.evaluation.analysis.encoding import Encoder
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.interop.run_or_checkpoint import load
from workbench.metrics.probes import LinearProbe
from workbench.recipe.spec import InitFrom
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
COST = 5e10
"""Texts times parameters of the network; an evaluation with more has no such baseline."""
DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)
BATCH, ONE_OF = 32, 5


def by_untouched_encoder(
    run: EvaluatedRun, trained: Sequence[Sample], gold: np.ndarray, tested: Sequence[Sample]
) -> np.ndarray | None:
    """The classes that the probe predicts [tested].

    Args:
        gold: the classes of the training set [trained].

    Returns:
        None if the texts are pairs, have marked spans or come with images, the run started from no single encoder of
        texts that is still there, or the probe would cost more than `COST`.
    """
    start = _start(run)
    if start is None or not all(map(_is_alone, (*trained, *tested))):
        return None
    size = sum(parameter.numel() for parameter in run.network.parameters())
    if (len(trained) + len(tested)) * size > COST:
        logger.info("no probe of the untouched encoder, as its %d texts are many", len(trained) + len(tested))
        return None
    try:
        loaded = load(start.weights)
        loaded.model.to(next(run.network.parameters()).device)
        encoder = Encoder(loaded, pool="mean", network_name=start.network)
        states, others = (_states(encoder, samples) for samples in (trained, tested))
    except WorkbenchError as error:
        logger.info("no probe of the untouched encoder: %s", error)
        return None
    if len(states) != len(trained) or len(others) != len(tested):
        return None  # a text without a token has no state
    held_out = np.array([digest("probe", str(sample["key"])) % ONE_OF == 0 for sample in trained])
    return LinearProbe.trained(states, gold, _decay(states, gold, held_out)).predict(others)


def _start(run: EvaluatedRun) -> InitFrom | None:
    """The place of the weights that the network started from, if it is one and near."""
    spec = run.loaded.recipe.networks.get(run.objective.network)
    entries = [] if spec is None else spec.init_from
    whole = [each for each in entries if each.stream is None and each.adapters is None]
    near = len(entries) == len(whole) == 1 and not is_url(whole[0].weights)
    return whole[0] if near and Path(whole[0].weights) != run.folder else None


def _is_alone(sample: Sample) -> bool:
    """Whether a sample is one text and nothing else."""
    return "text" in sample and not {"second", "marks", "image", "media"} & {k for k, value in sample.items() if value}


def _states(encoder: Encoder, samples: Sequence[Sample]) -> np.ndarray:
    """The mean states of texts [texts, width], each read alone."""

    def groups() -> Iterator[list[Sample]]:
        yield from ([*samples[n : n + BATCH]] for n in range(0, len(samples), BATCH))

    found: np.ndarray = encoder(groups(), built=False)[1].numpy()
    return found


def _decay(states: np.ndarray, gold: np.ndarray, held_out: np.ndarray) -> float:
    """The penalty whose probe of the other texts is best on those held out."""
    if len({*gold[~held_out].tolist()}) < 2 or not held_out.any():
        return DECAYS[1]

    def accuracy(decay: float) -> float:
        probe = LinearProbe.trained(states[~held_out], gold[~held_out], decay)
        return float((probe.predict(states[held_out]) == gold[held_out]).mean())

    return max(DECAYS, key=accuracy)
