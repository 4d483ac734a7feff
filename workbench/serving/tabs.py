"""Tabs for texts: words for a mask, predictions of fine-tuned heads, continuations, attention."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from typing import Any, ClassVar, get_type_hints

from workbench.core.errors import WorkbenchError
from workbench.core.options.command import typer_info
from workbench.evaluation.options import Predicting
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.task_finder import find_task, fitting_tasks
from workbench.figures.heads import heads_figure
from workbench.objectives.mlm import Mlm
from workbench.pretraining.task import Task
from workbench.sequences.sequence import Sample
from workbench.serving.tab import Served, Tab, bars, marked


def injected(run: Served, sample: Sample, control: str | None, mask: str) -> str:
    """A text as HTML with what the run's transforms bring into it at each mention; "" for a run without any. Another
    word, as long, stands for each mask meanwhile."""
    tasks: list[Task] = [task for task in run.under(control).tasks.values() if task.transforms]
    if not run.reads_links or not tasks:
        return ""
    hidden = str(sample["text"]).replace(mask, "x" * len(mask))
    found = [
        each
        for sequence in tasks[0].evaluating().sequences([{"key": "1", "draw": (0, 0, 1), **sample, "text": hidden}])
        for step in tasks[0].transforms
        for each in step.injected(sequence)
    ]
    notes = [(each["mention"], each.get("facts") or [str(each.get("entity", ""))]) for each in found]
    return marked(str(sample["text"]), [(start, end, facts) for (start, end), facts in notes if start >= 0])


class FillMaskTab(Tab):
    """The most probable tokens at each mask, under the text with the knowledge that was brought into it."""

    title = "Fill in words"

    @classmethod
    def of(cls, runs: Sequence[Served]) -> list[Tab]:
        able = [run for run in runs if cls._mask(run) and any(cls._masks(task) for task in run.model.tasks.values())]
        return [cls(able)] if able else []

    @staticmethod
    def _masks(task: Task) -> bool:
        return any(isinstance(placed.objective, Mlm) for placed in task.objectives)

    @staticmethod
    def _mask(run: Served) -> str | None:
        return run.model.tokenizer.roles.get("mask") if run.model.tokenizer is not None else None

    def inputs(self) -> list[Any]:
        import gradio

        mask = self._mask(self.runs[0])
        return [gradio.Textbox(f"Oslo lies in {mask}.", label=f"A text with {mask} in place of each word to fill in")]

    def answer(self, run: Served, control: str | None, *asked: Any) -> str:
        (text,) = asked
        first, own = self._mask(self.runs[0]), self._mask(run)
        sample = run.sample(str(text).replace(str(first), str(own)), control)
        task = next(name for name, each in run.model.tasks.items() if self._masks(each))
        (masks,) = run.under(control).fill_mask([sample], k=8, task=task)
        found = "".join(bars((guess.token, guess.probability) for guess in guesses) for guesses in masks)
        return injected(run, sample, control, str(own)) + found


class PredictionTab(Tab):
    """What a fine-tuned head says of a text: a tab for each downstream task of the runs."""

    title: ClassVar[str] = "Predict"
    task: DownstreamTask[Any, Any]
    images: ClassVar[bool] = False

    @classmethod
    def of(cls, runs: Sequence[Served]) -> list[Tab]:
        able: dict[str, list[Served]] = {}
        for run in runs:
            for task in fitting_tasks(run.model._loaded):
                if task.predicting is not None and cls._reads(task, run):
                    able.setdefault(task.name, []).append(run)
        return [cls._of_task(name, served) for name, served in able.items()]

    @classmethod
    def _of_task(cls, name: str, runs: Sequence[Served]) -> Tab:
        made = cls(runs)
        made.task = find_task(name)
        return made

    @classmethod
    def _reads(cls, task: DownstreamTask[Any, Any], run: Served) -> bool:
        """Whether the task asks about texts alone, or about images (a subclass), and needs nothing but words."""
        images = any(getattr(each.builder, "image", None) is not None for each in run.model.tasks.values())
        assert task.predicting is not None
        needed = [
            f for f in dataclasses.fields(task.predicting) if f.default is dataclasses.MISSING and f.name != "run"
        ]
        return images == cls.images and all(f.default_factory is not dataclasses.MISSING for f in needed)

    @property
    def name(self) -> str:
        return self.task.name.replace("-", " ").capitalize()

    @property
    def words(self) -> list[str]:
        """The options of the task that are words of a user's."""
        assert self.task.predicting is not None
        own = {f.name for f in dataclasses.fields(self.task.predicting)} - {
            f.name for f in dataclasses.fields(Predicting)
        }
        return [name for name in ("second", "question", "mention", "head", "tail", "choice") if name in own]

    def inputs(self) -> list[Any]:
        import gradio

        hints = get_type_hints(self.task.predicting, include_extras=True)
        helps = [getattr(typer_info(hints[name]), "help", "") for name in self.words]
        more = [
            gradio.Textbox(label=name.capitalize(), info=f"{text}{' One in each line.' if name == 'choice' else ''}")
            for name, text in zip(self.words, helps, strict=True)
        ]
        return [self.first(), *more]

    def first(self) -> Any:
        """The component of what the question is about."""
        import gradio

        return gradio.Textbox(label="Text", lines=3)

    def answer(self, run: Served, control: str | None, *asked: Any) -> str:
        about, *words = asked
        if about is None or not str(about).strip():
            raise WorkbenchError("there is nothing to read yet")
        options: dict[str, Any] = {
            name: [line for line in word.splitlines() if line.strip()] if name == "choice" else word
            for name, word in zip(self.words, words, strict=True)
            if word and word.strip()
        }
        lines = run.under(control).predict([about], self.task.name, **options)
        return "".join(self._line(about, line) for line in lines)

    def _line(self, about: Any, line: dict[str, Any]) -> str:
        shares, said = line.get("probabilities"), line.get("prediction")
        text = about if isinstance(about, str) else ""
        places = [(each["mention"], each.get("facts", ())) for each in line.get("knowledge", ()) if "of" not in each]
        shown = [marked(text, [(start, end, facts) for (start, end), facts in places if start >= 0])] if places else []
        if isinstance(said, list) and said and isinstance(said[0], dict) and "label" in said[0]:
            shown += [marked(text, [(each["start"], each["end"], [each["label"]]) for each in said])]
        elif isinstance(shares, dict):
            shown += [bars(shares.items())]
        elif isinstance(shares, list):
            shown += [bars((str(number), share) for number, share in enumerate(shares, 1))]
        elif "probability" in line:
            shown += [bars([(str(said), line["probability"])])]
        else:
            shown += [f"<pre>{html.escape(json.dumps(said, ensure_ascii=False, indent=1))}</pre>"]
        return "".join(shown)


