"""The alignment of words and regions by optimal transport (runs with vision.wra)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rich.markup import escape

from vision.figures._pair import (
    ImageTextPair,
    ObjectiveName,
    Record,
    Records,
    RunFolder,
    Said,
    TaskName,
    read_pair,
)
from vision.objectives.wra import Wra, pairwise_cost, transport_plan
from workbench.core.options.command import Trust
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_objective
from workbench.interop.run_or_checkpoint import load
from workbench.report.figure_file import FigureFile, keep_figure

_BOXES = 8


def draw(
    run: RunFolder,
    corpus: Records,
    record: Record = 0,
    text: Said = None,
    task: TaskName = None,
    objective: ObjectiveName = None,
    output: FigureFile = None,
    trust: Trust = False,
) -> None:
    """Draw the transport plan from the words of a text to the regions of its image, and the regions with the largest
    share of a word.

    Examples:

      workbench show alignment runs/uniter corpora/flickr8k-regions --record 3
    """
    wanted = "train one with the objective vision.wra"
    opened = find_objective(load(run, trust=trust), run, Wra, wanted, task=task, objective=objective)
    pair = read_pair(opened, Corpus.open(corpus), record, text)
    plan = transport(opened, pair)
    caption = f"How much of each word goes to each region, 1 is a uniform share: {pair.text}"
    path = keep_figure(alignment_figure(pair, plan), run, "alignment", "Words and regions.", caption, output)
    Terminal().print(f"{escape(str(path))}: {escape(pair.text)}", highlight=False)


@torch.inference_mode()
def transport(run: EvaluatedRun, pair: ImageTextPair) -> np.ndarray:
    """The plan between words and regions of the image [words, cells], in units of a uniform share; sums over a word's
    tokens."""
    objective = run.objective.objective
    assert isinstance(objective, Wra)
    states = run.network(pair.batch)
    rows = [row for _, rows in pair.words for row in rows]
    words = states[objective.text][rows].float()
    regions = states[objective.image][torch.as_tensor(np.flatnonzero(pair.cells))].float()
    there = [torch.ones(1, len(part), dtype=torch.bool, device=part.device) for part in (words, regions)]
    cost, both = pairwise_cost(words[None], there[0], regions[None], there[1])
    plan = transport_plan(cost, both, objective.beta, objective.iterations)[0].cpu().numpy()
    ends = np.cumsum([len(rows) for _, rows in pair.words])[:-1]
    share = np.stack([part.mean(0) for part in np.split(plan, ends)])
    return share * len(words) * len(regions)


def alignment_figure(pair: ImageTextPair, plan: np.ndarray) -> Any:
    """The image with the boxes that have the largest share of a word, next to the whole plan."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 0.6 + max(3.6, 0.3 * len(pair.words))), layout="constrained")
    photo, table = figure.subplots(1, 2, width_ratios=(1, 1.25))
    width, height = pair.image.size
    photo.imshow(np.asarray(pair.image.convert("RGB")))
    photo.set_axis_off()
    if len(pair.words) > _BOXES:
        photo.set_title(f"the {_BOXES} words that favour one region most", fontsize=9)
    colours = colormaps["tab10"]
    best = plan.argmax(1)
    strongest = np.argsort(-plan.max(1), kind="stable")[:_BOXES]
    taken: dict[int, int] = {}
    for number, word in enumerate(strongest.tolist()):
        cell = int(best[word])
        x1, y1, x2, y2 = pair.boxes[cell] * [width, height, width, height]
        colour, above = colours(number % 10), taken.get(cell, 0)
        taken[cell] = above + 1
        photo.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, linewidth=2.2, edgecolor=colour))
        label = {"boxstyle": "round,pad=0.25", "facecolor": colour, "edgecolor": "none"}
        place = (x1 + 0.01 * width, y1 + (0.035 + 0.075 * above) * height)
        photo.text(*place, pair.words[word][0], color="white", fontsize=9, bbox=label, va="center")
    shown = table.imshow(plan, aspect="auto", cmap="magma_r", interpolation="nearest", vmin=0)
    table.set_yticks(range(len(pair.words)), [name for name, _ in pair.words])
    table.xaxis.set_major_locator(MaxNLocator(integer=True))
    table.set_xlabel("regions, by number")
    for spine in table.spines.values():
        spine.set_visible(False)
    figure.colorbar(shown, ax=table, fraction=0.04, pad=0.02, label="of a uniform share")
    return figure
