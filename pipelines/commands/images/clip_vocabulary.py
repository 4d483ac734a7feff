"""`prepare clip-vocabulary`: visual tokens from the clip features of corpora, by hierarchical k-means."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
import typer
from annotated_types import Ge, Le

from pipelines.preparing.corpus_reader import open_corpus
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Seed
from workbench.corpora.corpus import Corpus
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.runs.output_places import OutputFile
from workbench.sequences.missing_fields import missing

log = logging.getLogger(__name__)
TOKENS_LIMIT = 1_000_000
Branches = Annotated[int, Ge(2), Le(100_000)]
Levels = Annotated[int, Ge(1), Le(12)]


def clip_vocabulary(
    corpora: Annotated[list[CorpusFolder], typer.Argument(help="Folders of corpora with clips.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    branches: Annotated[Branches, typer.Option(help="Clusters at every level.")] = 12,
    levels: Annotated[Levels, typer.Option(help="Levels of the tree.")] = 4,
    sample: Annotated[Count, typer.Option(help="Most clips to cluster, drawn from all.")] = 500_000,
    seed: Annotated[Seed, typer.Option(help="Seed of the sampled clips and of the initial clusters.")] = 0,
) -> None:
    """Cluster the features of clips; the leaves of the tree are visual tokens (VideoBERT: 12 at each of 4 levels).

    Examples:

      workbench prepare clip-vocabulary corpora/clips --output corpora/clip-vocabulary.safetensors

      workbench prepare clip-vocabulary corpora/clips --branches 8 --levels 2 --output corpora/small.safetensors
    """
    if branches**levels > TOKENS_LIMIT:
        raise WorkbenchError(
            f"{branches} clusters at each of {levels} levels are {branches**levels:,} tokens; the limit is "
            f"{TOKENS_LIMIT:,}"
        )
    opened = [open_corpus(str(place)) for place in corpora]
    backbone = _backbone(opened)
    from vision.video.clip_vocabulary import Vocabulary, sample_features

    features = sample_features(_features(opened), sample, seed)
    if branches**levels > len(features):
        log.warning(
            "%s tokens of %s clips: some tokens have no clip; use fewer --branches or --levels, or more clips",
            f"{branches**levels:,}",
            f"{len(features):,}",
        )
    made = Vocabulary.fit(features, branches, levels, backbone, seed)
    made.save(output)
    log.info("%s: %s tokens of %s clips, %s", output, f"{made.size:,}", f"{len(features):,}", made.identity)


def _backbone(corpora: Sequence[Corpus]) -> str:
    """The backbone that computed the clips of all corpora."""
    made = {str(corpus.manifest.about.get("backbone")): corpus.place for corpus in corpora}
    if len(made) > 1:
        found = "; ".join(f"{place}: {backbone}" for backbone, place in made.items())
        raise WorkbenchError(f"clips of several backbones cannot be clustered together ({found})")
    return next(iter(made))


def _features(corpora: Sequence[Corpus]) -> Iterator[np.ndarray]:
    for corpus in corpora:
        for sample in corpus:
            if "clips" not in sample:
                raise missing(sample, "clips")
            yield sample["clips"]["features"]
