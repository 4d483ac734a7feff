"""Predictions for the masked span of a sentence: the `predict` of `kg.evaluation.tasks.facts`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.objectives.mlm import MlmHead
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

Prepare = Callable[[list[Sample], Draws], list[Sequence]]


class SlotPredictor:
    """Samples with one stretch in `mask_spans` -> log-probabilities of the stretch's tokens, all of them masked.

    Args:
        network, head: the model and its MLM head; they are put into evaluation mode.
        stream: the one whose tokens are masked and predicted: a head may read another in training (MPNet's queries).
        prepare: samples -> sequences, as in training: the task's builder and transforms, without its objectives.
        mask_id: id of the mask token.
    """

    def __init__(self, network: Network, head: MlmHead, prepare: Prepare, mask_id: int, stream: str = "text") -> None:
        self.network = network.eval()
        self.head = head.eval()
        self.prepare = prepare
        self.mask_id, self.stream = mask_id, stream

    @torch.inference_mode()
    def __call__(self, samples: list[Sample]) -> np.ndarray:
        """Samples whose stretches have m tokens each -> float32 [samples, m, vocab_size].

        Raises:
            WorkbenchError: a stretch is missing from its sequence, or the stretches differ in length.
        """
        sequences = self.prepare(samples, Draws("slots", number=(0,)))
        masked = [self._masked(sequence) for sequence in sequences if sequence.mask_spans]
        if len(masked) != len(samples) or len({len(rows) for _, rows in masked}) != 1:
            found = sorted({len(rows) for _, rows in masked})
            raise WorkbenchError(
                f"facts: {len(samples)} sentences gave {len(masked)} slots of {found} tokens; every sentence needs its "
                "slot, of one number of tokens: check that max_length of the builder holds the sentences"
            )
        batch = collate([sequence for sequence, _ in masked]).to(next(self.head.parameters()).device)
        starts = batch.streams[self.stream].offsets[:-1]
        rows = torch.from_numpy(np.stack([rows for _, rows in masked])).to(starts.device) + starts[:, None]
        states = self.network(batch)
        logits = self.head.logits(self.network, states[self.stream][rows.flatten()])
        return logits.float().log_softmax(-1).unflatten(0, rows.shape).cpu().numpy()

    def _masked(self, sequence: Sequence) -> tuple[Sequence, np.ndarray]:
        """The sequence with its stretch masked, and the stretch's rows (branches in between are none of it)."""
        span, *more = sequence.mask_spans
        if more:
            raise WorkbenchError(f"facts: sentence {sequence.key!r} has {1 + len(more)} slots; allowed: one")
        text = sequence.fields(self.stream)
        rows = np.arange(span.start, span.end)
        rows = rows[~text["taken"][rows]]
        text["input_ids"] = text["input_ids"].copy()
        text["input_ids"][rows] = self.mask_id
        return sequence, rows
