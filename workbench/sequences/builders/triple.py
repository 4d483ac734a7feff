"""A triple as text: [CLS] head [SEP] relation [SEP] tail [SEP] (KG-BERT, arXiv:1909.03193).

Head and tail have segment 0, the relation segment 1, as in KG-BERT.
"""

from __future__ import annotations

from typing import Any, Literal

from workbench.core.options.bounds import Count
from workbench.sequences.sequence import Sample
from workbench.sequences.text_layout import Visibility
from workbench.sequences.triple_text import TripleElement, TripleText
from workbench.text.tokenizer import Tokenizer


class TripleBuilder(TripleText):
    """A triple as text: [CLS] head [SEP] relation [SEP] tail [SEP] (KG-BERT, arXiv:1909.03193). The texts are those of
    the corpus, and each triple is an item. Head and tail are `spans` with the id of their entity.

    Args:
        head: the head's text: its `label`, or its label and `description`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`), itself and
            those after it (`anticausal`), or in the tail those up to itself and in head and relation these two
            (`prefix`).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        head: Literal["label", "description"] = "label",
        visibility: Visibility = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, segments=len(self.types), visibility=visibility)
        self.head = head

    def parts(self, sample: Sample, triple: dict[str, Any]) -> list[TripleElement]:
        label = str(sample.get("label") or sample.get("id") or "")
        description = str(sample.get("description") or "") if self.head == "description" else ""
        return [
            TripleElement(label, description, _id(sample.get("id"))),
            TripleElement(triple.get("relation_text") or str(triple["relation"])),
            TripleElement(triple.get("tail_text") or _id(triple["tail"]) or "", "", _id(triple.get("tail"))),
        ]


def _id(found: object) -> str | None:
    return None if found is None else str(found)
