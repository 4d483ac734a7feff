"""The command `workbench encode`. Its inputs are checked before torch is loaded."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from workbench.core.options.bounds import Count, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.corpora.stored_corpus import CorpusOrFile
from workbench.evaluation.scoring.inputs import input_corpus
from workbench.interop.checkpoint_files import check_place
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder


def encode(
    run: Annotated[StoredFolder, typer.Argument(help="The run, or a checkpoint: a folder, a URL or package:NAME.")],
    source: Annotated[
        CorpusOrFile, typer.Argument(metavar="INPUT", help="A text file with one text a line, or a corpus; also a URL.")
    ],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="The .safetensors file to write.")],
    stream: Annotated[Word, typer.Option(help="The stream whose vectors are computed: text or image.")] = "text",
    pool: Annotated[
        Word, typer.Option(help="mean, summary ([CLS]), pooled, or the name of an objective with vectors (itc).")
    ] = "mean",
    network: WhichNetwork = None,
    batch_size: Annotated[Count, typer.Option(help="Samples per batch.")] = 64,
    limit: Annotated[Count | None, typer.Option(help="Only the first samples.")] = None,
    trust: Trust = False,
) -> None:
    """Compute vectors of texts or images with a trained model.

    The file holds `vectors` [samples, size]. Its metadata holds the keys; the keys of a text file are line numbers. An
    image-text corpus yields the vectors of its images, or with --stream text those of the first caption of each image.

    Examples:

      workbench encode runs/bert sentences.txt --output vectors.safetensors

      workbench encode runs/clip corpora/flickr-dev --stream image --pool itc --output images.safetensors
    """
    check_place(run)
    input_corpus(source)
    from workbench.evaluation.analysis.encoding import encode_file

    count, size = encode_file(
        run,
        source,
        output,
        stream=stream,
        pool=pool,
        network=network,
        batch_size=batch_size,
        limit=limit,
        trust=trust,
    )
    Terminal().print(f"{escape(str(output))}: {count:,} vectors of size {size}", highlight=False)
