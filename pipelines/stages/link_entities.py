"""Entity mentions in the texts of a sample, as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kg.linking.linker import Linker
from workbench.corpora.schema import FIELDS, links_among
from workbench.options.bounds import Count, Name, Share
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class LinkEntities:
    """Writes `spans` of the text, `caption_spans` of the captions and so on, and into `meta.linker` who put them there.

    Spans that were there before are replaced, or with `keep` stay, and of the linker's come those that overlap none.
    With `candidates`, a mention has that many entities at most, as spans of the same characters, the best first.
    `name` and `version` are the linker's.
    """

    name: Name
    version: Name
    min_score: Share = 0.0
    candidates: Count = 1
    keep: bool = False
    linker: Linker = field(kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, linker: Linker, min_score: float = 0.0, candidates: int = 1, keep: bool = False) -> LinkEntities:
        """The stage of a linker."""
        return cls(linker.name, linker.version, min_score, candidates, keep, linker=linker)

    @property
    def about(self) -> dict[str, Any]:
        """What is noted with the records and the corpus."""
        chosen = {"candidates": self.candidates, "keep": self.keep}
        return {"name": self.name, "version": self.version, "min_score": self.min_score, **chosen}

    def __call__(self, sample: Sample) -> Sample:
        linked: Sample = {**sample, "meta": {**sample.get("meta", {}), "linker": self.about}}
        for links in links_among(FIELDS):
            text = sample.get(links.spans_of or "")
            if text is not None:
                linked[links.name] = self._of(text, sample.get(links.name))
        return linked

    def _of(self, text: Any, given: Any) -> Any:
        """Of a text its spans, of several texts as many lists or names with theirs; `given` has those of before."""
        if isinstance(text, dict):
            return {name: self._spans(one, (given or {}).get(name)) for name, one in text.items()}
        if isinstance(text, str):
            return self._spans(text, given)
        return [self._spans(*each) for each in zip(text, given or [[]] * len(text), strict=True)]

    def _spans(self, text: str, given: Sequence[list[Any]] | None) -> list[list[Any]]:
        kept = list(given or ()) if self.keep else []
        found = [
            [start, end, entity, round(score, 4)]
            for start, end, entity, score in self.linker.link(text, self.min_score, self.candidates)
            if not any(start < span[1] and span[0] < end for span in kept)
        ]
        return sorted([*kept, *found], key=lambda span: span[:2]) if kept else found
