"""Accuracy of a classifier on changed texts: typing errors, exchanged words, and a universal trigger.

The changes of a text depend on its key and the seed alone. A kind of change that changes no text is left out.
`worst` counts a text as right if it is right in every draw.
The trigger is searched on one half of the records, and all numbers are of the other half. Its control is as many random
words in front of the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError, quoted
from workbench.core.keyed import digest, generator
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.network_task import texts_of, wholes
from workbench.evaluation.analysis.triggers import Change, TriggerSearch, exchanged, in_front, mistyped
from workbench.evaluation.analysis_options import RobustnessScoring
from workbench.evaluation.options import Predicting, Scoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import measured_items
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.task_options import ClassifyScoring
from workbench.evaluation.tasks.classify import Classification
from workbench.metrics.tallies import Tally
from workbench.objectives.classify import Classify
from workbench.objectives.cloze import Cloze
from workbench.sequences.sequence import Sample

CHANGES: dict[str, Change] = {"typos": mistyped, "swaps": exchanged}
SEARCHED = 64
"""Texts on which a trigger is searched, at most."""
SHOWN = 5


class Robustness(DownstreamTask[Tuning, RobustnessScoring]):
    """Accuracy on changed texts, compared with that on the same texts as they are."""

    scoring = RobustnessScoring
    objective = Classify
    panels = ("workbench.evaluation.analysis_panels:analysed",)

    def wanted(self, scoring: Scoring | Predicting) -> str:
        return f"fine-tune it first: workbench finetune classify {quoted(scoring.run)} TRAINING-SET"

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: RobustnessScoring) -> Result:
        objective = run.objective.objective
        assert isinstance(objective, Classify)
        if isinstance(objective, Cloze):
            raise WorkbenchError(
                f"{run.folder} classifies by the word of a pattern (cloze), which stands around the changed text; take "
                "a run of `workbench finetune classify`"
            )
        plain = ClassifyScoring(run=scoring.run, corpus=scoring.corpus, limit=scoring.limit)
        Classification().prepare(objective, corpus, plain)
        texts = [text for text in texts_of(corpus, scoring.limit) if objective.label in text.get("labels", {})]
        halves = [[t for t in texts if digest("trigger", str(t["key"])) % 2 == side] for side in range(2)]
        if not all(halves):
            raise WorkbenchError(
                f"corpus {corpus.name!r}: found {len(texts)} texts with the label {objective.label!r} "
                "(--limit counts too); a trigger needs some to search on and others to test on"
            )
        predict = partial(_predicted, run, halves[1], scoring.batch_size)
        names, gold, clean = predict(lambda text: text)
        right = {"": (clean == gold)[None]}
        unchanged = []
        for name, change in CHANGES.items():
            draws = [_keyed(change, scoring, name, draw) for draw in range(scoring.draws)]
            if all(changed(text)["text"] == text["text"] for text in halves[1] for changed in draws):
                unchanged.append(name)
                continue
            right[f"{name}/"] = np.stack([predict(changed)[2] for changed in draws]) == gold
        search = TriggerSearch(run, halves[0][:SEARCHED])
        rng, known = generator("robustness", scoring.seed, "words"), sorted(search.words)
        chance = [[known[i] for i in rng.integers(0, len(known), scoring.trigger)] for _ in range(scoring.draws)]
        trigger = search.found(chance[0])
        right["random_trigger/"] = np.stack([predict(partial(in_front, words=words))[2] for words in chance]) == gold
        triggered = predict(partial(in_front, words=trigger))[2]
        right["trigger/"] = (triggered == gold)[None]
        tallies = _tallies(right)
        lines = [
            {"key": str(t["key"]), "gold": names[g], "prediction": names[p], "triggered": names[s]}
            for t, g, p, s in zip(halves[1], gold, clean, triggered, strict=True)
        ]
        return Result(
            self.name,
            wholes(tallies),
            {"texts": len(lines), "texts to search on": len(search.texts)},
            variant="; ".join(
                [
                    f"label {objective.label}",
                    f"trigger: {' '.join(trigger)}",
                    *(f"{name} change no text, and are left out" for name in unchanged),
                ]
            ),
            examples=list(_examples(halves[1][:SHOWN], lines, scoring, trigger)),
            predictions=EvaluationItems(lines, tallies),
        )


def _predicted(
    run: EvaluatedRun, texts: Sequence[Sample], size: int, change: Callable[[Sample], Sample]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of the classes, and by their numbers the right and the predicted class of each changed text."""
    objective = run.objective.objective
    assert isinstance(objective, Classify)
    groups = ([change(text) for text in texts[begin : begin + size]] for begin in range(0, len(texts), size))
    made, keys = measured_items(run, groups, partial(Classification().counted, objective))
    if keys != [str(text["key"]) for text in texts]:
        raise WorkbenchError(f"{run.folder}: its builder makes other sequences than one of each text")
    return objective.names, made["gold"].numpy(), made["predicted"].numpy()


def _keyed(change: Change, scoring: RobustnessScoring, name: str, draw: int) -> Callable[[Sample], Sample]:
    def changed(text: Sample) -> Sample:
        return change(text, generator("robustness", scoring.seed, name, draw, str(text["key"])), scoring.rate)

    return changed


def _tallies(right: dict[str, np.ndarray]) -> dict[str, Tally]:
    """By the name of the change whether each text is right in each draw [draws, texts]; drops are paired by text."""
    means = {name: of.mean(0) for name, of in right.items()}
    tallies: dict[str, Tally] = {}
    for name, of in right.items():
        tallies[f"{name}accuracy"] = Tally.share(of[0]) if len(of) == 1 else Tally.mean(means[name])
        if name in ("typos/", "swaps/"):
            tallies[f"{name}worst"] = Tally.share(np.all(of, axis=0))
        if name:
            tallies[f"{name}drop"] = Tally.mean(means[""] - means[name])
    tallies["trigger/drop_beyond_random"] = Tally.mean(means["random_trigger/"] - means["trigger/"])
    return tallies


def _examples(
    texts: Sequence[Sample], lines: Sequence[dict[str, Any]], scoring: RobustnessScoring, trigger: list[str]
) -> Any:
    """The first texts, as they are changed."""
    for text, line in zip(texts, lines, strict=False):
        changed = {name: _keyed(change, scoring, name, 0)(text)["text"] for name, change in CHANGES.items()}
        classes = f"{line['gold']}; predicted {line['prediction']}, behind the trigger {line['triggered']}"
        yield {**changed, "trigger": in_front(text, trigger)["text"], "class": classes}
