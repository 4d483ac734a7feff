"""Synthetic runs with everything that a report can show."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from kg.evaluation.facts.neighbourhood import draw_neighbourhood
from vision.evaluation.vqa.word_attention import draw_attention
from workbench.report.examples import save_example_image

RECIPE = """
name: {name}
description: {description}
control: {control}
seed: 0
paper: {{title: "K-BERT: Enabling Language Representation with Knowledge Graph", url: arxiv.org/abs/1909.07606}}
tasks:
  text: {{corpora: {{corpora/world-text: 1.0}}, sequence: {{builder: document}}, objectives: [{{objective: mlm}}]}}
train: {{max_steps: 600, global_batch_size: 64, micro_batch_size: 32, lr: 0.003}}
"""
NUMBERS = {"accuracy": 0.9960, "mean_reciprocal_rank": 0.9978, "mean_rank": 1.02}


def figure(seed: int, side: int = 64) -> Image.Image:
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (side, side), (170, 170, 170))
    draw = ImageDraw.Draw(image)
    for colour in ((214, 39, 40), (40, 80, 200), (44, 140, 60)):
        x, y = rng.integers(4, side - 20, 2).tolist()
        draw.ellipse((x, y, x + 16, y + 16), fill=colour)
    return image


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def write_run(folder: Path, control: str | None = None, shift: float = 0.0, description: str = "") -> Path:
    folder.mkdir(parents=True)
    words = description or "Reads triples that are injected behind the entities of a sentence."
    text = RECIPE.format(name=folder.name, control=control or "null", description=json.dumps(words))
    (folder / "recipe.yaml").write_text(text)
    rng = np.random.default_rng(len(folder.name))
    lines: list[dict[str, Any]] = []
    for step in range(5, 605, 5):
        loss = 1.2 + shift + 5.5 * math.exp(-step / 130) + 0.07 * rng.normal()
        line = {"step": step, "mlm/loss": loss, "nsp/loss": 0.2 + 0.5 * math.exp(-step / 60) + 0.02 * rng.normal()}
        line |= {"tokens_per_second": 9000 + 400 * rng.normal(), "samples_per_second": 260 + 9 * rng.normal()}
        lines.append(line | {"seconds": step * 0.13, "memory_gib": 0.71})
        if step % 100 == 0:
            lines.append({"step": step, "held_out/mlm/loss": loss + 0.1, "held_out/nsp/loss": 0.3})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


PANELS = {
    "facts": "kg.evaluation.task_panels:filled",
    "entity-typing": "kg.evaluation.task_panels:types",
    "vqa": "vision.evaluation.task_panels:answered",
    "retrieval": "vision.evaluation.task_panels:found",
}


def write_evaluation(folder: Path, name: str, **record: Any) -> None:
    """One evaluation file; a task that ships brings its own panel."""
    record = {"panels": [PANELS[record["task"]]] if record["task"] in PANELS else [], **record}
    (folder / "evaluations").mkdir(exist_ok=True)
    (folder / "evaluations" / f"{name}.json").write_text(json.dumps(record))


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """A text run with figures and examples, the same under a control, and an image-text run."""
    kbert = write_run(tmp_path / "k-bert")
    example = {"text": "Lyon is a city in France.", "mask": [18, 24], "object": "France"}
    write_evaluation(
        kbert,
        "facts",
        task="facts",
        numbers=NUMBERS,
        baselines={"chance": {"accuracy": 1 / 213}, "most frequent": {"accuracy": 0.0113}},
        counts={"facts": 745, "candidates": 213},
        inputs={"facts": "facts_heldout.jsonl sha256 3f9a1c…"},
        examples=[
            {**example, "prediction": "France", "rank": 1},
            {**example, "text": "Napier lies in New Zealand.", "mask": [15, 26], "prediction": "Fiji", "rank": 3},
        ],
    )
    labels = {"FR": "France", "lyon": "Lyon", "EUR": "Euro", "fr": "French", "paris": "Paris", "borders": "borders"}
    triples = [
        ("lyon", "country", "FR"),
        ("FR", "currency", "EUR"),
        ("FR", "language", "fr"),
        ("FR", "capital", "paris"),
    ]
    triples += [("FR", "borders", name) for name in ("Germany", "Spain", "Italy", "Belgium", "Switzerland", "Monaco")]
    draw_neighbourhood(kbert, "france", "FR", [*triples, ("paris", "capital of", "FR")], labels)
    shuffled = write_run(tmp_path / "k-bert-shuffled", control="shuffled-kg", shift=0.4)
    write_evaluation(shuffled, "facts", task="facts", numbers={**NUMBERS, "accuracy": 0.0067, "mean_rank": 98.4})
    vqa = write_run(tmp_path / "uniter-demo", description="One stream of words and patches.")
    questions = []
    for n in range(5):
        image = save_example_image(vqa, f"q{n}.png", encoded(figure(n)))
        found = {"prediction": "red" if n != 2 else "blue", "answers": ["red"], "accuracy": float(n != 2)}
        questions.append({"image": image, "question": "what color is the circle?", **found})
    types = {f"accuracy/question_type/{t}": 90.0 + i for i, t in enumerate(["is there", "what color", "what shape"])}
    write_evaluation(
        vqa,
        "vqa",
        task="vqa",
        variant="single_answer",
        numbers={"accuracy": 93.41, "accuracy/answer_type/yes/no": 91.2, "accuracy/answer_type/other": 97.9, **types},
        baselines={"majority answer": {"accuracy": 36.9}},
        counts={"questions": 9673, "images": 1000},
        examples=questions,
    )
    recalls = {f"{side}_retrieval/r{k}": 0.4 + k / 20 for side in ("image", "text") for k in (1, 5, 10)}
    write_evaluation(
        vqa,
        "retrieval",
        task="retrieval",
        numbers={**recalls, "image_retrieval/median_rank": 2.0, "text_retrieval/median_rank": 1.0, "r_mean": 0.67},
        baselines={"chance": dict.fromkeys(recalls, 0.01)},
        examples=[{"image": questions[0]["image"], "caption": "A red circle & a blue one.", "rank": 1}],
    )
    boxes = np.array([[x / 4, y / 4, (x + 1) / 4, (y + 1) / 4] for y in range(4) for x in range(4)])
    weights = np.random.default_rng(0).dirichlet(np.full(16, 0.3), 4)
    draw_attention(vqa, "attention", figure(0), boxes, ["what", "color", "the", "circle"], weights)
    return [kbert, shuffled, vqa]


@pytest.fixture
def make_run() -> Any:
    """`make_run(folder, ...)` writes a run with metrics; see `write_run`."""
    return write_run


@pytest.fixture
def add_evaluation() -> Any:
    """`add_evaluation(folder, name, **record)` writes one evaluation file."""
    return write_evaluation
