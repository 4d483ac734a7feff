"""Entity mentions in the texts of a sample, as a stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kg.linking.linker import Linker
from workbench.corpora.schema import FIELDS, links_among
from workbench.options.bounds import Name, Share
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class LinkEntities:
    """Writes `spans` of the text, `caption_spans` of the captions and so on, and into `meta.linker` who put them there.

    Spans that were there before are replaced. `name` and `version` are the linker's.
    """

    name: Name
    version: Name
    min_score: Share = 0.0
    linker: Linker = field(kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, linker: Linker, min_score: float = 0.0) -> LinkEntities:
        """The stage of a linker."""
        return cls(linker.name, linker.version, min_score, linker=linker)

    @property
    def about(self) -> dict[str, Any]:
        """What is noted with the records and the corpus."""
        return {"name": self.name, "version": self.version, "min_score": self.min_score}

    def __call__(self, sample: Sample) -> Sample:
        linked: Sample = {**sample, "meta": {**sample.get("meta", {}), "linker": self.about}}
        for links in links_among(FIELDS):
            text = sample.get(links.spans_of or "")
            if text is not None:
                linked[links.name] = self._of(text)
        return linked

    def _of(self, text: Any) -> Any:
        """Of a text its spans, of several texts as many lists or names with theirs."""
        if isinstance(text, dict):
            return {name: self._spans(one) for name, one in text.items()}
        return self._spans(text) if isinstance(text, str) else [self._spans(one) for one in text]

    def _spans(self, text: str) -> list[list[Any]]:
        return [
            [start, end, entity, round(score, 4)]
            for start, end, entity, score in self.linker.link(text, self.min_score)
        ]
