"""Token classification (named entities, parts of speech): accuracy, and F1 of the chunks.

Data sets are CoNLL 2003, OntoNotes and MSRA NER, for example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import torch

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.evaluation.task_options import TagScoring, TagTuning
from workbench.metrics.chunks import OUTSIDE, WORD_TAG, chunk_counts, chunks, tag_tallies
from workbench.metrics.classes import by_class
from workbench.objectives.token_classification import TokenClassification, check_apart
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample


class TokenClassificationTask(ObjectiveTask[TagTuning, TagScoring]):
    """A tag for every word."""

    tuning = TagTuning
    scoring = TagScoring
    objective: type[Objective] = TokenClassification
    panels = ("workbench.evaluation.task_panels:tagged",)

    def setup(self, tuning: TagTuning, base: Recipe) -> Setup:
        places = [tuning.corpus, *([tuning.held_out] if tuning.held_out else [])]
        objective = {"objective": "token_classification", "tags": tags_of([Corpus.open(place) for place in places])}
        return Setup(text_sequence(base, "tagged_text", tuning.max_length), objective, asks=("tags",))

    def needs(self, objective: TokenClassification) -> str:
        return "texts with `tags`"

    def counts(
        self, objective: TokenClassification, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, int]:
        names = list(objective.tags)
        texts = made["gold"].split(made["words"].tolist())
        found = sum(len(chunks(names[tag] for tag in text.tolist())) for text in texts)
        lost = int((~made["read"]).sum())
        counted = {"words": len(made["gold"]), "chunks": found, "tags": len(names)}
        return counted | ({"words without a token": lost} if lost else {})

    def counted(self, objective: TokenClassification, targets: Mapping[str, Any]) -> int:
        return len(targets["gold"]) if "gold" in targets else 0

    def predictions(self, objective: TokenClassification, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A text an item, with the tags of its words; `words` are their places in characters."""
        names, sizes = list(objective.tags), made["words"].tolist()
        of_texts = [[names[tag] for tag in made[which].tolist()] for which in ("gold", "predicted")]
        ends = list(accumulate(sizes))
        lines = [
            {
                "key": keys[end - size],
                "gold": of_texts[0][end - size : end],
                "prediction": of_texts[1][end - size : end],
                "words": made["places"][end - size : end].tolist(),
            }
            for end, size in zip(ends, sizes, strict=True)
        ]
        return EvaluationItems(lines, tag_tallies([x["prediction"] for x in lines], [x["gold"] for x in lines]))

    def baselines(
        self, run: EvaluatedRun, objective: TokenClassification, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """No chunk at all."""
        return {f"always {OUTSIDE}": {**made, "predicted": torch.full_like(made["gold"], objective.tags[OUTSIDE])}}

    def classes(self, objective: TokenClassification, made: GatheredTensors) -> dict[str, dict[str, float]]:
        reported = (made["predicted"].numpy(), made["gold"].numpy(), made["words"].tolist(), list(objective.tags))
        return by_class(chunk_counts(*reported))

    def example(self, objective: TokenClassification, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        names, places = list(objective.tags), made["places"].tolist()

        def stretches(tags: list[int]) -> list[list[Any]]:
            found = chunks(names[tag] for tag in tags)
            return [[places[begin][0], places[end - 1][1], name] for begin, end, name in found]

        reported = {name: stretches(made[name].tolist()) for name in ("predicted", "gold")}
        return {"text": sample["text"], **reported}


def tags_of(corpora: list[Corpus]) -> list[str]:
    """The tags of words of corpora: O, then the others sorted; of a stretch's name both B- and I-.

    Raises:
        WorkbenchError: the first of them, the training set, has none, or stretches of a text overlap.
    """
    found = [_names(corpus) for corpus in corpora]
    names = set().union(*found)
    if not found[0] and "tags" in corpora[0].manifest.fields:
        raise WorkbenchError(f"no word of corpus {corpora[0].name!r} has a tag but {OUTSIDE}; nothing can be learned")
    if not found[0]:
        raise WorkbenchError(
            f"corpus {corpora[0].name!r} has no tags (it has {', '.join(corpora[0].manifest.fields)}); prepare texts "
            'with `tags`: {"text": "Ann sang", "tags": [[0, 3, "person"]]}, or with a tag for each word'
        )
    words = {name for name in names if WORD_TAG.fullmatch(name)}
    return [OUTSIDE, *sorted(words | {f"{prefix}-{name}" for name in names - words for prefix in "BI"})]


def _names(corpus: Corpus) -> set[str]:
    """The names of the tags of a corpus, without O."""
    names: set[str] = set()
    for sample in corpus:
        tags = sample.get("tags", ())
        check_apart(tags, f"corpus {corpus.name!r}, key {sample['key']!r}")
        names.update(name for _, _, name in tags)
    return names - {OUTSIDE}
