"""The command `workbench encode`. Its inputs are checked before torch is loaded."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from workbench.core.options.bounds import Count, Processes, Word
from workbench.core.options.command import Address, EngineName, Trust, WhichNetwork
from workbench.core.packages import library
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
        Word | None,
        typer.Option(
            help="mean, summary ([CLS]), pooled, or the name of an objective with vectors (itc); default: such an "
            "objective, or else mean."
        ),
    ] = None,
    network: WhichNetwork = None,
    batch_size: Annotated[Count, typer.Option(help="Samples per batch.")] = 64,
    limit: Annotated[Count | None, typer.Option(help="Only the first samples.")] = None,
    engine: EngineName = "local",
    workers: Annotated[
        Processes, typer.Option(help="Processes; 0 = one per core (of the Ray cluster, or per GPU).")
    ] = 1,
    address: Address = None,
    trust: Trust = False,
) -> None:
    """Compute vectors of texts or images with a trained model.

    The file holds `vectors` [samples, size]. Its metadata holds the keys; the keys of a text file are line numbers. An
    image-text corpus yields the vectors of its images, or with --stream text those of the first caption of each image.

    Examples:

      workbench encode runs/bert sentences.txt --output vectors.safetensors

      workbench encode runs/clip corpora/flickr-dev --stream image --output images.safetensors

      workbench encode runs/bert corpora/wiki --engine ray --address auto --workers 0 --output vectors.safetensors
    """
    check_place(run)
    input_corpus(source)
    engines = library("pipelines.preparing.engines.ray_core", "text", "engines")
    chosen = engines.chosen_engine(engine, workers, address)
    from workbench.evaluation.analysis.encoding import EncodeTask

    encoding = EncodeTask(run, source, stream, pool, network, batch_size, limit, trust)
    count, size = encoding.write(output, chosen)
    Terminal().print(f"{escape(str(output))}: {count:,} vectors of size {size}", highlight=False)
