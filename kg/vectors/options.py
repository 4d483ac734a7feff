"""How entity vectors come about: the options of `prepare vectors`, which are recorded with the vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kg.vectors.formats.format_finder import FormatName
from workbench.core.options.bounds import Count, LearningRate, Name, Seed, Size


@dataclass(frozen=True, kw_only=True)
class VectorOptions:
    """An embedding model of pykeen and its training."""

    model: Annotated[Name, typer.Option(help="TransE, RotatE, DistMult, ... (pykeen's names).")] = "TransE"
    dim: Annotated[Size, typer.Option(help="Size of the vectors.")] = 100
    epochs: Annotated[Count, typer.Option(help="Passes over the triples.")] = 50
    batch_size: Annotated[Count, typer.Option(help="Triples per step.")] = 1024
    lr: Annotated[LearningRate, typer.Option(help="Learning rate of Adam.")] = 0.01
    negatives: Annotated[Size, typer.Option(help="False triples for each true one.")] = 16
    inverse: Annotated[
        bool, typer.Option("--inverse", help="Train on (t, r inverse, h) too, with a relation of its own.")
    ] = False
    loss: Annotated[Name, typer.Option(help="nssa, marginranking, softplus, ... (pykeen's names).")] = "nssa"
    check_every: Annotated[Count, typer.Option(help="Epochs between two looks at --valid.")] = 10
    patience: Annotated[Count, typer.Option(help="Looks without a better MRR after which training ends.")] = 3
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Options for properties that files of pretrained vectors do not state."""

    format: Annotated[FormatName | None, typer.Option(help="Of --from; default: as it looks.", show_default=False)] = (
        None
    )
    ids: Annotated[
        Path | None, typer.Option(help="Numbers the rows of --from; default: the usual name next to it.")
    ] = None
    keys: Annotated[
        Path | None, typer.Option(help="Which key of --from is which entity: key and id, separated by a tab.")
    ] = None
    map_to: Annotated[
        Path | None, typer.Option(help="A run or released code into whose words' space --from is mapped (E-BERT).")
    ] = None
