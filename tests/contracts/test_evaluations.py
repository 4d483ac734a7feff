"""Contracts of the downstream tasks: what a result says, and on what it must not depend."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sacrebleu
import torch
from scipy import stats

from tests.contracts.case_finder import case_of, cases_of, over
from tests.contracts.cases import World
from vision.metrics.caption_scores import words_of
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.evaluation.options import Scoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.evaluation_items import read_items
from workbench.evaluation.scoring.prediction import Predictor
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.task_finder import find_task
from workbench.models.network import Network
from workbench.report.page import render
from workbench.report.panels import find_panel
from workbench.report.run import load_run
from workbench.runs.names import EVALUATIONS

Lines = list[dict[str, Any]]
Headline = Callable[[Lines], dict[str, float]]
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


class Runs(NamedTuple):
    """A task scored in its case's options: in batches of three, then of four, then so with a file of predictions."""

    other: Result
    result: Result
    again: Result
    predictions: Path
    weights_stayed: bool


@pytest.fixture(scope="session")
def every_run(worlds: Callable[[str], World], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runs]:
    """Of a task, made when the first of its checks asks for them."""
    made: dict[str, Runs] = {}

    def make(name: str) -> Runs:
        if name not in made:
            world, file = worlds(name), tmp_path_factory.mktemp("predictions") / "items.jsonl"
            other, result = scored(name, world, batch_size=3), scored(name, world, drawn=True)
            weights = {path: sha256_of(path) for path in world.run.rglob("*.safetensors")}
            again = scored(name, world, predictions=file)
            stayed = weights == {path: sha256_of(path) for path in world.run.rglob("*.safetensors")}
            made[name] = Runs(other, result, again, file, stayed)
        return made[name]

    return make


@pytest.fixture
def runs(name: str, every_run: Callable[[str], Runs]) -> Runs:
    return every_run(name)


@pytest.fixture
def result(runs: Runs) -> Result:
    """Of the case's options, in batches of four."""
    return runs.result


def scored(name: str, world: World, *, drawn: bool = False, **options: Any) -> Result:
    """With its photographs only where they are asked for: they take longer than all else."""
    task: Any = find_task(cases_of("evaluation")[name].part)
    if not drawn:
        task.draw = lambda *anything: None
    reported = {"run": world.run, "corpus": world.corpus, "batch_size": 4, **world.options, **options}
    return evaluate(task, task.scoring(**reported))


def plain(result: Result) -> dict[str, Any]:
    return json.loads(json.dumps(result.record()))


@over("evaluation")
def test_a_result_is_the_same_twice_whatever_the_batches(name: str, runs: Runs) -> None:
    other, first, again = (plain(each) for each in runs[:3])
    assert first == again  # the file of predictions that is written next to it changes nothing
    assert first["numbers"]
    ranks = [each["numbers"].pop("spearman", 0.0) for each in (first, other)]
    assert ranks[0] == pytest.approx(ranks[1], abs=0.05)  # of numbers that are equal up to rounding
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
def test_a_limit_is_reported(name: str, world: World, result: Result) -> None:
    some = scored(name, world, limit=2)
    assert some.options == {**result.options, "limit": 2}
    assert sum(some.counts.values()) < sum(result.counts.values())


@over("evaluation")
def test_half_precision_is_reported(name: str, world: World, result: Result) -> None:
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
    reported: dict[str, Any] = {"run": world.run, "corpus": world.corpus, **world.options}
    assert task.open(task.scoring(**reported, overrides=["seed=1234"])).loaded.recipe.seed == 1234


@over("evaluation")
def test_a_corpus_of_something_else_is_refused(name: str, world: World, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "graph" / "part-000000.tar", kind="triples") as writer:
        writer.add("a", {"id": "Q1", "triples": [{"relation": "P1", "tail": "Q2"}]})
    assert writer.info is not None
    finish_corpus(tmp_path / "graph", kind="triples", shards=[writer.info], provenance={})
    with pytest.raises(WorkbenchError):
        scored(name, world._replace(corpus=str(tmp_path / "graph")))


