"""Entity linking: the entities of given mentions, and of mentions that the linker finds.

The links of a linker are compared with the known links of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kg.evaluation.gold_mentions import AnnotatedText as Text
from kg.evaluation.gold_mentions import Stretch, annotated, read_same
from kg.evaluation.task_options import LinkingScoring
from kg.linking.linker import Linker
from kg.metrics.linking_scores import FoundEntities, GivenMention, detection_tallies, mention_tallies
from workbench.components.build_context import Identities
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.result import Result
from workbench.metrics.tallies import Tally
from workbench.sequences.entities import spaces_in

COMMON, FIRST = "most common entity", "first candidate"
EXAMPLES, AROUND = 12, 40


@dataclass(frozen=True)
class OpenedLinker:
    """A linker opened for evaluation (`workbench.evaluation.scoring.evaluated_run.OpenedRun`)."""

    linker: Linker
    world: World = field(default_factory=World)

    @property
    def checkpoint(self) -> str:
        return f"{self.linker.path} ({self.linker.name} {self.linker.version})"

    @property
    def read(self) -> Identities:
        return {}

    def check_linked(self, corpus: Corpus) -> None:
        """A linker reads text alone."""


class Linking(DownstreamTask[Tuning, LinkingScoring]):
    """Scores of given mentions and of links, next to those of the most common entity of each name."""

    scoring = LinkingScoring

    def open(self, scoring: LinkingScoring) -> OpenedLinker:
        return OpenedLinker(Linker.load(scoring.run))

    def score(self, run: OpenedLinker, corpus: Corpus, scoring: LinkingScoring) -> Result:
        _check_space(run.linker, corpus, given=scoring.same is not None)
        made = _Compared(run.linker, scoring.min_score)
        same = read_same(scoring.same) if scoring.same is not None else {}
        for text in annotated(corpus, same, scoring.limit, signs=scoring.signs):
            made.add(text)
        if not made.known:
            raise WorkbenchError(
                f"the linker {scoring.run} knows none of the {made.mentions:,} mentions' entities in {corpus.place}: "
                f"ids there are as {made.unknown!r}, the linker's as {run.linker.tables.ids[0]!r}; map them with "
                "--same"
            )
        seen = "; the linker has seen these links (--anchors)" if corpus.identity in run.linker.learned_from else ""
        return Result(
            task=self.name,
            numbers=made.numbers(""),
            counts={
                "texts": len(made.found[""]),
                "given mentions": made.mentions,
                "of them NIL": made.mentions - made.known,
                **({"left out: no candidate is right": made.unjudged} if made.unjudged else {}),
                "links found": sum(len(text.found) for text in made.found[""]),
            },
            variant=f"micro; a link is right with both its ends and its entity{seen}",
            baselines={name: made.numbers(name) for name in (COMMON, FIRST) if any(made.given[name])},
            examples=made.wrong,
            predictions=EvaluationItems(made.lines, made.tallies("")),
        )


def _check_space(linker: Linker, corpus: Corpus, given: bool) -> None:
    """
    Raises:
        WorkbenchError: the texts' links are to another graph than the linker's, and nothing says which are the same.
    """
    linked = spaces_in(corpus.manifest.about)
    if linked and linker.space is not None and not given and not any(map(linker.space.same, linked)):
        raise WorkbenchError(
            f"{corpus.place} is linked to the graph {', '.join(map(str, linked))}, the linker's is {linker.space}: an "
            "id of both means other entities. Take a linker of that graph, or map the ids with --same"
        )


class _Compared:
    """The answers of the linker ("") and of the baselines, by name, and some mentions with a wrong entity."""

    def __init__(self, linker: Linker, min_score: float) -> None:
        self.linker, self.min_score = linker, min_score
        self.given: dict[str, list[list[GivenMention]]] = {"": [], COMMON: [], FIRST: []}
        self.found: dict[str, list[FoundEntities]] = {"": [], COMMON: []}
        self.mentions = self.known = self.unjudged = 0
        self.unknown = ""
        self.wrong: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []

    def numbers(self, name: str) -> dict[str, float]:
        """The scores of the linker or of a baseline."""
        return {number: tally.whole for number, tally in self.tallies(name).items()}

    def tallies(self, name: str) -> dict[str, Tally]:
        """The tallies of each text for these scores."""
        given = {f"given mentions: {score}": tally for score, tally in mention_tallies(self.given[name]).items()}
        return given | (detection_tallies(self.found[name]) if name in self.found else {})

    def add(self, text: Text) -> None:
        """Compare the links of one text."""
        gold = {place: {e for e in entities if self.linker.knows(e)} for place, entities in text.mentions.items()}
        self.unknown = self.unknown or next((e for entities in text.mentions.values() for e in entities), "")
        self.unjudged += len(text.unknown)
        for of in self.given.values():
            of.append([])
        for place, entities in gold.items():
            self.mentions += 1
            self.known += bool(entities)
            self._add_given(text, place, entities)
        self._add_found(text, gold)

    def _add_given(self, text: Text, place: Stretch, gold: set[str]) -> None:
        name = text.text[slice(*place)]
        ranked = self._likely(self.linker.candidates(name, text.text, *place))
        self.given[""][-1].append(GivenMention(gold, ranked))
        self.given[COMMON][-1].append(GivenMention(gold, self._likely(self.linker.candidates(name))))
        if place in text.first:
            self.given[FIRST][-1].append(GivenMention(gold, [text.first[place]]))
        if len(self.wrong) < EXAMPLES and gold and (not ranked or ranked[0] not in gold):
            around = text.text[max(0, place[0] - AROUND) : place[1] + AROUND]
            self.wrong.append({"text": around, "mention": name, "gold": sorted(gold), "found": list(ranked[:3])})

    def _likely(self, candidates: Iterable[tuple[str, float]]) -> list[str]:
        return [entity for entity, share in candidates if share >= self.min_score]

    def _add_found(self, text: Text, gold: Mapping[Stretch, set[str]]) -> None:
        found = {(start, end): entity for start, end, entity, _ in self.linker.link(text.text, self.min_score)}
        links = {place: entity for place, entity in found.items() if place not in text.unknown}
        common = {place: self.linker.candidates(text.text[slice(*place)])[0][0] for place in links}
        self.found[""].append(FoundEntities(gold, links))
        self.found[COMMON].append(FoundEntities(gold, common))
        row = {
            "gold": [[*place, sorted(entities)] for place, entities in sorted(text.mentions.items())],
            "prediction": [[*place, entity] for place, entity in sorted(links.items())],
        }
        self.lines.append({"key": text.key, **row})
