"""A text with two marked mentions, for the relation between them (ERNIE-THU, arXiv:1905.07129, section 4.4)."""

from __future__ import annotations

from typing import Annotated, Any

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Name
from workbench.sequences.builder import TextOptions, sample_text
from workbench.sequences.marked_text import MarkedText, Named
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer


class MarkedPairBuilder(MarkedText):
    """A text with two marked mentions: [CLS] ... # head # ... $ tail $ ... [SEP], for relation classification
    (ERNIE-THU, arXiv:1905.07129, section 4.4). The samples' `marks` name a head and a tail.

    A marker stands with a space on its inner side; its rows are special. A text that is too long keeps its beginning,
    or, where a mention would be cut, the stretch around both; the tokens lost are counted, and so are mentions that lie
    too far apart for that. Linked entities (`spans`) are rows of the marked text.

    Args:
        head, tail: the markers; each a single token of the vocabulary.
        options: those of every builder of single texts, `workbench.sequences.builder.TextOptions`.

    Raises:
        WorkbenchError: the tokenizer does not know a marker.
    """

    reads = ("marks",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        head: Name = "#",
        tail: Name = "$",
        **options: Annotated[Any, TextOptions],
    ) -> None:
        super().__init__(tokenizer, max_length, {"head": head, "tail": tail}, **options)

    def stretches(self, sample: Sample) -> Named:
        text = sample_text(sample)
        found: dict[str, tuple[int, int, str]] = {}
        for start, end, name in sample.get("marks", ()):
            if name in self.markers and name not in found:
                found[name] = (start, end, name)
        if len(found) < len(self.markers):
            raise missing(sample, "marks", "of a head and a tail")
        first, second = sorted(found.values())
        if first[1] > second[0] or not 0 <= first[0] < first[1] or not second[0] < second[1] <= len(text):
            raise WorkbenchError(
                f"sample {sample.get('key', '?')!r}: head and tail {found} overlap, or lie outside the text of "
                f"{len(text)} characters; give half-open character offsets of two different mentions"
            )
        return [(name, start, end) for start, end, name in (first, second)]
