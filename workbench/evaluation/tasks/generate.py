"""Sequence to sequence: translation, summaries, answers (BLEU, chrF, ROUGE).

Every task that reads a text and writes one is text to text (T5, arXiv:1910.10683).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from workbench.components.controls import check_control
from workbench.core.errors import WorkbenchError, quoted
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import Generator
from workbench.evaluation.finetuning.inheritance import text_length
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, of_task
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.writers import Writer, find_writer
from workbench.evaluation.task_options import GenerateScoring, GenerateTuning
from workbench.interop.run_or_checkpoint import load
from workbench.metrics.texts import check_libraries, text_scores
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe, SequenceSpec, TaskSpec
from workbench.runs.folder import trust_run
from workbench.sequences.builders.text_to_text import TextToTextBuilder
from workbench.sequences.text_layout import Frame
from workbench.text.tokenizer import Tokenizer

EXAMPLES = 12
READ, WRITTEN = 512, 128


@dataclass
class Text:
    """One text: what was read, what was written, what was to be written."""

    key: str
    text: str
    prediction: str
    reference: str


class Generation(DownstreamTask[GenerateTuning, GenerateScoring]):
    """A text of a text."""

    tuning = GenerateTuning
    scoring = GenerateScoring
    objective: type[Objective] = Objective
    panels = ("workbench.evaluation.task_panels:written",)

    def setup(self, tuning: GenerateTuning, base: Recipe) -> Setup:
        trust_run(tuning.run, base, tuning.trust)
        _check_languages(Corpus.open(tuning.corpus), tuning)
        tokenizer = None if base.tokenizer is None else Tokenizer.load(base.tokenizer)
        tasks = [task.evaluating() for task in tasks_of(base, tokenizer).values()]
        writer = find_writer(tasks, tuning.network, tuning.stream)
        _check_behind(writer, tuning)
        stream = writer.continuation.stream
        builder = {
            "builder": "text_to_text",
            "source": tuning.source,
            "target": tuning.target,
            "stream": stream,
            **_lengths(tuning, base, stream, _rows_before(writer.task.spec)),
            **_ends(writer.task.builder.frame),
        }
        if stream == "text":
            causal = writer.task.spec.sequence.visibility == "causal"
            builder["visibility"] = "causal" if causal else "prefix"
        placed = ("network", "view", "after")
        objective = {name: value for name, value in writer.placed.stated.items() if name not in placed}
        sequence = SequenceSpec(builder, transforms=writer.task.spec.sequence.transforms)
        return Setup(sequence, objective, sees=() if stream == "text" else ("text",))

    def open(self, scoring: GenerateScoring) -> EvaluatedRun:
        check_libraries()
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        loaded = of_task(loaded, scoring.run, scoring.task)
        tasks = {name: task for name, task in loaded.tasks.items() if isinstance(task.builder, TextToTextBuilder)}
        if not tasks:
            raise WorkbenchError(
                f"{scoring.run} has no text-to-text task; fine-tune it first: workbench finetune "
                f"{self.name} {quoted(scoring.run)} TRAINING-SET"
            )
        loaded = replace(loaded, tasks=tasks)
        generator = scoring.generator(loaded)
        opened = EvaluatedRun(loaded, generator.task, generator.placed, scoring.run)
        check_control(scoring.control, opened.parts, str(scoring.run))
        return opened

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: GenerateScoring) -> Result:
        found = list(_written(scoring.generator(run.loaded), corpus, scoring))
        if not found:
            raise WorkbenchError(f"corpus {corpus.name!r} has no text; evaluate on one that has")
        scored = partial(
            text_scores,
            references=[text.reference for text in found],
            tokenize=scoring.tokenize,
            lowercase=scoring.lowercase,
        )
        made, copied = scored([text.prediction for text in found]), scored([text.text for text in found])
        return Result(
            task=self.name,
            numbers=made.numbers,
            counts={"texts": len(found)},
            variant=made.signature,
            baselines={"the text itself": copied.numbers},
            examples=[vars(text) for text in found[:EXAMPLES]],
            predictions=EvaluationItems(
                [{"key": t.key, "text": t.text, "gold": t.reference, "prediction": t.prediction} for t in found],
                made.tallies,
            ),
        )


def _written(generator: Generator, corpus: Corpus, scoring: GenerateScoring) -> Iterator[Text]:
    builder = generator.task.builder
    for samples in sample_pass([corpus], size=scoring.batch_size, unit=None, limit=scoring.limit):
        wanted = [builder.wanted_text(sample) for sample in samples]
        for sample, made, reference in zip(samples, generator(samples), wanted, strict=True):
            text = generator.spelling.text(made.tokens).strip()
            yield Text(str(sample["key"]), builder.source_text(sample), text, reference)


def _check_languages(corpus: Corpus, tuning: GenerateTuning) -> None:
    """
    Raises:
        WorkbenchError: the corpus has translations and neither a text nor a second one, and nothing says which of them
            is read and which is written.
    """
    fields = corpus.manifest.fields
    unsaid = [
        option
        for option, language, field in (("--source", tuning.source, "text"), ("--target", tuning.target, "second"))
        if language is None and field not in fields
    ]
    if unsaid and "translations" in fields:
        languages = list(next(iter(corpus)).get("translations", {}))
        raise WorkbenchError(
            f"corpus {corpus.name!r} holds translations ({', '.join(languages)}); name the language that is read and "
            f"the one that is written, --source and --target; {' and '.join(unsaid)} not given"
        )


def _check_behind(writer: Writer, tuning: GenerateTuning) -> None:
    """
    Raises:
        WorkbenchError: the run's objective writes, but not what stands behind a text.
    """
    if not writer.continuation.behind:
        raise WorkbenchError(
            f"the objective {writer.placed.stated['objective']!r} of {tuning.run} fills in masked spans of a text "
            "and does not learn to write another text after it; pretrain on texts that end with the target text "
            "(prompts may contain its masks: workbench generate), or take a run with clm, span_corruption or denoising"
        )


def _lengths(tuning: GenerateTuning, base: Recipe, stream: str, before: int) -> dict[str, int]:
    """The maximum numbers of tokens that are read and written. Both must fit into the positions, next to the rows that
    stand before the text."""
    read, written = tuning.max_length or text_length(base, READ + before) - before, tuning.max_target_length
    if stream == "text":
        return {"max_length": read, "max_target_length": written or min(WRITTEN, read // 2)}
    return {"max_length": read, "max_target_length": written or text_length(base, WRITTEN, stream)}


def _rows_before(spec: TaskSpec) -> int:
    """The number of learned rows whose positions are before those of the text."""
    transforms = spec.sequence.transforms
    first = {name for each in transforms if each["transform"] == "before" for name in each["streams"][:-1]}
    return sum(each["count"] for each in transforms if each["transform"] == "queries" and each["stream"] in first)


def _ends(frame: Frame) -> dict[str, str | None]:
    """The special tokens around texts in pretraining; one that ends what is written there must be."""
    begin, end = frame.roles
    return {"begin": begin, "end": end or "eos"}
