"""Token classification (named entities, parts of speech): accuracy, and F1 of the chunks.

Data sets are CoNLL 2003, OntoNotes and MSRA NER, for example.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import accumulate, islice
from typing import Any

import torch

from workbench.core.errors import WorkbenchError, unknown
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.evaluation.scoring.stated_tags import stated_tags
from workbench.evaluation.task_options import TagPredicting, TagScoring, TagTuning
from workbench.metrics.chunks import chunk_counts, chunks, tag_tallies
from workbench.metrics.classes import by_class, unknown_classes
from workbench.metrics.tag_schemes import OUTSIDE, SPANS, SchemeName, has_ends, in_iobes, scheme_of
from workbench.objectives.token_classification import TokenClassification, check_apart
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)


class TokenClassificationTask(ObjectiveTask[TagTuning, TagScoring]):
    """A tag for every word."""

    tuning = TagTuning
    scoring = TagScoring
    predicting = TagPredicting
    objective: type[Objective] = TokenClassification
    panels = ("workbench.evaluation.task_panels:tagged",)

    def setup(self, tuning: TagTuning, base: Recipe) -> Setup:
        places = [tuning.corpus, *([tuning.held_out] if tuning.held_out else [])]
        scheme, tags = tags_of([Corpus.open(place) for place in places], tuning.scheme)
        objective = {"objective": "token_classification", "tags": tags, "scheme": scheme}
        return Setup(text_sequence(base, "tagged_text", tuning.max_length), objective, asks=("tags",))

    def prepare(self, objective: TokenClassification, corpus: Corpus, scoring: TagScoring) -> None:
        """Find the scheme of the corpus, which may differ from that of the training set."""
        names, where = _names(corpus, scoring.limit), f"corpus {corpus.name!r}"
        own = objective.scheme
        known = all(objective.spelt(name)[0] in objective.tags for name in names)
        fits = own is None or known or (own != SPANS and all(in_iobes(name, own) for name in names))
        scheme = scoring.scheme or (own if fits else scheme_of(names, where))
        if scheme != own:
            logger.warning("%s: its tags are read as %s; those of the training set are %s", where, scheme, own)
        objective.read_as(scheme, set())
        spelt = {tag for name in names for tag in objective.spelt(name) if tag}
        if names and not (spelt - {OUTSIDE}) & objective.tags.keys():
            raise unknown("tag", next(iter(sorted(spelt - {OUTSIDE}))), objective.tags, where)
        objective.read_as(scheme, spelt)

    def unknown(self, objective: TokenClassification, made: GatheredTensors) -> dict[str, int]:
        return unknown_classes(made["gold"].numpy(), objective.names, len(objective.tags))

    def variant(self, objective: TokenClassification, scoring: TagScoring) -> str:
        return f"tags read as {objective.scheme}" if objective.scheme else ""

    def needs(self, objective: TokenClassification) -> str:
        return "texts with `tags`"

    def counts(
        self, objective: TokenClassification, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, int]:
        names = objective.names
        texts = made["gold"].split(made["words"].tolist())
        found = sum(len(chunks(names[tag] for tag in text.tolist())) for text in texts)
        lost = int((~made["read"]).sum())
        counted = {"words": len(made["gold"]), "chunks": found, "tags": len(objective.tags)}
        return counted | ({"words without a token": lost} if lost else {})

    def counted(self, objective: TokenClassification, targets: Mapping[str, Any]) -> int:
        return len(targets["gold"]) if "gold" in targets else 0

    def predictions(self, objective: TokenClassification, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A text an item, with the tags of its words: `words` are their places in characters, `scores` how probable the
        predicted tags are."""
        names, sizes = objective.names, made["words"].tolist()
        of_texts = [[names[tag] for tag in made[which].tolist()] for which in ("gold", "predicted")]
        ends = list(accumulate(sizes))
        lines = [
            {
                "key": keys[end - size],
                "gold": of_texts[0][end - size : end],
                "prediction": of_texts[1][end - size : end],
                "words": made["places"][end - size : end].tolist(),
                "scores": made["confidence"][end - size : end].tolist(),
            }
            for end, size in zip(ends, sizes, strict=True)
        ]
        return EvaluationItems(lines, tag_tallies([x["prediction"] for x in lines], [x["gold"] for x in lines]))

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: Any) -> Sample:
        return {**sample, "tags": []}

    def answered(self, objective: TokenClassification, line: dict[str, Any], sample: Sample) -> dict[str, Any]:
        """With the chunks that the tags spell, each with the mean probability of its words' tags."""
        places, sure, text = line["words"], line["scores"], str(sample["text"])
        found = [
            {
                "start": places[begin][0],
                "end": places[end - 1][1],
                "text": text[places[begin][0] : places[end - 1][1]],
                "label": name,
                "probability": sum(sure[begin:end]) / (end - begin),
            }
            for begin, end, name in chunks(line["prediction"])
        ]
        return {**super().answered(objective, line, sample), "chunks": found}

    def baselines(
        self, run: EvaluatedRun, objective: TokenClassification, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """No chunk at all, and the linked mentions with their facts alone, where the run reads any."""
        none = torch.full_like(made["gold"], objective.tags[OUTSIDE])
        guesses = {f"always {OUTSIDE}": none, "the graph alone": stated_tags(run, objective.tags, made, samples)}
        return {name: {**made, "predicted": guess} for name, guess in guesses.items() if guess is not None}

    def known_before(self, run: EvaluatedRun, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        """The chunks that the facts of the linked mentions give away."""
        objective = run.objective.objective
        assert isinstance(objective, TokenClassification)
        stated = stated_tags(run, objective.tags, made, samples)
        if stated is None:
            return {}
        counts = chunk_counts(stated.numpy(), made["gold"].numpy(), made["words"].tolist(), objective.names)
        return {"chunks that the graph states": sum(right for right, _, _ in counts.values())}

    def classes(self, objective: TokenClassification, made: GatheredTensors) -> dict[str, dict[str, float]]:
        tags = (made["predicted"].numpy(), made["gold"].numpy(), made["words"].tolist(), objective.names)
        return by_class(chunk_counts(*tags))

    def example(self, objective: TokenClassification, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        names, places = objective.names, made["places"].tolist()

        def stretches(tags: list[int]) -> list[list[Any]]:
            found = chunks(names[tag] for tag in tags)
            return [[places[begin][0], places[end - 1][1], name] for begin, end, name in found]

        spans_of = {name: stretches(made[name].tolist()) for name in ("predicted", "gold")}
        return {"text": sample["text"], **spans_of}


def tags_of(corpora: list[Corpus], scheme: SchemeName | None) -> tuple[SchemeName, list[str]]:
    """The scheme of corpora (by default found by all of their tags), and the tags of their words as IOBES spells them:
    O, then the others sorted; of a span's name both B- and I-.

    Raises:
        WorkbenchError: the first of them, the training set, has none, spans of a text overlap, or the tags are of no
            scheme, or of two.
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
    scheme = scheme or scheme_of(names, " and ".join(f"corpus {corpus.name!r}" for corpus in corpora))
    words = [{tag for name in of if (tag := in_iobes(name, scheme))} for of in found]
    if len({has_ends(of) for of in words} - {None}) > 1:
        raise WorkbenchError(
            f"the corpora {' and '.join(repr(corpus.name) for corpus in corpora)} have different schemes of tags: one "
            "marks where chunks end, the other doesn't. Write both in one scheme, or leave --held-out out: `evaluate "
            "tag` reads another scheme"
        )
    spans = {f"{letter}-{name}" for name in names if not in_iobes(name, scheme) for letter in "BI"}
    changed = sum(in_iobes(name, scheme) not in (name, None) for name in names)
    if changed:
        logger.warning("%d of %d names of tags are read as %s, and spelled as IOBES", changed, len(names), scheme)
    return scheme, [OUTSIDE, *sorted(set().union(spans, *words) - {OUTSIDE})]


def _names(corpus: Corpus, limit: int | None = None) -> set[str]:
    """The names of the tags of a corpus, or of its first records, without O."""
    names: set[str] = set()
    for sample in islice(corpus, limit):
        tags = sample.get("tags", ())
        check_apart(tags, f"corpus {corpus.name!r}, key {sample['key']!r}")
        names.update(name for _, _, name in tags)
    return names - {OUTSIDE}