class ContinuationTab(Tab):
    """The text that a run writes after a prompt, or of it."""

    title = "Write"

    @classmethod
    def of(cls, runs: Sequence[Served]) -> list[Tab]:
        able = []
        for run in runs:
            try:
                run.model.generate("a", max_new_tokens=1)
            except WorkbenchError:
                continue
            able.append(run)
        return [cls(able)] if able else []

    def inputs(self) -> list[Any]:
        import gradio

        return [
            gradio.Textbox(label="Prompt", lines=3),
            gradio.Slider(1, 200, 40, step=1, label="Tokens at most"),
            gradio.Slider(0, 2, 0, step=0.1, label="Temperature", info="0 takes the most probable token each time."),
        ]

    def output(self) -> Any:
        import gradio

        return gradio.Textbox(lines=6, show_label=False, interactive=False)

    def answer(self, run: Served, control: str | None, *asked: Any) -> str:
        prompt, tokens, temperature = asked
        drawn = {"sample": True, "temperature": temperature} if temperature else {}
        return run.under(control).generate(prompt, max_new_tokens=int(tokens), **drawn)[0]


class AttentionTab(Tab):
    """Which tokens of a text attend to which, in each head of a layer."""

    title = "Attention"

    @classmethod
    def of(cls, runs: Sequence[Served]) -> list[Tab]:
        able = []
        for run in runs:
            try:
                found = run.model.attention("a")
            except WorkbenchError:
                continue
            if found:
                able.append(run)
        return [cls(able)] if able else []

    def inputs(self) -> list[Any]:
        import gradio

        return [
            gradio.Textbox("Oslo lies by a river.", label="Text"),
            gradio.Number(0, label="Layer", precision=0, minimum=0),
        ]

    def output(self) -> Any:
        import gradio

        return gradio.Plot(show_label=False)

    def answer(self, run: Served, control: str | None, *asked: Any) -> Any:
        text, layer = asked
        maps = run.under(control).attention(run.sample(text, control))
        found = [each for each in maps if each.layer == layer]
        if not found:
            known = ", ".join(str(number) for number in sorted({each.layer for each in maps}))
            raise WorkbenchError(f"layer {layer} has no attention; allowed: {known}")
        return heads_figure(found)


TABS: list[type[Tab]] = [FillMaskTab, PredictionTab, ContinuationTab, AttentionTab]
