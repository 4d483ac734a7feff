"""easy-VQA (Victor Zhou, https://github.com/vzhou842/easy-VQA) as raw files in the layout of VQA v2 exports.

`questions_<split>.jsonl` (question_id, image_id, question, question_type, answer_type, answer, answers, image) next to
`images_<split>/`. One annotator: `answers` has one string. The question types are derived from the answer and the
wording, since the package has none.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipelines.demo.row_files import write_jsonl
from workbench.core.errors import WorkbenchError

SHAPES = frozenset({"circle", "rectangle", "triangle"})
_PROVENANCE = {
    "source": "easy-vqa",
    "url": "https://github.com/vzhou842/easy-VQA",
    "license": "not stated in the package",
}
TRAIN, TEST = 2000, 500
_TEST_OFFSET = 1_000_000  # keeps the ids of the two splits apart


def write_easy_vqa(folder: Path, train: int | None = TRAIN, test: int | None = TEST) -> dict[str, int]:
    """Export the first images of both splits with all their questions; returns the number of each.

    Args:
        train, test: number of images; None for all (4,000 and 1,000).

    Raises:
        WorkbenchError: the package is not installed.
    """
    try:
        import easy_vqa
    except ImportError as error:
        raise WorkbenchError(
            "the demo's questions need the package easy-vqa: pip install 'pretraining-workbench[demo]'"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    sources = {
        "train": (easy_vqa.get_train_questions(), easy_vqa.get_train_image_paths(), 0, train),
        "test": (easy_vqa.get_test_questions(), easy_vqa.get_test_image_paths(), _TEST_OFFSET, test),
    }
    for split, (questions, paths, offset, count) in sources.items():
        names = _copy_images(dict(sorted(paths.items())[:count]), folder / f"images_{split}", split)
        asked = enumerate(row for row in zip(*questions, strict=True) if row[2] in names)
        lines = [_line(offset + n, text, answer, image, names, offset) for n, (text, answer, image) in asked]
        counts[f"images_{split}"] = len(names)
        counts[f"questions_{split}"] = write_jsonl(folder / f"questions_{split}.jsonl", lines)
    return counts


def question_type(question: str, answer: str) -> tuple[str, str]:
    """(question type, answer type) of an easy-VQA question."""
    if answer in ("yes", "no"):
        negated = " not " in f" {question} " or " no " in f" {question} "
        return ("is there not" if negated else "is there"), "yes/no"
    return ("what shape" if answer in SHAPES else "what color"), "other"


def _copy_images(paths: dict[int, str], folder: Path, split: str) -> dict[int, str]:
    folder.mkdir(exist_ok=True)
    names = {}
    for number, path in sorted(paths.items()):
        names[number] = f"easy_vqa_{split}_{number:05d}.png"
        shutil.copyfile(path, folder / names[number])
    return names


def _line(number: int, question: str, answer: str, image: int, names: dict[int, str], offset: int) -> dict[str, Any]:
    kind, answer_kind = question_type(question, answer)
    return {
        "question_id": number,
        "image_id": offset + image,
        "question": question,
        "question_type": kind,
        "answer_type": answer_kind,
        "answer": answer,
        "answers": [answer],
        "image": names[image],
        **_PROVENANCE,
    }
