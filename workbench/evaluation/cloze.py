"""The tokens that a masked language model expects at the masks of a text: `Model.fill_mask`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from workbench.core.errors import WorkbenchError
from workbench.corpora.schema.places import splice
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, texts_alone
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.sequences.batch import collate
from workbench.sequences.builders.cloze import PLACEHOLDERS
from workbench.sequences.sequence import Sample, Sequence


class Guess(NamedTuple):
    """A token that may stand at a mask: its text, its probability, its id."""

    token: str
    probability: float
    id: int


@torch.inference_mode()
def fill_masks(run: EvaluatedRun, sample: Sample, k: int) -> list[list[Guess]]:
    """The `k` most probable tokens at each mask of a text, the most probable first. All masks are hidden at once.

    Args:
        run: one with the objective mlm.
        sample: its `text` spells the tokenizer's mask token at each place.

    Raises:
        WorkbenchError: the text has no mask, is too long, or cannot be read with one token in place of each mask.
    """
    objective, head = run.objective.objective, run.head
    assert isinstance(objective, Mlm)
    assert isinstance(head, MlmHead)
    sequence, rows = _masked(texts_alone(run), sample, objective.stream)
    device = next(run.network.parameters()).device
    states = run.network(collate([sequence]).to(device))[objective.stream][torch.as_tensor(rows, device=device)]
    probabilities = head.logits(run.network, states).float().softmax(-1)
    best = probabilities.topk(min(k, probabilities.shape[1]), dim=1)
    tokenizer = run.tokenizer
    return [
        [Guess(tokenizer.decode([i]).strip() or tokenizer.tokens([i])[0], p, i) for p, i in zip(*row, strict=True)]
        for row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _masked(run: EvaluatedRun, sample: Sample, stream: str) -> tuple[Sequence, np.ndarray]:
    """The sequence of a text, and the rows of its masks, whose tokens are masked."""
    text, tokenizer = str(sample.get("text", "")), run.tokenizer
    mask_id = tokenizer.id("mask")
    mask = tokenizer.roles["mask"]
    if mask not in text:
        raise WorkbenchError(f"the text {text!r} has no mask; write {mask} where a token is to be filled in")
    for read in _readings(sample, text, mask):
        sequences = run.task.sequences([read])
        if len(sequences) != 1:
            raise WorkbenchError(
                f"the text is longer than the {run.task.builder.max_length} tokens of the model's sequences; shorten it"
            )
        fields = sequences[0].fields(stream)
        spans = [np.arange(span.start, span.end) for span in sequences[0].mask_spans]
        own = [rows[~fields["taken"][rows]] for rows in spans]
        if len(own) == text.count(mask) and all(len(rows) == 1 for rows in own):
            rows = np.concatenate(own)
            ids = fields["input_ids"].copy()
            ids[rows] = mask_id
            streams = {**sequences[0].streams, stream: {**fields, "input_ids": ids}}
            return replace(sequences[0], streams=streams), rows
    raise WorkbenchError(
        f"the tokenizer reads no single token at the masks of {text!r}; set spaces around {mask}, as around a word"
    )


def _readings(sample: Sample, text: str, mask: str) -> Iterator[Sample]:
    """The sample with a word in place of each mask, marked in `mask_spans`; one for each of `PLACEHOLDERS`."""
    starts: list[int] = []
    while (start := text.find(mask, starts[-1] + len(mask) if starts else 0)) >= 0:
        starts.append(start)
    for word in PLACEHOLDERS:
        edits = [(start, start + len(mask), word) for start in starts]
        marked = {**sample, "mask_spans": [[start, end] for start, end, _ in edits]}
        yield splice(marked, "text", edits)
