"""A record's text with its image as inputs of a run: the words with their rows, the regions with their boxes; and
options of the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from vision.evaluation.vqa.word_attention import shown
from vision.images.decoding import sample_image
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import CountOrZero, Name, Place, Title
from workbench.corpora.corpus import Corpus
from workbench.corpora.schema.places import take, with_texts
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.pretraining.task import Task, TaskObjective
from workbench.runs.stored_run import StoredFolder
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sample, Sequence


@dataclass(frozen=True)
class ImageTextPair:
    """A text and an image.

    Attributes:
        batch: a batch of this one sequence, on the run's device.
        words: the text's words, each with its rows in the text's stream.
        cells: which rows of the image's stream are regions of the image [rows] bool.
        boxes: their boxes [cells, 4], x1, y1, x2, y2 in 0..1.
    """

    text: str
    batch: Batch
    words: list[tuple[str, list[int]]]
    image: Image.Image
    cells: np.ndarray
    boxes: np.ndarray

    def of_words(self, rows: np.ndarray) -> np.ndarray:
        """[text rows, image rows] -> [words, cells], the mean over each word's rows."""
        return np.stack([rows[places].mean(0) for _, places in self.words])[:, self.cells]


def reads_images(task: Task, placed: TaskObjective) -> bool:
    """Whether a task's builder makes an image stream from a record's own image."""
    part = getattr(getattr(task.builder, "image", None), "part", None)
    return part is not None and task.builder.unit in ("captions", "questions")


def read_pair(run: EvaluatedRun, corpus: Corpus, record: int, text: str | None = None) -> ImageTextPair:
    """The first caption or question of a record, or another text, with its image.

    Raises:
        WorkbenchError: the record does not exist, it has no text of the kind, or the run omits its image, or reads
        several
            images.
    """
    media = run.task.builder.image.media
    if media is not None:
        raise WorkbenchError(
            f"{run.folder} reads several images of a record ({', '.join(media)}); this figure needs a run "
            "that reads one image of each"
        )
    sample = one_text(run, corpus, record, text)
    sequence = run.task.sequences([sample])[0]
    if not sequence.length("image") or not sequence.length("text"):
        raise WorkbenchError(f"{run.folder} does not read both text and image of record {record} of {corpus.place}")
    said = sample["captions"][0] if run.task.builder.unit == "captions" else sample["questions"][0]["question"]
    image = sample_image(sample)
    cells, boxes = shown(sequence.streams["image"], run.task.builder.image.part, image.size)
    batch = collate([sequence]).to(next(run.network.parameters()).device)
    return ImageTextPair(said, batch, words_of(run, sequence, said), image, cells, boxes)


def one_text(run: EvaluatedRun, corpus: Corpus, record: int, text: str | None) -> Sample:
    """A record with one caption or question, its own first one or another."""
    unit = run.task.builder.unit
    assert unit is not None
    if record >= corpus.records:
        raise WorkbenchError(f"--record {record}: {corpus.place} has {corpus.records:,} records, counted from 0")
    found: dict[str, Any] = {**corpus[record], "draw": (0, record)}
    if text is not None:
        if not text.strip():
            raise WorkbenchError("--text has no words; give a sentence")
        asked: Any = text if unit == "captions" else {"question_id": 0, "question": text, "answers": []}
        return with_texts({**found, unit: []}, unit, [asked])
    if not found.get(unit):
        raise WorkbenchError(
            f"record {record} of {corpus.place} has no {unit}, which this run needs; give a text with --text"
        )
    return take(found, unit, 0, 1)


def words_of(run: EvaluatedRun, sequence: Sequence, text: str) -> list[tuple[str, list[int]]]:
    """The words of a text with the rows of their tokens; if transforms have changed the rows, every token is a word."""
    fields = sequence.streams["text"]
    rows, ids = np.flatnonzero(~fields["special"]), fields["input_ids"]
    encoded = run.tokenizer.encode(text).part(0, len(rows))
    if len(encoded) != len(rows) or (encoded.ids != ids[rows]).any():
        return [(name, [int(row)]) for name, row in zip(run.tokenizer.tokens(ids[rows]), rows, strict=True)]
    found = []
    for word in dict.fromkeys(encoded.words.tolist()):
        of = np.flatnonzero(encoded.words == word)
        found.append((text[encoded.starts[of[0]] : encoded.ends[of[-1]]].strip(), rows[of].tolist()))
    return found


RunFolder = Annotated[StoredFolder, typer.Argument(metavar="RUN", help="A run that reads images.")]
Records = Annotated[Place, typer.Argument(metavar="CORPUS", help="A corpus of images with texts.")]
Record = Annotated[CountOrZero, typer.Option(help="Number of the record in CORPUS, from 0.")]
TaskName = Annotated[Name | None, typer.Option("--task", help="The task, if the run has several.")]
ObjectiveName = Annotated[Name | None, typer.Option("--objective", help="The objective, if several fit.")]
Said = Annotated[Title | None, typer.Option(help="Text to use instead of the record's first caption or question.")]
