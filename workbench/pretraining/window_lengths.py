"""The length of the windows of a text such that each fills a sequence, measured on the corpora that are read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.schema import units_of
from workbench.corpora.shards.record import BadRecordError
from workbench.pretraining.task import Task
from workbench.text.tokenizer import Tokenizer

SHARDS, RECORDS, CHARACTERS = 4, 128, 2000
"""The numbers of shards of a corpus, records of it, and characters from the middle of a record that are examined."""
READ_ON = 0.85
"""The share of a sequence that the longest windows fill on average where texts are read on. One that takes two
sequences breaks the text, as both are of one micro-batch. Novels in sequences of 64 to 512 tokens: 7 to 20 % of the
windows of full length do, and 0.4 % of these."""


def window_of(task: Task, corpora: Sequence[Corpus], weights: Sequence[float] | None = None) -> int | None:
    """The greatest length of a text item of a task, in characters; None where its texts are not cut.

    It depends only on the builder, the tokenizer and the corpora: the same at every start and on every rank.
    """
    builder = task.builder
    misfit = any(builder.unit not in units_of(corpus.kind) for corpus in corpora)  # which the reader refuses
    if builder.window_tokens is None or misfit:
        return builder.window
    share = READ_ON if task.spec.order == "continuous" else 1.0
    return max(1, int(share * builder.window_tokens * characters_per_token(corpora, builder.tokenizer, weights)))


def characters_per_token(
    corpora: Sequence[Corpus], tokenizer: Tokenizer, weights: Sequence[float] | None = None
) -> float:
    """Characters of running text for each token, over all corpora in the proportions in which they are read.

    Raises:
        WorkbenchError: none of the examined records has a text.
    """
    tokens_each, shares = [], []
    for corpus, weight in zip(corpora, weights or [1.0] * len(corpora), strict=True):
        texts = texts_within(corpus)
        characters = sum(map(len, texts))
        tokens = sum(map(len, tokenizer.encode_batch(texts)))
        if characters and tokens:
            tokens_each.append(tokens / characters)
            shares.append(weight)
    if not tokens_each or not sum(shares):
        raise WorkbenchError(
            f"there is no text in {', '.join(corpus.name for corpus in corpora)} to measure the windows on; does the "
            "task's builder fit this corpus? Otherwise set chars_per_token"
        )
    return float(1 / np.average(tokens_each, weights=shares))


def texts_within(corpus: Corpus) -> list[str]:
    """The middles of records from all over a corpus, the same at every call."""
    found = []
    shards = _spread(len(corpus.shards), SHARDS)
    for shard in shards:
        for record in _spread(corpus.shards[shard].records, -(-RECORDS // len(shards))):
            try:
                text = corpus.read(shard, record).get("text", "")
            except BadRecordError:
                continue  # the reader reports it
            begin = max(0, (len(text) - CHARACTERS) // 2)
            found.append(text[begin : begin + CHARACTERS])
    return found


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spaced."""
    return sorted({int(place) for place in (np.arange(min(count, most)) + 0.5) * count / min(count, most)})
