"""The attention of a text's words to its image."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
from rich.markup import escape

from vision.evaluation.vqa.word_attention import attention_figure, attention_to_regions
from vision.figures._pair import (
    ImageTextPair,
    Record,
    Records,
    RunFolder,
    Said,
    TaskName,
    read_pair,
    reads_images,
)
from workbench.core.errors import unknown
from workbench.core.options.bounds import Count, Name
from workbench.core.options.command import Trust
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import find_fitting_objective
from workbench.interop.run_or_checkpoint import load
from workbench.report.figure_file import FigureFile, keep_figure


def draw(
    run: RunFolder,
    corpus: Records,
    word: Annotated[list[Name] | None, typer.Option(help="A word of the text; repeatable. Default: all words.")] = None,
    record: Record = 0,
    text: Said = None,
    task: TaskName = None,
    layers: Annotated[Count | None, typer.Option(help="Number of the last layers; default: all.")] = None,
    output: FigureFile = None,
    trust: Trust = False,
) -> None:
    """Draw the attention from words to the patches or regions of their image: the mean over heads and layers.

    Examples:

      workbench show attention runs/uniter corpora/flickr8k-dev --word dog --word ball

      workbench show attention runs/uniter-vqa corpora/vqa-dev --record 7 --output where.png
    """
    opened = find_fitting_objective(
        load(run, trust=trust),
        run,
        reads_images,
        "a builder of captions or questions",
        "take one",
        task=task,
        any_head=True,
    )
    pair = read_pair(opened, Corpus.open(corpus), record, text)
    weights = pair.of_words(attention_to_regions(opened.network, pair.batch, 0, layers))
    chosen = places_of(word or (), pair)
    named = [pair.words[place][0] for place in chosen]
    figure = attention_figure(pair.image, pair.boxes, named, weights[chosen])
    path = keep_figure(
        figure,
        run,
        "attention-of-words",
        "Attention of words.",
        f"From the least (grey) to the most attention (red) of each word: {pair.text}",
        output,
    )
    Terminal().print(f"{escape(str(path))}: {escape(pair.text)}", highlight=False)


def places_of(words: list[str] | tuple[str, ...], pair: ImageTextPair) -> np.ndarray:
    """The places of words in the text; all of them if none is named.

    Raises:
        WorkbenchError: the text has no such word.
    """
    known = [name.lower() for name, _ in pair.words]
    for word in words:
        if word.lower() not in known:
            raise unknown("word", word, dict.fromkeys(known), f"the text {pair.text!r}")
    wanted = {word.lower() for word in words} or {*known}
    return np.array([place for place, name in enumerate(known) if name in wanted])
