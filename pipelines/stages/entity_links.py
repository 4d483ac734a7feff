"""The stage that links entity mentions in the texts of a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from kg.linking.linker import Link, Linker
from kg.linking.split_text import SplitText
from kg.sequences.linked_mentions import RIGHT
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Name, Share
from workbench.corpora.schema.field_values import Stretches
from workbench.corpora.schema.schema import FIELDS, SchemaField, links_among
from workbench.sequences.sequence import Sample

Given = Literal["replace", "keep", "alongside", "supervise"]


@dataclass(frozen=True)
class LinkEntities:
    """Writes `spans` of the text, `caption_spans` of the captions and so on, and the linker into `meta.linker`.

    `given` says what happens to existing spans. `replace` removes them. `keep` keeps them, and adds the linker's spans
    that overlap none. `alongside` keeps them, of another graph, next to all of the linker's. `supervise` marks each of
    the linker's spans with the same characters: whether its entity is the right one
    (`kg.sequences.linked_mentions.RIGHT`).

    With `candidates`, a mention has at most that many entities, as spans of the same characters, the best first. With
    `inside`, a field of spans (`tags`, `marks`, `mention`), names are searched for only there, and only in its text.
    With `signs`, spaces only separate Chinese characters, as in tagging data sets. `name` and `version` are the
    linker's. `other` names the graph whose links are kept, where the linker's is another. The two graphs must not share
    an id, as its meaning would be ambiguous.
    """

    name: Name
    version: Name
    min_score: Share = 0.0
    candidates: Count = 1
    given: Given = "replace"
    inside: Name | None = None
    signs: bool = False
    other: Name | None = None
    linker: Linker = field(kw_only=True, compare=False, repr=False)
    batch_size: ClassVar[int] = 128

    @classmethod
    def of(cls, linker: Linker, min_score: float = 0.0, **options: Any) -> LinkEntities:
        """The stage of a linker."""
        return cls(linker.name, linker.version, min_score, **options, linker=linker)

    @property
    def about(self) -> dict[str, Any]:
        """The linker's identity, stored with the records and the corpus."""
        chosen = {"candidates": self.candidates, "given": self.given, "inside": self.inside, "signs": self.signs}
        return {"name": self.name, "version": self.version, "min_score": self.min_score, **chosen}

    def __call__(self, sample: Sample) -> Sample:
        return self.batch([sample])[0]

    def batch(self, samples: list[Sample]) -> list[Sample]:
        """The samples with links, which are found in all their texts at once."""
        texts: list[tuple[str, Sequence[list[Any]] | None]] = []
        for sample in samples:
            self._linked(sample, lambda text, _, inside: texts.append((text, inside)))
        found: Iterator[list[Link]]
        if self.signs or self.inside is not None:
            found = (self.found(text, inside, self.min_score, self.candidates) for text, inside in texts)
        else:
            found = self.linker.link_many((text for text, _ in texts), self.min_score, self.candidates)
        return [self._linked(sample, lambda _, before, __: self._spans(next(found), before)) for sample in samples]

    def _linked(self, sample: Sample, make: Callable[[str, Any, Any], Any]) -> Sample:
        """The sample with `make` of each text as its links."""
        linked: Sample = {**sample, "meta": {**sample.get("meta", {}), "linker": self.about}}
        for links in links_among(FIELDS):
            text = sample.get(links.spans_of or "")
            if text is not None:
                linked[links.name] = _each(make, text, sample.get(links.name), self.stretches(sample, links))
        return linked

    def stretches(self, sample: Sample, links: SchemaField) -> Any:
        """The spans inside of which names are searched for, one list a text of the field; None: everywhere."""
        if self.inside is None:
            return None
        chosen = FIELDS[self.inside]
        found = sample.get(self.inside) if chosen.spans_of == links.spans_of else None
        single = isinstance(chosen.value, Stretches) and chosen.value.single
        return ([found] if single else found) if found is not None else []

    def knows(self, entity: str) -> bool:
        """Whether the linker has an entity of this id."""
        return self.linker.knows(entity)

    def found(self, text: str, inside: Sequence[list[Any]] | None, min_score: float, candidates: int) -> list[Link]:
        """The linker's links in one text, inside the given spans."""
        places = None if inside is None else [(stretch[0], stretch[1]) for stretch in inside]
        if not self.signs:
            return self.linker.link(text, min_score, candidates, places)
        separated = SplitText(text)
        if places is not None:
            places = [separated.in_joined(*place) for place in places]
        links = self.linker.link(separated.joined, min_score, candidates, places)
        return [(*separated.in_text(start, end), entity, score) for start, end, entity, score in links]

    def _spans(self, links: list[Link], given: Sequence[list[Any]] | None) -> list[list[Any]]:
        before = list(given or ())
        if self.other:
            self._check_apart(before)
        found: list[list[Any]] = [[start, end, entity, round(score, 4)] for start, end, entity, score in links]
        if self.given == "supervise":
            return _reported(found, before)
        if self.given == "keep":
            found = [link for link in found if not any(link[0] < span[1] and span[0] < link[1] for span in before)]
        kept = [] if self.given == "replace" else before
        return sorted([*kept, *found], key=lambda span: span[:2]) if kept else found

    def _check_apart(self, before: Sequence[list[Any]]) -> None:
        """
        Raises:
            WorkbenchError: an entity of the other graph has the same id as one of the linker's.
        """
        alike = next((span[2] for span in before if self.knows(span[2])), None)
        if alike is not None:
            raise WorkbenchError(
                f"the texts are linked to the graph {self.other}, the linker's graph is {self.linker.space}; the id "
                f"{alike!r} is in both with different meanings. Give the ids of "
                "one graph a prefix; or, if both graphs mean the same entities, prepare both with one `workbench "
                "prepare triples --namespace NAME`"
            )


def _reported(found: list[list[Any]], right: Sequence[list[Any]]) -> list[list[Any]]:
    """The spans; those with the characters of a right one get the label whether their entity is the right one."""
    meant: dict[tuple[int, int], set[str]] = {}
    for start, end, entity, *_ in right:
        meant.setdefault((start, end), set()).add(entity)
    return [
        [*span, {RIGHT: int(span[2] in meant[place])}] if (place := (span[0], span[1])) in meant else span
        for span in found
    ]


def stretch_fields(names: Iterable[str]) -> list[str]:
    """The spans of the fields that limit the search, for a text with links."""
    linked = {links.spans_of for links in links_among(FIELDS)}
    single = {name for name in linked if FIELDS[str(name)].value.type is str}
    return [name for name in names if name in FIELDS and FIELDS[name].spans_of in single and _marks(FIELDS[name])]


def _marks(field: SchemaField) -> bool:
    return isinstance(field.value, Stretches)


def _each(make: Callable[[str, Any, Any], Any], text: Any, given: Any, inside: Any) -> Any:
    """`function` applied to a text, a list of texts or a mapping of texts, with the shape kept; `given` has the earlier
    spans.

    Fields that `inside` may name belong to one text; for other texts the spans are empty, or None.
    """
    if isinstance(text, dict):
        return {name: make(one, (given or {}).get(name), inside) for name, one in text.items()}
    if isinstance(text, str):
        return make(text, given, inside)
    return [make(one, spans, inside) for one, spans in zip(text, given or [[]] * len(text), strict=True)]