@over("evaluation")
def test_weights_that_are_not_finite_have_no_number(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would get ordinary numbers: of the first class of a list, or of a random order."""
    task: Any = find_task(cases_of("evaluation")[name].part)
    opened = task.open

    def broken(scoring: Any) -> Any:
        run = opened(scoring)
        with torch.no_grad():
            for weight in run.loaded.model.parameters():
                weight.fill_(torch.nan)
        return run

    if not issubclass(task.scoring, Scoring):
        return  # no network scores
    task.open = broken
    with pytest.raises(WorkbenchError, match=rf"task {task.name}: .* weights of the run are not finite .*: use an "):
        evaluate(task, task.scoring(run=world.run, corpus=world.corpus, batch_size=4, **world.options), show=False)


@over("evaluation", "states")
def test_a_state_that_is_not_finite_ends_an_evaluation(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a sequence that overflows under float16."""
    task: Any = find_task(cases_of("evaluation")[name].part)
    forward = Network.forward

    def overflowing(self: Network, *given: Any, **named: Any) -> Any:
        states = {name: rows.clone() for name, rows in forward(self, *given, **named).items()}
        for rows in states.values():
            rows[:1] = torch.nan
        return states

    if not issubclass(task.scoring, Scoring):
        return  # no network scores
    monkeypatch.setattr(Network, "forward", overflowing)
    count = r"\d+ of (the )?\d+ (sequences|items)"
    message = rf"task {task.name}: .*{count} .*(NaN or infinite).* --precision bfloat16 or float32"
    with pytest.raises(WorkbenchError, match=message):
        scored(name, world, precision="float16")


@over("evaluation")
def test_a_run_is_left_as_it_is(name: str, runs: Runs) -> None:
    assert runs.weights_stayed


@over("evaluation")
def test_every_item_is_reported_and_its_line_is_enough_to_compute_the_numbers(name: str, runs: Runs) -> None:
    """`--predictions FILE` has a line for each item; the sums over the lines equal the printed numbers."""
    _, _, again, file, _ = runs
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == again.num_items > 0
    assert all({"key", "gold"} <= line.keys() or {"nats", "values"} & line.keys() for line in lines)
    assert all(isinstance(line["key"], str) and line["key"] for line in lines)
    tallies = read_items(file).tallies
    assert tallies
    for number, tally in tallies.items():
        assert tally.whole == pytest.approx(again.numbers[number], rel=1e-6, abs=1e-9), number
    lacking = [n for n in again.numbers if n not in tallies and n.count("/") < 2 and " of " not in n]
    assert lacking == [n for n in lacking if n == "unknown_share"]


@over("evaluation")
def test_the_headline_follows_from_gold_and_prediction_alone(name: str, world: World, result: Result) -> None:
    """By a function of this file, which knows nothing of tallies."""
    computed = HEADLINES[cases_of("evaluation")[name].part](result.predictions.lines)
    assert computed
    for number, value in computed.items():
        assert value == pytest.approx(result.numbers[number], rel=1e-6, abs=1e-9), number


RIGHT = frozenset({"labels", "tags", "answers", "answer_spans", "answer", "types"})
"""The fields of samples that hold right answers."""
APART = {"link-prediction", "retrieval"}
"""Tasks whose questions are not the records of their test set; their own tests compare the two."""


@over("evaluation")
def test_a_prediction_is_that_of_an_evaluation_and_reads_no_right_answer(
    name: str, world: World, result: Result, tmp_path: Path
) -> None:
    task: Any = find_task(cases_of("evaluation")[name].part)
    if task.predicting is None or task.name in APART:
        return
    known = {field.name for field in fields(task.predicting)}
    options = {option: value for option, value in world.options.items() if option in known}
    predictor = Predictor.opened(task, task.predicting(run=world.run, batch_size=4, **options))
    lines = {line["key"]: [] for line in result.predictions}
    for line in predictor.of_corpus(asked_corpus(Corpus.open(world.corpus), tmp_path / "asked")):
        lines.setdefault(line["key"], []).append(line["prediction"])
    wanted: dict[str, list[Any]] = {key: [] for key in lines}
    for line in result.predictions:
        wanted[line["key"]].append(line["prediction"])
    for key, values in wanted.items():
        numbers = all(isinstance(value, float) for value in values)
        assert not values or lines[key] == (pytest.approx(values, rel=1e-4, abs=1e-6) if numbers else values), key


def asked_corpus(corpus: Corpus, folder: Path) -> Corpus:
    """The corpus without the right answers."""
    with ShardWriter(folder / "part-000000.tar", kind=corpus.kind) as writer:
        for sample in corpus:
            left = {field: value for field, value in sample.items() if field not in RIGHT}
            if "questions" in left:
                left["questions"] = [{**question, "answers": []} for question in left["questions"]]
            kept = {field: value for field, value in left.items() if field not in ("key", "corpus", "draw")}
            writer.add(str(sample["key"]), kept)
    assert writer.info is not None
    finish_corpus(folder, kind=corpus.kind, shards=[writer.info], provenance={}, about=corpus.manifest.about)
    return Corpus.open(folder)


def _mean(values: Iterable[float]) -> float:
    reported = list(values)
    return sum(reported) / len(reported)


def _exact(number: str, right: Callable[[Any], bool] = lambda line: line["prediction"] == line["gold"]) -> Headline:
    return lambda lines: {number: _mean(map(right, lines))}


def _ranked(lines: Lines, field: str = "rank") -> dict[str, float]:
    return {"mrr": _mean(1 / line[field] for line in lines if field in line)}


def _spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """The chunks of BIO tags, as CoNLL's evaluation reads them."""
    found, begin = set(), None
    for place, tag in enumerate([*tags, "O"]):
        if begin is not None and (tag[0] in "OB" or tag[2:] != tags[begin][2:]):
            found.add((begin, place, tags[begin][2:]))
            begin = None
        if tag != "O" and begin is None:
            begin = place
    return found


def _tagged(lines: Lines) -> dict[str, float]:
    pairs = [(_spans(line["prediction"]), _spans(line["gold"])) for line in lines]
    both = sum(len(ours & theirs) for ours, theirs in pairs)
    return {"f1": 2 * both / max(1, sum(len(ours) + len(theirs) for ours, theirs in pairs))}


def _typed(lines: Lines) -> dict[str, float]:
    pairs = [({*line["prediction"]}, {*line["gold"]}) for line in lines]
    both = sum(len(ours & theirs) for ours, theirs in pairs)
    return {"loose_micro/f1": 2 * both / sum(len(ours) + len(theirs) for ours, theirs in pairs)}


def _linked(lines: Lines) -> dict[str, float]:
    links = [
        ({(*place, e) for *place, e in x["prediction"]}, {(*p, e) for *p, es in x["gold"] for e in es}) for x in lines
    ]
    both = sum(len(ours & theirs) for ours, theirs in links)
    return {"precision": both / sum(len(ours) for ours, _ in links)}


def _retrieved(lines: Lines) -> dict[str, float]:
    of = {side: [x["rank"] for x in lines if x["query"] == side] for side in ("text", "image")}
    found = {"image_retrieval/r1": of["text"], "text_retrieval/r1": of["image"]}
    return {number: _mean(rank <= 1 for rank in ranks) for number, ranks in found.items()}


def _answered(lines: Lines) -> dict[str, float]:
    """Of several annotators by the rule in the paper; of one by equality. The answers here are single plain words."""

    def accuracy(line: Any) -> float:
        same = [answer == line["prediction"] for answer in line["gold"]]
        if len(same) == 1:
            return float(same[0])
        return _mean(min(1.0, (sum(same) - mine) / 3) for mine in same)

    return {"accuracy": 100 * _mean(accuracy(line) for line in lines if line["gold"])}


def _correlated(lines: Lines) -> dict[str, float]:
    x, y = ([line[name] for line in lines] for name in ("prediction", "gold"))
    return {"pearson": statistics.correlation(x, y)} if len({*x}) > 1 else {"pearson": 0.0}


def _likely(number: str) -> Headline:
    return lambda lines: {number: math.exp(sum(x["nats"] for x in lines) / sum(x["tokens"] for x in lines))}


def _translated(lines: Lines) -> dict[str, float]:
    made, gold = ([line[name] for line in lines] for name in ("prediction", "gold"))
    return {"bleu": sacrebleu.corpus_bleu(made, [gold]).score, "chrf": sacrebleu.corpus_chrf(made, [gold]).score}


def _captioned(lines: Lines) -> dict[str, float]:
    """BLEU of single words by hand: clipped matches, and the length of the closest reference."""
    words = [(words_of(x["prediction"]), [words_of(one) for one in x["gold"]]) for x in lines]
    hits = sum(
        min(count, max(one.count(word) for one in gold))
        for made, gold in words
        for word, count in Counter(made).items()
    )
    length = sum(len(made) for made, _ in words)
    closest = sum(min((abs(len(one) - len(made)), len(one)) for one in gold)[1] for made, gold in words)
    short = math.exp(min(0.0, 1 - closest / length)) if length else 0.0
    return {"bleu1": 100 * short * hits / length if length else 0.0}


def _random_cosines(lines: Lines) -> dict[str, float]:
    return {"anisotropy/layer_1": _mean(line["values"][1] for line in lines if "words" in line)}


def _ndcg(lines: Lines) -> dict[str, float]:
    def gain(grades: Iterable[float]) -> float:
        return sum(grade / math.log2(rank + 1) for rank, grade in enumerate([*grades][:10], 1))

    grades = [dict(line["gold"]) for line in lines]
    found = (gain(of.get(name, 0) for name in line["prediction"]) for line, of in zip(lines, grades, strict=True))
    ideal = (gain(sorted(of.values(), reverse=True)) for of in grades)
    return {"ndcg@10": _mean(one / best for one, best in zip(found, ideal, strict=True))}


def _rated(lines: Lines) -> dict[str, float]:
    return {
        "spearman": float(stats.spearmanr(*([line[x] for line in lines] for x in ("prediction", "gold"))).statistic)
    }


HEADLINES: dict[str, Headline] = {
    "anisotropy": _random_cosines,
    "cka": lambda lines: {"cka/layer_1": sum(line["values"][1] for line in lines)},
    "heads": _exact("accuracy/removed_0"),
    "robustness": _exact("accuracy"),
    "layers": _exact("accuracy/layer_2"),
    "search": _ndcg,
    "vectors": _rated,
    "classify": _exact("accuracy"),
    "cloze": _exact("accuracy"),
    "choose": _ranked,
    "extract": _exact(
        "exact_match", lambda line: line["prediction"].lower() in [x.lower() for x in line["gold"] or [""]]
    ),
    "tag": _tagged,
    "regress": _correlated,
    "generate": _translated,
    "perplexity": _likely("perplexity"),
    "pseudo-perplexity": _likely("pseudo_perplexity"),
    "vqa": _answered,
    "retrieval": _retrieved,
    "caption": _captioned,
    "zero-shot": _exact("accuracy"),
    "entity-typing": _typed,
    "relations": _exact("accuracy"),
    "facts": _ranked,
    "linking": _linked,
    "disambiguation": _ranked,
    "supersenses": _exact("allowed_accuracy", lambda line: line["prediction"] in line["gold"]),
    "link-prediction": lambda lines: {"mrr": _mean(1 / x[side] for x in lines for side in ("head_rank", "tail_rank"))},
    "relation-prediction": _ranked,
    "triple-classification": _exact("accuracy"),
}
