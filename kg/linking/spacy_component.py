"""The linker as a component of a spaCy pipeline: `nlp.add_pipe("workbench_linker", config={"path": "linkers/codex"})`.

spaCy finds the component by its entry point (`spacy_factories`) where the workbench is installed; elsewhere importing
this module makes it known.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from kg.linking.linker import Linker
from workbench.core.errors import WorkbenchError

SPANS = "workbench_linker"


class LinkerComponent:
    """Sets `kb_id_` of entities, and adds the mentions that no entity overlaps to `doc.ents` with the label ENTITY.

    All mentions are in `doc.spans["workbench_linker"]`; `span._.link_score` is the linker's score. A mention whose
    ends are not ends of tokens is left out.
    """

    def __init__(self, path: str | None, label: str, min_score: float, linker: Linker | None = None) -> None:
        """`path` is that of a saved linker, read when the first text comes: a pipeline from disk brings its own."""
        self.path = path
        self.linker = linker
        self.label = label
        self.min_score = min_score

    def __call__(self, doc: Doc) -> Doc:
        """The same document, linked.

        Raises:
            WorkbenchError: the component has no linker, or there is none at its path.
        """
        if self.linker is None:
            if self.path is None:
                raise WorkbenchError(
                    'the component "workbench_linker" has no linker: give config={"path": FOLDER} to add_pipe, or set '
                    "its `linker`"
                )
            self.linker = Linker.load(self.path)
        found = []
        for start, end, entity, score in self.linker.link(doc.text, self.min_score):
            span = doc.char_span(start, end, label=self.label, kb_id=entity)
            if span is not None:
                span._.link_score = score
                found.append(span)
        doc.spans[SPANS] = found
        doc.ents = _merged(doc.ents, found)
        return doc

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the linker as part of a pipeline (`nlp.to_disk`)."""
        if self.linker is None and self.path is not None:
            self.linker = Linker.load(self.path)
        if self.linker is None or self.linker.path == Path(path):
            return
        if Linker.is_saved(path):  # spaCy writes over a pipeline that is there
            shutil.rmtree(path)
        self.linker.save(path)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> LinkerComponent:
        """Load the linker that `to_disk` saved."""
        if Linker.is_saved(path):
            self.linker = Linker.load(path)
        return self


@Language.factory(
    "workbench_linker",
    assigns=["doc.ents", "doc.spans", "token.ent_kb_id"],
    default_config={"path": None, "label": "ENTITY", "min_score": 0.0},
)
def make_component(nlp: Language, name: str, path: str | None, label: str, min_score: float) -> LinkerComponent:
    """The component for `nlp.add_pipe`.

    Args:
        path: folder of a saved linker.
        label: of the entities it adds.
        min_score: mentions of a smaller score are left out.
    """
    return LinkerComponent(path, label, min_score)


def _merged(entities: Sequence[Span], found: Sequence[Span]) -> list[Span]:
    """Entities that were there stay, with the id of a mention of the same extent; other mentions fill the gaps."""
    ids = {(span.start, span.end): span.kb_id for span in found}
    kept = [Span(e.doc, e.start, e.end, label=e.label, kb_id=ids.get((e.start, e.end), e.kb_id)) for e in entities]
    taken = {token for e in kept for token in range(e.start, e.end)}
    return filter_spans([*kept, *(s for s in found if taken.isdisjoint(range(s.start, s.end)))])


if not Span.has_extension("link_score"):
    Span.set_extension("link_score", default=None)
