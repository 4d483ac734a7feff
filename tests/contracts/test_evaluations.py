"""Contracts of the downstream tasks: what a result says, and on what it must not depend."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.cases import World
from tests.contracts.finding import case_of, cases_of, over
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.writer import ShardWriter
from workbench.errors import WorkbenchError
from workbench.evaluation.evaluating import evaluate
from workbench.evaluation.finding import find_task
from workbench.evaluation.options import Scoring
from workbench.evaluation.result import Result
from workbench.files.drafts import sha256_of
from workbench.report.page import render
from workbench.report.panels import find_panel
from workbench.report.run import load_run
from workbench.runs.names import EVALUATIONS

IMAGE = re.compile(r'<img [^>]*>|<svg class="image".*?</svg>')
"""A page has one that stands several times once."""


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    made: dict[str, World] = {}

    def make(name: str) -> World:
        if name not in made:
            torch.set_num_threads(1)
            made[name] = case_of("evaluation", name).world(tmp_path_factory.mktemp("world"))
        return made[name]

    return make


@pytest.fixture
def world(name: str, worlds: Callable[[str], World]) -> World:
    return worlds(name)


@pytest.fixture(scope="session")
def results(worlds: Callable[[str], World]) -> Callable[[str], Result]:
    made: dict[str, Result] = {}
    return lambda name: made.get(name) or made.setdefault(name, scored(name, worlds(name), drawn=True))


@pytest.fixture
def result(name: str, results: Callable[[str], Result]) -> Result:
    """Of the case's options, in batches of four."""
    return results(name)


def scored(name: str, world: World, *, drawn: bool = False, **options: Any) -> Result:
    """With its pictures only where they are asked for: they take longer than all else."""
    task: Any = find_task(cases_of("evaluation")[name].part)
    if not drawn:
        task.draw = lambda *anything: None
    told = {"run": world.run, "corpus": world.corpus, "batch_size": 4, **world.options, **options}
    return evaluate(task, task.scoring(**told))


def plain(result: Result) -> dict[str, Any]:
    return json.loads(json.dumps(result.record()))


@over("evaluation")
def test_a_result_is_the_same_twice_whatever_the_batches(name: str, world: World, result: Result) -> None:
    first, other, again = (plain(each) for each in (result, *(scored(name, world, batch_size=size) for size in (3, 4))))
    assert first == again
    assert first["numbers"]
    for part in ("numbers", "counts"):
        assert other[part] == pytest.approx(first[part], rel=1e-5, abs=1e-6)
    assert other["inputs"] == first["inputs"]
    assert other["options"] == first["options"]
    assert [example.keys() for example in other["examples"]] == [example.keys() for example in first["examples"]]


@over("evaluation")
def test_a_result_names_what_went_in_and_lies_in_the_run(name: str, world: World, result: Result) -> None:
    corpus = Corpus.open(world.corpus)
    assert result.task == cases_of("evaluation")[name].part
    wanted = {"path": str(corpus.place), "records": corpus.records, "sha256": corpus.identity}
    assert result.inputs["corpus"] == wanted
    assert Path(result.inputs["checkpoint"]).is_relative_to(world.run)
    assert result.inputs["read"]["tokenizer"]
    assert all(isinstance(count, int) for count in result.counts.values())
    assert plain(result) in [json.loads(path.read_text()) for path in (world.run / EVALUATIONS).glob("*.json")]


@over("evaluation", "limit")
def test_a_limit_is_told(name: str, world: World, result: Result) -> None:
    some = scored(name, world, limit=2)
    assert some.options == {**result.options, "limit": 2}
    assert sum(some.counts.values()) < sum(result.counts.values())


@over("evaluation")
def test_half_precision_is_told(name: str, world: World, result: Result) -> None:
    """Numbers that networks made in another precision are not taken for those of float32."""
    scoring = find_task(cases_of("evaluation")[name].part).scoring
    if "precision" not in {field.name for field in fields(scoring)}:
        assert not issubclass(scoring, Scoring)  # what no network computes
        return
    half = scored(name, world, precision="bfloat16")
    assert half.options == {**result.options, "precision": "bfloat16"}
    assert half.numbers.keys() == result.numbers.keys()
    wanted = (plain(result), plain(half))
    lying = [json.loads(path.read_text()) for path in (world.run / EVALUATIONS).glob("*.json")]
    assert all(each in lying for each in wanted)


@over("evaluation")
def test_panels_show_the_result(name: str, world: World, result: Result) -> None:
    assert result.panels
    run = load_run(world.run)
    for path in result.panels:
        made = find_panel(path)(run)
        assert made is not None
        assert IMAGE.sub("", made) in IMAGE.sub("", render([run]))


@over("evaluation")
def test_a_run_without_the_head_is_refused(name: str, world: World) -> None:
    task = find_task(cases_of("evaluation")[name].part)
    with pytest.raises(WorkbenchError, match=world.without.name):
        task.open(task.scoring(run=world.without, corpus=world.corpus, **world.options))


@over("evaluation")
def test_an_override_changes_what_is_opened(name: str, world: World) -> None:
    task = find_task(cases_of("evaluation")[name].part)
    told: dict[str, Any] = {"run": world.run, "corpus": world.corpus, **world.options}
    assert task.open(task.scoring(**told, overrides=["seed=1234"])).loaded.recipe.seed == 1234


@over("evaluation")
def test_a_corpus_of_something_else_is_refused(name: str, world: World, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "graph" / "part-000000.tar", kind="triples") as writer:
        writer.add("a", {"id": "Q1", "triples": [{"relation": "P1", "tail": "Q2"}]})
    assert writer.info is not None
    finish_corpus(tmp_path / "graph", kind="triples", shards=[writer.info], provenance={})
    with pytest.raises(WorkbenchError):
        scored(name, world._replace(corpus=str(tmp_path / "graph")))


@over("evaluation")
def test_a_run_is_left_as_it_is(name: str, world: World) -> None:
    weights = {path: sha256_of(path) for path in world.run.rglob("*.safetensors")}
    scored(name, world)
    assert weights == {path: sha256_of(path) for path in world.run.rglob("*.safetensors")}
