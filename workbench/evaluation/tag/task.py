"""Tagging of words: named entities, parts of speech, chunks (CoNLL 2003, OntoNotes, MSRA NER, ...)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import torch

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.inherited import text_sequence
from workbench.evaluation.items import Items
from workbench.evaluation.measured import Made, MeasuredTask
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.passes import all_records
from workbench.evaluation.tag.options import TagScoring, TagTuning
from workbench.evaluation.task import Setup
from workbench.metrics.chunks import OUTSIDE, WORD_TAG, chunk_counts, chunks, tag_tallies
from workbench.metrics.classes import by_class
from workbench.objectives.tag import Tag, check_apart
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample
from workbench.tasks.objective import Objective


class Tagging(MeasuredTask[TagTuning, TagScoring]):
    """A tag for every word."""

    tuning = TagTuning
    scoring = TagScoring
    objective: type[Objective] = Tag
    panels = ("workbench.evaluation.tag.panel:tagged",)

    def setup(self, tuning: TagTuning, base: Recipe) -> Setup:
        places = [tuning.corpus, *([tuning.held_out] if tuning.held_out else [])]
        objective = {"objective": "tag", "tags": tags_of([Corpus.open(place) for place in places])}
        return Setup(text_sequence(base, "tagged_text", tuning.max_length), objective, asks=("tags",))

    def needs(self, objective: Tag) -> str:
        return "texts with `tags`"

    def counts(self, objective: Tag, made: Made, samples: Iterable[Sample]) -> dict[str, int]:
        names = list(objective.tags)
        texts = made["gold"].split(made["words"].tolist())
        found = sum(len(chunks(names[tag] for tag in text.tolist())) for text in texts)
        lost = int((~made["read"]).sum())
        counted = {"words": len(made["gold"]), "chunks": found, "tags": len(names)}
        return counted | ({"words without a token": lost} if lost else {})

    def counted(self, objective: Tag, targets: Mapping[str, Any]) -> int:
        return len(targets["gold"]) if "gold" in targets else 0

    def predictions(self, objective: Tag, made: Made, keys: list[str]) -> Items:
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
        return Items(lines, tag_tallies([x["prediction"] for x in lines], [x["gold"] for x in lines]))

    def baselines(self, run: Evaluated, objective: Tag, made: Made, samples: Iterable[Sample]) -> dict[str, Made]:
        """No chunk at all."""
        return {f"always {OUTSIDE}": {**made, "predicted": torch.full_like(made["gold"], objective.tags[OUTSIDE])}}

    def classes(self, objective: Tag, made: Made) -> dict[str, dict[str, float]]:
        told = (made["predicted"].numpy(), made["gold"].numpy(), made["words"].tolist(), list(objective.tags))
        return by_class(chunk_counts(*told))

    def example(self, objective: Tag, sample: Sample, made: Made) -> dict[str, Any]:
        names, places = list(objective.tags), made["places"].tolist()

        def stretches(tags: list[int]) -> list[list[Any]]:
            found = chunks(names[tag] for tag in tags)
            return [[places[begin][0], places[end - 1][1], name] for begin, end, name in found]

        told = {name: stretches(made[name].tolist()) for name in ("predicted", "gold")}
        return {"text": sample["text"], **told}


def tags_of(corpora: list[Corpus]) -> list[str]:
    """The tags of words of corpora: O, then the others sorted; of a stretch's name both B- and I-.

    Raises:
        WorkbenchError: the first of them, the training set, has none, or stretches of a text overlap.
    """
    found = [_names(corpus) for corpus in corpora]
    names = set().union(*found)
    if not found[0] and "tags" in corpora[0].manifest.fields:
        raise WorkbenchError(f"no word of corpus {corpora[0].name!r} has a tag but {OUTSIDE}; nothing can be learnt")
    if not found[0]:
        raise WorkbenchError(
            f"corpus {corpora[0].name!r} has no tags (it has {', '.join(corpora[0].manifest.fields)}); prepare texts "
            'with `tags`: {"text": "Ann sang", "tags": [[0, 3, "person"]]}, or with a tag for each word'
        )
    words = {name for name in names if WORD_TAG.fullmatch(name)}
    return [OUTSIDE, *sorted(words | {f"{prefix}-{name}" for name in names - words for prefix in "BI"})]


def _names(corpus: Corpus) -> set[str]:
    """What the tags of a corpus are called, without O."""
    names: set[str] = set()
    for sample in all_records(corpus):
        tags = sample.get("tags", ())
        check_apart(tags, f"corpus {corpus.name!r}, key {sample['key']!r}")
        names.update(name for _, _, name in tags)
    return names - {OUTSIDE}
