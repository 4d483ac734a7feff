"""Panels of a report on captions, image-text retrieval, visual question answering and zero-shot classification."""

from __future__ import annotations

from workbench.evaluation.scoring.example_images import shown_image
from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def written(run: Run) -> str | None:
    """Images and their captions. An example has image, prediction, references."""
    return example_panel(run, "caption", "Images and captions", _captioned)


def _captioned(run: Run, example: Record) -> str:
    people = "".join(f'<p class="quiet">{escape(text)}</p>' for text in example["references"])
    said = example["prediction"] or "nothing"
    return f"{shown_image(run, example, said)}<p><b>{escape(said)}</b></p>{people}"


def found(run: Run) -> str | None:
    """Captions with the image that each ranks first. An example has caption, image (the first one; None for a video),
    key (of that), rank (of the right one)."""
    return example_panel(run, "retrieval", "Captions and the images found", _caption)


def lost(run: Run) -> str | None:
    """The captions that rank their image last. An example has also `right`, the right image, and `right_key`."""
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


def answered(run: Run) -> str | None:
    """Questions with their images. An example has image, question, prediction, answers, accuracy (0..1)."""
    return example_panel(run, "vqa", "Questions and predictions", _question)


def failed(run: Run) -> str | None:
    """The wrong answers with the highest confidence. An example has also a confidence (0..1)."""
    return example_panel(run, "vqa", "Wrong answers with the highest confidence", _question, "failures")


def _question(run: Run, example: Record) -> str:
    right = float(example.get("accuracy", 0.0)) >= 0.5
    answers = ", ".join(dict.fromkeys(str(answer) for answer in example.get("answers", []) if answer))
    sure = f" at {100 * float(example['confidence']):.0f} %" if "confidence" in example else ""
    return (
        f"{shown_image(run, example, example['question'])}<p>{escape(example['question'])}</p>"
        f'<p>{verdict(example["prediction"] + sure, right)} <span class="quiet">{escape(answers)}</span></p>'
    )


def classified(run: Run) -> str | None:
    """Images and their classes. An example has image, prediction, label."""
    return example_panel(run, "zero-shot", "Images and their predicted classes", _classified)


def _classified(run: Run, example: Record) -> str:
    right = example["prediction"] == example["label"]
    gold = "" if right else f'<p class="quiet">{escape(example["label"])}</p>'
    return f"{shown_image(run, example, example['label'])}<p>{verdict(example['prediction'], right)}</p>{gold}"
