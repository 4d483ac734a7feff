"""Entity mentions in the texts of a sample, as a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kg.linking.linker import Link, Linker
from workbench.corpora.schema import FIELDS, Field, links_among
from workbench.corpora.values import Stretches
from workbench.options.bounds import Count, Name, Share
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class LinkEntities:
    """Writes `spans` of the text, `caption_spans` of the captions and so on, and into `meta.linker` who put them there.

    Spans that were there before are replaced, or with `keep` stay, and of the linker's come those that overlap none.
    With `candidates`, a mention has that many entities at most, as spans of the same characters, the best first. With
    `inside`, a field of stretches (`tags`, `marks`, `mention`), names are found there alone, and in its text alone.
    `name` and `version` are the linker's.
    """

    name: Name
    version: Name
    min_score: Share = 0.0
    candidates: Count = 1
    keep: bool = False
    inside: Name | None = None
    linker: Linker = field(kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, linker: Linker, min_score: float = 0.0, **options: Any) -> LinkEntities:
        """The stage of a linker."""
        return cls(linker.name, linker.version, min_score, **options, linker=linker)

    @property
    def about(self) -> dict[str, Any]:
        """What is noted with the records and the corpus."""
        chosen = {"candidates": self.candidates, "keep": self.keep, "inside": self.inside}
        return {"name": self.name, "version": self.version, "min_score": self.min_score, **chosen}

    def __call__(self, sample: Sample) -> Sample:
        linked: Sample = {**sample, "meta": {**sample.get("meta", {}), "linker": self.about}}
        for links in links_among(FIELDS):
            text = sample.get(links.spans_of or "")
            if text is not None:
                linked[links.name] = _each(self._spans, text, sample.get(links.name), self.stretches(sample, links))
        return linked

    def stretches(self, sample: Sample, links: Field) -> Any:
        """Where in the text that these links are of names are looked for, shaped as they are; None: everywhere."""
        if self.inside is None:
            return None
        chosen = FIELDS[self.inside]
        found = sample.get(self.inside) if chosen.spans_of == links.spans_of else None
        single = isinstance(chosen.value, Stretches) and chosen.value.single
        return ([found] if single else found) if found is not None else []

    def found(self, text: str, inside: Sequence[list[Any]] | None, min_score: float, candidates: int) -> list[Link]:
        """The links of the linker in one text, within the stretches that are given."""
        places = None if inside is None else [(stretch[0], stretch[1]) for stretch in inside]
        return self.linker.link(text, min_score, candidates, places)

    def _spans(
        self, text: str, given: Sequence[list[Any]] | None, inside: Sequence[list[Any]] | None
    ) -> list[list[Any]]:
        kept = list(given or ()) if self.keep else []
        found = [
            [start, end, entity, round(score, 4)]
            for start, end, entity, score in self.found(text, inside, self.min_score, self.candidates)
            if not any(start < span[1] and span[0] < end for span in kept)
        ]
        return sorted([*kept, *found], key=lambda span: span[:2]) if kept else found


def stretch_fields(names: Iterable[str]) -> list[str]:
    """Those of the fields that names may be looked for inside of: stretches of one text that is linked."""
    linked = {links.spans_of for links in links_among(FIELDS)}
    single = {name for name in linked if FIELDS[str(name)].value.type is str}
    return [name for name in names if name in FIELDS and FIELDS[name].spans_of in single and _marks(FIELDS[name])]


def _marks(field: Field) -> bool:
    return isinstance(field.value, Stretches)


def _each(make: Callable[[str, Any, Any], Any], text: Any, given: Any, inside: Any) -> Any:
    """Of a text what is made of it, of several texts as many lists or names with theirs; `given` has those of before.

    Fields that `inside` may name are of one text; other texts are asked for with no stretch, or with None.
    """
    if isinstance(text, dict):
        return {name: make(one, (given or {}).get(name), inside) for name, one in text.items()}
    if isinstance(text, str):
        return make(text, given, inside)
    return [make(one, spans, inside) for one, spans in zip(text, given or [[]] * len(text), strict=True)]
