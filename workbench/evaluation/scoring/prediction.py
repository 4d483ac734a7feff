"""What a run says of inputs without right answers: `workbench predict`, and `Model.predict`.

A task asks about each sample with any answer in the place of the right one (`DownstreamTask.asked`), and reads it as
its evaluation does. So a prediction equals that of `evaluate --predictions` for the same item.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.core.errors import WorkbenchError
from workbench.core.files.urls import is_url
from workbench.core.options.command import options_from_python
from workbench.core.packages import library
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME
from workbench.evaluation.options import Predicting
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.inputs import IMAGE_SUFFIXES, batches_of, captioned, input_at, samples_of, text_lines
from workbench.evaluation.scoring.task_finder import find_task, fitting_task
from workbench.evaluation.task_modules import predicting_tasks
from workbench.recipe.spec import Recipe
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.builder import TRUNCATED
from workbench.sequences.sequence import Sample
from workbench.training.arithmetic import Arithmetic, autocast_dtype, computing, matmul_of

logger = logging.getLogger(__name__)
GRAPH = "graph"
"""The option of transforms that names a graph of entities."""


@dataclass
class Predictor:
    """The predictions of an opened run for a task."""

    task: DownstreamTask[Any, Any]
    run: Any
    options: Predicting
    _linker: Any = None

    @classmethod
    def opened(cls, task: DownstreamTask[Any, Any], options: Predicting) -> Predictor:
        """The run that the options name, on the GPU where there is one.

        Raises:
            WorkbenchError: it can't be read, or has no head for the task.
        """
        run, device = task.open(options), torch.device("cuda" if torch.cuda.is_available() else "cpu")
        on_device = run.on(World(device=device), options.precision) if isinstance(run, EvaluatedRun) else run
        return cls(task, on_device, options)

    def lines(self, groups: Iterable[list[Sample]]) -> Iterator[dict[str, Any]]:
        """A line for each item, in the order of the samples. A sample that nothing could be read of has a line whose
        `prediction` is null.

        Raises:
            WorkbenchError: a sample lacks what is asked about.
        """
        device = self.run.world.device
        builder: Any = getattr(getattr(self.run, "task", None), "builder", None)
        dropped: Any = getattr(builder, "dropped", Counter())
        before = dropped[TRUNCATED]
        dtype = autocast_dtype(self.options.precision, device, "--precision")
        for number, group in enumerate(groups):
            arithmetic = Arithmetic(device, dtype, matmul_of("auto", dtype))
            with computing(arithmetic), torch.autocast(device.type, enabled=False):
                samples = [self.task.asked(self.run, sample, self.options) for sample in self._linked(group)]
                found = self.task.predict(self.run, samples, number, self.options)
            read = {line.pop("record", line["key"]) for line in found}
            lost = {str(sample["key"]) for sample in samples} - read
            yield from found
            for key in sorted(lost):
                logger.warning("input %s: nothing of it can be read, so nothing is predicted", key)
                yield {"key": key, "prediction": None}
        if cut := dropped[TRUNCATED] - before:
            logger.warning(
                "%d tokens of the inputs were not read: a text of RUN has %d tokens at most",
                *(cut, builder.max_length),
            )

    def of_corpus(self, corpus: Corpus) -> Iterator[dict[str, Any]]:
        """As `lines` of the records of a corpus, of as many as the options say."""
        return self.lines(self.task.read_groups(self.run, corpus, self.options.batch_size, self.options.limit))

    def of_inputs(self, inputs: list[str]) -> Iterator[dict[str, Any]]:
        """As `lines` of each input: a text, or the place of a corpus, a text file with a text in each line, an image,
        or raw files that `prepare` reads.

        Raises:
            WorkbenchError: an input is none of these.
        """
        single: list[Sample] = []
        for number, source in enumerate(map(input_at, inputs), 1):
            if isinstance(source, str) and not source.strip():
                raise WorkbenchError(f"input {number} is empty; give a text, or leave it out")
            if isinstance(source, str) and not is_url(source):
                single.append({**samples_of(source)[0], "key": str(number)})
            elif isinstance(source, Path) and source.suffix.lower() in IMAGE_SUFFIXES:
                single.append({**captioned(source), "key": source.name, "draw": (0, 0, number)})
            else:
                yield from self.lines(batches_of(single, self.options.batch_size))
                single = []
                yield from self._of_place(source, f"{Path(source).name}:" if len(inputs) > 1 else "")
        yield from self.lines(batches_of(single, self.options.batch_size))

    def _of_place(self, source: Path | str, before: str) -> Iterator[dict[str, Any]]:
        """Of a corpus, a file or a folder of files; `before` is what keys begin with.

        Raises:
            WorkbenchError: it has no text.
        """
        if isinstance(source, str) or (source / FILE_NAME).is_file():
            lines = self.of_corpus(Corpus.open(str(source)))
        elif source.suffix.lower() in self.task.text_files and source.is_file():
            numbered = text_lines(source)[: self.options.limit]
            if not numbered:
                raise WorkbenchError(f"{source} has no line with a text; each line of a text file is an input")
            samples = [{"key": str(i), "draw": (0, 0, i), "text": text} for i, text in numbered]
            lines = self.lines(batches_of(samples, self.options.batch_size))
        else:
            lines = self._of_raw(source)
        yield from ({**line, "key": f"{before}{line['key']}"} for line in lines)

    def _of_raw(self, source: Path) -> Iterator[dict[str, Any]]:
        """Of files that `workbench prepare` makes a corpus of, in a folder that is removed."""
        preparing = library("workbench.api", "text", "raw files")
        kind = "image-text" if getattr(self.run.task.builder, "image", None) is not None else "text"
        with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
            with redirect_stdout(sys.stderr):  # where the lines go, only lines go
                output = f"{folder}/corpus"
                made = preparing.prepare(kind, inputs=[str(source)], output=output, on_error=self.options.on_error)
            yield from self.of_corpus(made)

    def _linked(self, samples: list[Sample]) -> list[Sample]:
        """Texts without links are linked, where the run reads knowledge."""
        bare = [sample for sample in samples if "spans" not in sample and isinstance(sample.get("text"), str)]
        if not isinstance(self.run, EvaluatedRun) or self.options.control == "no-kg" or not bare:
            return samples
        if not any(transform.reads_spans for transform in self.run.task.transforms):
            return samples
        if self._linker is None:
            place = self.options.linker or graph_of(self.run.loaded.recipe)
            logger.info("texts without links are linked to %s", place)
            self._linker = library("kg.linking.linker", "kg", "links of entities").open_linker(place)
        return [linked(sample, self._linker) if "spans" not in sample else sample for sample in samples]


def predictions(
    loaded: LoadedRun, place: Path, device: torch.device, inputs: Any, task: str | None, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """As `Predictor.lines` of inputs in Python, of a loaded run on its device.

    Args:
        inputs: a corpus, or what `samples_of` takes.
        task: the name of the downstream task; by default the one that fits the run's heads.
        options: those of the task's `predicting`.

    Raises:
        WorkbenchError: the run has no head for the task, or an input lacks what is asked about.
    """
    found = find_task(task) if task is not None else fitting_task(loaded, place)
    if found.predicting is None:
        raise WorkbenchError(f"the task {found.name} predicts nothing; allowed: {', '.join(predicting_tasks())}")
    how = options_from_python(found.predicting, run=place, **options)
    predictor = Predictor(found, found.chosen(loaded, how).on(World(device=device), how.precision), how)
    if isinstance(inputs, Corpus):
        return list(predictor.of_corpus(inputs))
    return list(predictor.lines(batches_of(samples_of(inputs)[: how.limit], how.batch_size)))


def graph_of(recipe: Recipe) -> str:
    """Where the first graph is that the recipe's transforms name.

    Raises:
        WorkbenchError: they name none.
    """
    steps = [step for task in recipe.tasks.values() for step in task.sequence.transforms]
    found = next((step[GRAPH] for step in steps if isinstance(step.get(GRAPH), str)), None)
    if found is None:
        raise WorkbenchError(
            f"the model {recipe.name!r} reads no graph, so nothing says which entities there are. Add "
            "--linker FOLDER (of `workbench prepare linker`, or of a graph), or --control no-kg to read no knowledge"
        )
    return str(found)


def linked(sample: Sample, linker: Any, min_score: float = 0.0) -> Sample:
    """A sample with the entities that its texts mention: (start, end, entity, score) each."""
    links = {"text": "spans", "second": "second_spans"}
    found = {
        spans: [[*link[:3], round(link[3], 4)] for link in linker.link(sample[text], min_score)]
        for text, spans in links.items()
        if isinstance(sample.get(text), str)
    }
    return {**sample, **found}


def write_lines(lines: Iterable[dict[str, Any]], write: Any) -> int:
    """Write each line as JSON with `write`, numbers with six digits; returns their number."""
    count = 0
    for line in lines:
        write(json.dumps(_short(line), ensure_ascii=False))
        count += 1
    return count


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
