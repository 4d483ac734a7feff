"""The command-line options of the tasks search and vectors. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.core.options.bounds import Name, Place, Title
from workbench.evaluation.options import Scoring


@dataclass(frozen=True, kw_only=True)
class SearchScoring(Scoring):
    """nDCG@10, recall@100 and MRR@10 of documents ranked by vectors, compared with BM25 and a random order.

    CORPUS holds the queries as texts. RUN is any model that reads texts: the vectors are those of `workbench encode`,
    and are compared by their products (cosines where no objective makes them). The id of a record is its `_id` or `id`
    of the raw data, or else its key. A title of the raw data is put before a document. BEIR's folders are prepared by
    `prepare text corpus.jsonl` and `prepare text queries.jsonl`.

    Examples:

      workbench evaluate search runs/e5 corpora/queries --documents corpora/documents --judgments qrels/test.tsv
    """

    documents: Annotated[Place, typer.Option(help="Corpus of the documents.", show_default=False)]
    judgments: Annotated[
        Path, typer.Option(help="Lines QUERY DOCUMENT GRADE (BEIR), or QUERY 0 DOCUMENT GRADE.", show_default=False)
    ]
    pool: Annotated[
        Name | None,
        typer.Option(help="mean, summary, pooled or an objective with vectors; default: such an objective, or mean."),
    ] = None
    query_prefix: Annotated[
        Title | None, typer.Option(help="Text before each query; default: that of the run's builder.")
    ] = None
    document_prefix: Annotated[
        Title | None, typer.Option(help="Text before each document; default: that of the run's builder.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class VectorsScoring(Scoring):
    """Correlation of the cosines of words with people's ratings, compared with their spelling, and analogies.

    CORPUS holds pairs of words, `text` and `second`, with a number as label. RUN is any model that embeds tokens: the
    vectors are those of its embedding, without its layers. Nearest words are in the report.

    Example:

      workbench evaluate vectors runs/word2vec corpora/wordsim --analogies questions-words.txt
    """

    label: Annotated[Name | None, typer.Option(help="The label with the rating; default: the only one.")] = None
    analogies: Annotated[
        Path | None, typer.Option(help="Lines of four words: Oslo Norway Paris France; headings begin with a colon.")
    ] = None
