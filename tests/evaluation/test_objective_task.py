"""Several ranks score what one scores; each of them does its share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.objective_task import ObjectiveTask
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.task_options import ChooseTuning, ClassifyTuning, ExtractTuning, TagTuning
from workbench.evaluation.tasks.choose import MultipleChoiceTask
from workbench.evaluation.tasks.classify import Classification
from workbench.evaluation.tasks.extract import SpanExtractionTask
from workbench.evaluation.tasks.tag import TokenClassificationTask

ROWS = [
    {
        "text": f"the house is {state} .",
        "second": "the house is",
        "labels": {"state": number % 3},
        "tags": [[13, 13 + len(state), "state"]],
        "answers": [state],
        "answer_spans": [[13, 13 + len(state)]],
        "choices": ["old", "new", "lost"],
        "answer": number % 3,
    }
    for number, state in enumerate(("old", "new", "lost") * 4)
]
TASKS: list[tuple[ObjectiveTask[Any, Any], type[Tuning]]] = [
    (Classification(), ClassifyTuning),
    (TokenClassificationTask(), TagTuning),
    (SpanExtractionTask(), ExtractTuning),
    (MultipleChoiceTask(), ChooseTuning),
]


@dataclass
class Meeting:
    """Where the ranks of a made-up world bring what they gather."""

    size: int
    brought: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=60)


@dataclass(frozen=True)
class Threads(World):
    """Ranks that are threads of this process."""

    meeting: Meeting = field(default_factory=lambda: Meeting(1))

    def gather(self, value: Any) -> list[Any]:
        self.meeting.brought[self.rank] = value
        self.meeting.barrier.wait()
        found = [self.meeting.brought[rank] for rank in range(self.size)]
        self.meeting.barrier.wait()
        return found


def scored_by_ranks(score: Callable[[int, World], None]) -> None:
    """Have a rank alone (-1), then two together (0 and 1) score."""
    score(-1, World())
    meeting = Meeting(2)
    ranks = [threading.Thread(target=score, args=(r, Threads(r, 2, meeting=meeting))) for r in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


@pytest.mark.parametrize(("task", "options"), TASKS, ids=lambda each: getattr(each, "name", ""))
def test_two_ranks_say_what_one_says(
    task: ObjectiveTask[Any, Any],
    options: type[Tuning],
    pretrained: Path,
    prepared: Callable[..., str],
    tmp_path: Path,
) -> None:
    corpus = prepared("states", ROWS)
    quick = ["train.num_workers=0", "train.max_steps=2", "train.lr_schedule.warmup_steps=0"]
    run = fine_tune(task, options(run=pretrained, corpus=corpus, output=tmp_path / "run", overrides=quick))
    scoring = task.scoring(run=run, corpus=corpus, batch_size=3)
    results: dict[int, Result] = {}
    looked_at: dict[int, int] = {}

    def score(rank: int, world: World) -> None:
        opened = replace(task.open(scoring), world=world)
        opened.network.register_forward_hook(lambda *_: looked_at.update({rank: looked_at.get(rank, 0) + 1}))
        with torch.inference_mode():
            results[rank] = task.score(opened, Corpus.open(corpus), scoring)

    scored_by_ranks(score)
    for rank in range(2):
        assert results[rank].numbers == pytest.approx(results[-1].numbers)
        assert results[rank].counts == results[-1].counts
    assert results[0].examples == results[-1].examples
    assert results[1].examples == []
    assert looked_at[1] == 2  # of four groups; the other rank shows examples next to its own
