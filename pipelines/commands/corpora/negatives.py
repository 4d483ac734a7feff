"""`prepare negatives`: pairs of texts with hard negatives, which a run has found."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.stages.hard_negatives import WriteNegatives, passage_of
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Name, Place, SomeShare
from workbench.core.options.command import Trust, WhichNetwork
from workbench.corpora.corpus import Corpus
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.runs.stored_run import StoredFolder

log = logging.getLogger(__name__)


def negatives(
    run: Annotated[StoredFolder, typer.Argument(help="A run that reads texts, or a checkpoint.", show_default=False)],
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a corpus of pairs.", show_default=False)],
    options: WritingOptions,
    documents: Annotated[
        Place | None, typer.Option(help="Corpus of the passages that are searched; default: those of CORPUS.")
    ] = None,
    most: Annotated[Count, typer.Option(help="Most negatives of a query.")] = 7,
    skip: Annotated[CountOrZero, typer.Option(help="Leave out so many of the best: they may be right, too.")] = 0,
    below: Annotated[
        SomeShare | None, typer.Option(help="Only passages with at most this share of the right one's score (0.95).")
    ] = None,
    pool: Annotated[Name | None, typer.Option(help="The vectors, as of `workbench encode`.")] = None,
    network: WhichNetwork = None,
    batch_size: Annotated[Count, typer.Option(help="Texts in a batch.")] = 64,
    trust: Trust = False,
) -> None:
    """Find hard negatives: the passages that a run ranks first for each query, without the right one.

    CORPUS has a query as `text` and its passage as `second`, or as the right one of `choices`. The new corpus has both
    as `choices`, the right one first (`answer` 0): the builder text_pair with `passages: choices` reads it, and so does
    the task choose, which trains a cross-encoder.

    Examples:

      workbench prepare negatives runs/e5 corpora/pairs --most 7 --below 0.95 --output corpora/pairs-hard
    """
    opened = open_corpus(str(corpus))
    samples = [sample for sample in opened if passage_of(sample) is not None and "text" in sample]
    if not samples:
        raise WorkbenchError(
            f"no record of {corpus} has a `text` with a `second`, or with `choices` and `answer`; it has "
            f"{', '.join(opened.manifest.fields)}"
        )
    from workbench.evaluation.analysis.text_search import Texts, TextVectors, hard_negatives
    from workbench.evaluation.scoring.evaluated_run import checkpoint_of
    from workbench.interop.run_or_checkpoint import load

    passages = [str(passage_of(sample)) for sample in samples]
    searched, other = [*dict.fromkeys(passages)], None
    if documents is not None:
        searched, other = Texts.of(Corpus.open(documents)).like(passages)
    loaded = load(run, trust=trust)
    vectors = TextVectors(loaded, loaded.model.network_name(network), pool, batch_size)
    queries = [str(sample["text"]) for sample in samples]
    found = hard_negatives(vectors, queries, passages, searched, most=most, skip=skip, below=below, other_form=other)
    of_key = {str(sample["key"]): texts for sample, texts in zip(samples, found, strict=True)}
    chosen: dict[str, Any] = {"most": most, "skip": skip, "below": below, "pool": vectors.pool}
    if documents is not None:
        chosen["documents"] = Corpus.open(documents).identity
    about = {"checkpoint": checkpoint_of(run), **chosen}
    log.info("%s: %.1f hard negatives for each of %d queries", run, sum(map(len, found)) / len(found), len(found))
    if without := sum(not texts for texts in found):
        log.warning("%d of %d queries have no hard negative; lower --skip or raise --below", without, len(found))
    stage = WriteNegatives(about, of_key)
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], opened.kind, about={**opened.manifest.about})
