"""What only some systems of `benchmarks.knowledge_results` can do, asked of their pretrained runs, without fine-tuning.

Facts that no system has seen, as clozes; held-out triples, ranked and distinguished from false ones; the entities of
mentions; supersenses of hidden words. One command each; its result lies in the run, or of vectors and the linker in
OUTPUT/evaluations. Next to them stand their baselines: frequent objects, the majority, vectors trained by pykeen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import call
from benchmarks.knowledge_systems import SYSTEMS
from benchmarks.result_tables import spread
from workbench.evaluation.scoring.evaluation import results_of
from workbench.runs.metrics_file import read_result
from workbench.runs.names import is_run

TRANSE, LINKER = "TransE (pykeen)", "the corpus's linker"
"""What is asked that is no system."""
TRIPLES = (TRANSE, "kepler", "kg-bert")
WITHOUT_WORDS = ("minilm", "kg-bert", "k-adapter", "k-adapter-linguistic", "k-adapter-both")
"""Systems that predict no words."""
RANKED = ("--candidates", "50", "--limit", "60")
DECIDED = ("--limit", "400")


@dataclass(frozen=True)
class Ability:
    """A question: its task, corpus and runs, its options, and the reported numbers."""

    task: str
    corpus: str
    asked: tuple[str, ...]
    shown: tuple[str, ...]
    options: tuple[str, ...] = ()


def abilities(corpora: Path) -> dict[str, Ability]:
    """By title."""
    words = tuple(name for name in SYSTEMS if name not in WITHOUT_WORDS)
    listed = ("--candidates", str(corpora / "facts/candidates.json"))
    graph = ("--graph", str(corpora / "described"))
    ranked = (*graph, "--known", str(corpora / "described-valid"), *RANKED)
    parts = {"negatives": "test-false", "valid": "valid", "valid-negatives": "valid-false"}
    options = [word for name, part in parts.items() for word in (f"--{name}", str(corpora / f"described-{part}"))]
    senses = ("allowed_accuracy", "single_accuracy")
    linked = ("given mentions: accuracy", "F1")
    return {
        "Facts that no graph has": Ability("facts", "facts", words, ("mrr", "hits@1"), listed),
        "Links among 50": Ability("link-prediction", "described-test", TRIPLES, ("mrr", "hits@10"), ranked),
        "True triples": Ability(
            "triple-classification", "described-test", TRIPLES, ("accuracy", "f1"), (*graph, *options, *DECIDED)
        ),
        "What mentions mean": Ability("disambiguation", "fewrel-test-candidates", ("knowbert",), ("accuracy",)),
        "Links in texts": Ability("linking", "raw/fewrel-test", (LINKER,), linked),
        "Supersenses of hidden words": Ability("supersenses", "fewrel-test", ("sensebert",), senses),
    }


def ask(seeds: int, systems: list[str], output: Path) -> None:
    """Ask those of the systems that are pretrained; what is answered already is not asked again."""
    corpora = output / "corpora"
    for ability in abilities(corpora).values():
        for name in ability.asked:
            for place in places_of(name, seeds, output):
                if (name in systems or name not in SYSTEMS) and not answers(ability, place, output):
                    call("evaluate", ability.task, *question(ability, name, place, corpora), place=output)


def question(ability: Ability, name: str, place: Path, corpora: Path) -> tuple[str, ...]:
    """The arguments of `workbench evaluate TASK`."""
    corpus = corpora / ability.corpus
    if name == LINKER:
        return (str(corpus), "--linker", str(place), *ability.options)
    if name in SYSTEMS and ability.task == "facts":
        corpus = corpus.with_name(corpus.name + SYSTEMS[name].texts)
        return (str(place), str(corpus), *ability.options, *SYSTEMS[name].asked)
    return (str(place), str(corpus), *ability.options)


def places_of(name: str, seeds: int, output: Path) -> list[Path]:
    """The runs of a system that are there, or what stands for one that is none."""
    others = {TRANSE: output / "corpora/described.safetensors", LINKER: output / "corpora/linker"}
    if name in others:
        return [others[name]]
    runs = [output / "runs" / f"{name}-seed-{seed}" for seed in range(seeds)]
    return [run for run in runs if is_run(run)]


def answers(ability: Ability, place: Path, output: Path) -> list[dict[str, Any]]:
    """The results of an ability: in the run, or where `evaluate` leaves those of what is none."""
    corpus = Path(ability.corpus).name
    found = (output / results_of(place)).glob(f"{ability.task}-{corpus}*.json")
    return [read_result(path) for path in sorted(found)]


def ability_tables(seeds: int, output: Path) -> dict[str, list[list[str]]]:
    """By title a head and rows: who was asked, and the baselines below."""
    tables = {}
    for title, ability in abilities(output / "corpora").items():
        rows, baselines = [], {}
        for name in ability.asked:
            found = [one for place in places_of(name, seeds, output) for one in answers(ability, place, output)]
            if found:
                cells = [spread([one["numbers"][number] for one in found]) for number in ability.shown]
                rows.append([name, str(len(found)), *cells])
                baselines = found[0].get("baselines", {}) | baselines
        alongside = [
            [name, "", *(_reported(of.get(number)) for number in ability.shown)] for name, of in baselines.items()
        ]
        if rows:
            tables[title] = [["", "seeds", *ability.shown], *rows, *alongside]
    return tables


def _reported(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
