"""A text with one marked mention, for entity typing (ERNIE-THU, arXiv:1905.07129; K-Adapter, arXiv:2002.01808)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Name
from workbench.sequences.builder import TextOptions, sample_text
from workbench.sequences.marked_text import MarkedText, Named
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer


class MentionBuilder(MarkedText):
    """A text with one marked mention: [CLS] before <marker> mention <marker> after [SEP], for entity typing (ERNIE-THU,
    arXiv:1905.07129; K-Adapter, arXiv:2002.01808). The samples have `text`, `mention: [start, end]` and `types`.

    The marker has one space on its inner side, as in ERNIE-THU's published code: the ideographic full stop of that code
    by default, `@` for K-Adapter. The rows of the markers are special. A text that is too long keeps its beginning, or,
    where the mention would be cut, the stretch around the mention; the tokens lost are counted. So, unlike in the
    published code, no mention is lost by truncation.

    `Sequence.marks` has `mention` (the rows between the markers), `Sequence.meta` has `types`, and with `types` given
    the multi-hot vector `labels` [types] float32.

    Args:
        marker: text on both sides of the mention; a single token of the vocabulary.
        types: the type inventory; a sample's types outside of it are counted.
        options: those of every builder of single texts, `workbench.sequences.builder.TextOptions`.

    Raises:
        WorkbenchError: the tokenizer does not know the marker.
    """

    reads = ("mention",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        marker: Name = "。",
        types: list[Name] | None = None,
        **options: Annotated[Any, TextOptions],
    ) -> None:
        super().__init__(tokenizer, max_length, {"mention": marker}, **options)
        self.types = None if types is None else {name: i for i, name in enumerate(types)}

    def stretches(self, sample: Sample) -> Named:
        text, mention = sample_text(sample), sample.get("mention")
        if mention is None:
            raise missing(sample, "mention")
        start, end = int(mention[0]), int(mention[1])
        if not 0 <= start < end <= len(text):
            raise WorkbenchError(
                f"sample {sample.get('key', '?')!r}: mention [{start}, {end}] is not inside the text of {len(text)} "
                "characters; give half-open character offsets"
            )
        return [("mention", start, end)]

    def about(self, sample: Sample) -> dict[str, Any]:
        types = list(sample.get("types", ()))
        if self.types is None:
            return {"types": types}
        known = [self.types[name] for name in types if name in self.types]
        if len(known) < len(types):
            self.dropped["type outside the inventory"] += len(types) - len(known)
        labels = np.zeros(len(self.types), np.float32)
        labels[known] = 1.0
        return {"types": types, "labels": labels}
