"""What a report shows of image-text retrieval: captions with the images found."""

from __future__ import annotations

from workbench.evaluation.examples import shown_image
from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def found(run: Run) -> str | None:
    """Captions with the image found for them. An example has caption, image (the first found; None of a film),
    key (of that), rank (of the right)."""
    return example_panel(run, "retrieval", "Captions and the images found", _caption)


def lost(run: Run) -> str | None:
    """The captions whose image is found last. An example has also `right`, the image that should have been found,
    and `right_key`."""
    return example_panel(run, "retrieval", "Furthest from their image", _lost, "failures")


def _lost(run: Run, example: Record) -> str:
    right = shown_image(run, {"image": example.get("right")}, "the right image") or escape(example.get("right_key", ""))
    return f'{_caption(run, example)}<p class="quiet">the right image:</p>{right}'


def _caption(run: Run, example: Record) -> str:
    rank = int(example["rank"])
    shown = shown_image(run, example, example["caption"]) or escape(example.get("key", ""))
    return (
        f"{shown}<p>{escape(example['caption'])}</p>"
        f"<p>{verdict('found first' if rank == 1 else f'the right image is at place {rank:,}', rank == 1)}</p>"
    )
