"""`prepare link`: a corpus with entity links in its texts or captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.preparing.coverage import coverage
from pipelines.preparing.linkers import LinkerOptions, make_linker
from pipelines.stages import Stage
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Name, Share
from workbench.core.options.command import changed
from workbench.core.packages import extra
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.schema import fields_of, links_among
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.runs.stored_run import StoredFolder
from workbench.sequences.entities import GRAPHS, IdSpace, noted, spaces_in

if TYPE_CHECKING:
    from kg.linking.linker import Linker
    from pipelines.stages.candidate_ranking import RankCandidates

RANKED = 10
"""Candidates of a mention that a run orders."""


def link(
    corpus: Annotated[CorpusFolder, typer.Argument(help="A text or image-text corpus.", show_default=False)],
    options: WritingOptions,
    making: LinkerOptions,
    graph: Annotated[Path | None, typer.Option(help="Link to this triples corpus or graph store.")] = None,
    linker: Annotated[Path | None, typer.Option(help="A linker built by `prepare linker`, instead of --graph.")] = None,
    min_score: Annotated[Share, typer.Option(help="Minimum score of a link (0 to 1).")] = 0.0,
    candidates: Annotated[
        Count, typer.Option(help="Maximum number of candidate entities per mention; each becomes a span.")
    ] = 1,
    inside: Annotated[
        Name | None, typer.Option(help="Link only inside the spans of this field (tags, marks, mention, ...).")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep existing links; add links that overlap none of them.")
    ] = False,
    alongside: Annotated[
        bool, typer.Option("--alongside", help="Keep existing links to another graph; add all links to this one.")
    ] = False,
    supervise: Annotated[
        bool,
        typer.Option("--supervise", help="Existing links are correct: mark them among this linker's candidates."),
    ] = False,
    ranked_by: Annotated[
        StoredFolder | None,
        typer.Option(help="A run of `blink` that orders the linker's ten best candidates of each mention in a text."),
    ] = None,
    signs: Annotated[
        bool, typer.Option("--signs", help="Spaces only separate Chinese characters, as in tagging data sets.")
    ] = False,
) -> None:
    """Find the entities of a graph in texts and captions, and store them as character spans in a new corpus.

    Each record stores the linker's name and version. Each span stores its score: the estimated probability that a
    person would link these words to this entity. Existing spans are replaced, unless --keep, --alongside or --supervise
    is given. A saved linker has its own options: with --linker, the options that build a linker are refused (--case,
    --min-length, --skip, --common, --names, --knowledge-base, --anchors, --priors, --words, --context).

    Examples:

      workbench prepare link corpora/wiki --graph corpora/codex-s --output corpora/wiki-linked

      workbench prepare link corpora/coco --linker linkers/wikidata --min-score 0.5 -o corpora/coco-linked

      workbench prepare link corpora/ner --linker linkers/wikidata --inside tags -o corpora/ner-linked

      workbench prepare link corpora/wiki --linker linkers/wikidata --candidates 30 --supervise -o corpora/wiki-linked

      workbench prepare link corpora/wiki-linked --linker linkers/wordnet --candidates 30 --alongside -o corpora/both

      workbench prepare link corpora/wiki --graph corpora/codex-s --ranked-by runs/blink -o corpora/wiki-linked

      workbench prepare link corpora/medical-ner --graph corpora/medical --signs --words jieba -o corpora/ner-linked
    """
    opened = open_corpus(str(corpus))
    linkable = [str(field.spans_of) for field in links_among(fields_of(opened.kind))]
    if not any(text in opened.manifest.fields for text in linkable):
        raise WorkbenchError(
            f"{corpus} (kind {opened.kind}) has no text to link; needed: a corpus of texts, or of images with captions"
        )
    if graph is not None and linker is None:
        chosen = make_linker(graph, making)
    elif linker is not None and graph is None:
        _refuse_making(linker, making)
        chosen = _load(linker)
    else:
        raise WorkbenchError("give one of --graph (a triples corpus or graph store) and --linker (a saved linker)")
    with extra("kg"):
        from pipelines.stages.entity_links import LinkEntities, stretch_fields
    if inside is not None and inside not in (allowed := stretch_fields(opened.manifest.fields)):
        raise WorkbenchError(
            f"--inside {inside}: {corpus} has no spans of a text in a field of this name; allowed: "
            f"{', '.join(allowed) or 'none'}"
        )
    if supervise and not links_among(opened.manifest.fields):
        raise WorkbenchError(f"--supervise: {corpus} has no links; needed: a corpus with `spans`")
    given = _given(keep=keep, alongside=alongside, supervise=supervise)
    before = spaces_in(opened.manifest.about) if given in ("keep", "alongside") else []
    other = chosen.space is not None and bool(before) and not any(map(chosen.space.same, before))
    stage = LinkEntities.of(
        chosen,
        min_score,
        candidates=candidates if ranked_by is None else max(candidates, RANKED),
        given=given,
        inside=inside,
        signs=signs,
        other=", ".join(map(str, before)) if other else None,
    )
    ranking = _ranking(ranked_by, graph, given, candidates, opened.kind)
    linked_by = stage.about if ranking is None else ranking.noted(stage.about)
    about = {**opened.manifest.about, "linker": linked_by, GRAPHS: _graphs(before, chosen.space)}
    stages: tuple[Stage, ...] = (stage,) if ranking is None else (stage, ranking)
    options.prepare(Conversion(CorpusReader(), stages), [corpus], opened.kind, about=about)
    Terminal(stderr=True).print(coverage(Corpus.open(options.output), stage).table())


def _ranking(run: Path | None, graph: Path | None, given: str, most: int, kind: str) -> RankCandidates | None:
    """The stage of --ranked-by.

    Raises:
        WorkbenchError: it has no texts or no descriptions, or links that are kept would be ordered too.
    """
    if run is None:
        return None
    if graph is None or given in ("keep", "alongside") or kind != "text":
        raise WorkbenchError(
            f"--ranked-by {run} reads the descriptions of --graph, and orders the candidates of one linker in texts; "
            "give --graph and a corpus of texts, and leave out --keep and --alongside"
        )
    from pipelines.stages.candidate_ranking import RankCandidates, comparing
    from workbench.evaluation.scoring.evaluated_run import checkpoint_of

    comparing(str(run))
    return RankCandidates(str(run), str(checkpoint_of(run)), str(graph), most)


def _graphs(before: Sequence[IdSpace], space: IdSpace | None) -> list[dict[str, str] | None]:
    """The namespace of the entities that the linker links to."""
    return [noted(each) for each in dict.fromkeys((*before, *((space,) if space is not None else ())))]


def _given(**asked: bool) -> str:
    """What happens to existing links, by the flags."""
    said = [name for name, value in asked.items() if value]
    if len(said) > 1:
        raise WorkbenchError(f"--{' and --'.join(said)} contradict each other; give one of them")
    return said[0] if said else "replace"


def _refuse_making(linker: Path, making: LinkerOptions) -> None:
    """
    Raises:
        WorkbenchError: options that build a linker were given with a saved linker.
    """
    if given := changed(making):
        raise WorkbenchError(
            f"{', '.join(given)} cannot change the saved linker {linker}; give "
            f"{'it' if len(given) == 1 else 'them'} to `prepare linker`, or link with --graph instead of --linker"
        )


def _load(folder: Path) -> Linker:
    with extra("kg"):
        from kg.linking.linker import Linker
    return Linker.load(folder)
