"""Every system of texts, with a graph or without, does by command what it can, or says why not.

Each recipe is trained for one step in its small size, and that run is taken through the commands. The tasks that
fine-tune the text as it stands are tried with every recipe; those whose commands differ by the network alone (pairs of
texts, writing, checkpoints) with one recipe of each kind of network, the first by name. The gate has so few recipes
that one of them has each layer, embedding and transform, and each does one of the tasks in turn; `make test-systems`
has the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kg.objectives.entity_linking import EntityLinking
from kg.objectives.supersense import Supersense
from tests.recipes.conftest import COUNTRIES, TOWNS, write_corpus
from tests.recipes.shipped_recipes import kinds, marked, of_each_part, reads_images, recipe, trees
from tests.recipes.systems import ONE, objectives, one_step, refusal
from workbench.components.building import short_names
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.encoding import Encoder
from workbench.interop.checkpoint_writer import export
from workbench.objectives.mlm import Mlm
from workbench.pretraining.objective import Objective
from workbench.recipe.reading import recipe_names
from workbench.runs.loaded_run import load

NAMES = [name for name in recipe_names() if trees()[name]["kind"] != "vision-language" and not reads_images(name)]
GATE = of_each_part(NAMES)
TAKEN = ("key", "corpus", "draw", "translations", "turns")
TUNED = {
    "relations": ("--label", "relation", "--tail", "@"),
    "entity-typing": (),
    "classify": ("--label", "relation"),
    "regress": ("--label", "rating"),
    "tag": (),
}
OF_KINDS = {"choose": (), "extract": (), "generate": ("--max-length", "32", "--max-target-length", "16")}
"""Tried with one recipe of each kind of network."""
OF_TASK = {"ernie-2": ("--task", "knowledge")}
"""Recipes whose tasks have different transforms: the one that is inherited."""
WRITES = {"skip-thought": ("--stream", "behind")}
"""Recipes with several decoders: the one that writes."""
REFUSED = {
    ("perplexity", "ernie-gen"): "there is nothing to predict",  # a text by itself is a prefix without a target
    ("perplexity", "skip-thought"): "there is nothing to predict",  # in training alone a text is cut into sentences
    ("tag", "sentilr"): "reads 'tags', which this task asks for",
    ("generate", "glm"): "does not learn to write another text after it",
    ("facts", "infoword"): "gave 0 slots",  # a text is read twice
    ("facts", "ernie-baidu-dialogue"): "has no 'turns'",
    ("perplexity", "llama-chat"): "has no 'turns'",
    ("perplexity", "comet"): "has no unit 'triples'",
    ("continue", "comet"): "the head and the relation of a triple",
    ("perplexity", "kelm"): "choose one: --objective",
    ("continue", "kelm"): "choose one: --objective",
    ("generate", "kelm"): "choose one: --objective",
    ("encode", "unicoder"): "has no language",
    ("encode", "xlm"): "has no language",
    ("encode", "sentilr"): "has no 'tags'",
}
REFUSED |= {
    (task, system): "nothing fills it in fine-tuning" for task in (*TUNED, *OF_KINDS) for system in ("dpr", "blink")
}
"""What a recipe that could otherwise do it is refused, with the words that say why."""


def can(name: str, *classes: type) -> bool:
    return any(issubclass(objective, classes) for objective in objectives(name))


def resumes(name: str) -> bool:
    """Whether it predicts tokens one after another: by an objective of its own for that, or by `mlm` with a prefix."""
    prefixed = any("prefix" in str(task.sequence.builder) for task in recipe(name).tasks.values())
    return writes(name) or (can(name, Mlm) and prefixed)


def writes(name: str) -> bool:
    own = [each for each in objectives(name) if not issubclass(each, Mlm)]
    return any(each.continuation is not Objective.continuation for each in own)


def scores_triples(name: str) -> bool:
    return any(hasattr(objective, "triple_scores") for objective in objectives(name))


CAN = {
    "pseudo-perplexity": lambda name: can(name, Mlm),
    "facts": lambda name: can(name, Mlm),
    "perplexity": writes,
    "disambiguation": lambda name: can(name, EntityLinking),
    "supersenses": lambda name: can(name, Supersense),
}
"""Which recipes a task for evaluation alone is for, by their objectives."""


@pytest.fixture(scope="module")
def data(world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The world's texts with what each task asks for, by task; `text` has what all of one text do."""
    folder, rows = tmp_path_factory.mktemp("tasks"), []
    for number, sample in enumerate(Corpus.open(world.text)):
        row = {name: value for name, value in sample.items() if name not in TAKEN}
        (_, town, *_), (begin, end, *_) = row["spans"][0], row["mask_spans"][0]
        of = TOWNS.index(row["text"][:town])
        row["labels"] = {**row["labels"], "rating": 1 + of % 5 + number % 2}
        row["tags"] = [[0, town, "n:positive"], [begin, end, "n:negative"]]
        row["meta"] = {"relation": "lies_in", "subject": f"T{of}", "object": f"C{of}"}
        rows.append(row)
    reported = [{name: row[name] for name in ("text", "spans", "tags", "language")} for row in rows]
    second = {"second": "Where is it?", "second_spans": []}
    choices = [{"choices": TOWNS[:2], "choice_spans": [[[0, 4, f"T{i}", 1.0]] for i in range(2)], "answer": 1}] * 24
    spans = [row["mask_spans"][0][:2] for row in rows]
    answers = [{"answers": [row["text"][slice(*s)]], "answer_spans": [s]} for row, s in zip(rows, spans, strict=True)]
    found = {"text": write_corpus(folder / "text", "text", rows)}
    (found["text"] / "candidates.json").write_text(
        json.dumps({"lies_in": [{"id": f"C{i}", "label": name} for i, name in enumerate(COUNTRIES)]})
    )
    for task, asked in {"choose": choices, "extract": answers, "generate": [{}] * 24}.items():
        own = [{**row, **second, **more, "meta": {}} for row, more in zip(reported, asked, strict=True)]
        found[task] = write_corpus(folder / task, "text", own)
    for name, triples in TRIPLES.items():
        own = [{"id": head, "triples": [{"relation": relation, "tail": tail}]} for head, relation, tail in triples]
        found[name] = write_corpus(folder / name, "triples", own)
    found["lines"] = folder / "lines.txt"
    found["lines"].write_text("Oslo lies in Norway.\nMany people live there.\n")
    return found


TRIPLES = {
    "true": [("T0", "near", "T2"), ("T1", "near", "T3"), ("T2", "lies_in", "C4")],
    "false": [("T3", "near", "T5"), ("T4", "lies_in", "C1")],
    "true-valid": [("T0", "near", "T3"), ("T1", "lies_in", "C4")],
    "false-valid": [("T3", "near", "T1"), ("T4", "lies_in", "C2")],
}


@pytest.fixture(scope="module", params=marked(NAMES, GATE))
def run(request: Any, world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    depth = 2 if any(steps_of_graph(request.param)) else 1  # [CLS] sees what hangs on a mention through the mention
    return one_step(request.param, world, tmp_path_factory.mktemp("runs"), depth)


def in_turn(tasks: Iterable[str], names: Iterable[str] = NAMES) -> list[Any]:
    """Each recipe with each task; of these pairs the gate has one of each of its recipes."""
    turns = {name: [*tasks][number % len([*tasks])] for number, name in enumerate(GATE)}
    return [
        pytest.param(name, task, marks=() if turns.get(name) == task else pytest.mark.systems)
        for name in names
        for task in tasks
    ]


def does(able: bool, asked: str, run: Path, *command: object) -> bool:
    """Give a command, which must do what it is for where the run is able to, or else say why not."""
    refused = refusal(*command)
    words = REFUSED.get((asked, run.name))
    assert (refused is None) == (able and words is None), refused
    if refused is not None:
        assert (words or "") in refused
    return refused is None


def check_measured(run: Path, task: str) -> None:
    """The result of an evaluation: numbers, and what they are next to."""
    (file,) = (run / "evaluations").glob(f"{task}-*.json")
    result = json.loads(file.read_text())
    assert result["numbers"]
    assert result["baselines"] or task == "extract"  # where every question has an answer
    reported = [result["numbers"], *result["baselines"].values()]
    assert all(math.isfinite(number) for numbers in reported for number in numbers.values())


@torch.no_grad()
def vectors(run: Path, corpus: Path, control: str | None = None) -> torch.Tensor:
    """With larger weights: fresh ones hand on so little from row to row that rounding would hide it."""
    samples = [{**sample, "draw": (0, number)} for number, sample in enumerate(Corpus.open(corpus))]
    loaded = load(run, control=control)
    for parameter in loaded.model.parameters():
        parameter.mul_(5 if parameter.dim() > 1 else 1)
    return Encoder(loaded, pool="pooled")(iter([samples]), built=False)[1]


@pytest.mark.parametrize(("run", "task"), in_turn(TUNED), indirect=["run"])
def test_a_run_is_fine_tuned_and_evaluated(task: str, run: Path, data: dict[str, Path], tmp_path: Path) -> None:
    tuned = tmp_path / "tuned"
    how = (*TUNED[task], *OF_TASK.get(run.name, ()), "--batch-size", "8", *ONE, "--output", tuned)
    if does(True, task, run, "finetune", task, run, data["text"], *how):
        assert refusal("evaluate", task, tuned, data["text"]) is None
        check_measured(tuned, task)
        if task == "classify":
            check_not_blind(run, tuned, data["text"])


def check_not_blind(run: Path, tuned: Path, corpus: Path) -> None:
    """What the head reads depends on the text, and on the graph wherever the run itself can do without."""
    found = vectors(tuned, corpus)
    assert bool(torch.isfinite(found).all())
    assert found.std(0).max() > 1e-5
    refused = refusal("evaluate", "classify", tuned, corpus, "--control", "no-kg")
    assert refused is None or not any(steps_of_graph(run.name)), refused
    if refused is None:
        assert (found - vectors(tuned, corpus, "no-kg")).abs().max() > 1e-5


def steps_of_graph(name: str) -> Iterator[str]:
    for task in recipe(name).tasks.values():
        yield from (
            str(step["transform"]) for step in task.sequence.transforms if str(step["transform"]).startswith("kg.")
        )


WHICH = {
    "demo-": ("--task", "text"),
    "unicoder": ("--task", "text"),
    "skip-thought": ("--objective", "behind"),
    "xlm": ("--task", "text"),
    "knowbert disambiguation": ("--task", "wiki", "--objective", "wiki_linking"),
    "knowbert-linkers disambiguation": ("--task", "wiki", "--objective", "wiki_linking"),
}
"""Which head is measured, where a run has several that could be: its tasks read texts in several ways."""


@pytest.mark.parametrize(("run", "task"), in_turn(CAN), indirect=["run"])
def test_what_a_run_is_measured_by(task: str, run: Path, data: dict[str, Path]) -> None:
    able = CAN[task](run.name)
    which = next((words for name, words in WHICH.items() if able and f"{run.name} {task}".startswith(name)), ())
    if does(able, task, run, "evaluate", task, run, data["text"], "--limit", "4", *which):
        check_measured(run, task)


def test_runs_that_score_triples(run: Path, world: Any, data: dict[str, Path]) -> None:
    asked = (run, data["true"], "--graph", world.graph)
    false = ("--negatives", data["false"], "--valid", data["true-valid"], "--valid-negatives", data["false-valid"])
    for task, own in {"link-prediction": (), "triple-classification": false}.items():
        if does(scores_triples(run.name), task, run, "evaluate", task, *asked, *own):
            check_measured(run, task)


def test_texts_have_vectors_and_runs_a_report(run: Path, data: dict[str, Path], tmp_path: Path) -> None:
    for number, (asked, source) in enumerate({"encode": data["lines"], "corpus": data["text"]}.items()):
        made = tmp_path / f"{number}.safetensors"
        if does(True, asked, run, "encode", run, source, "--network", "main", "--output", made):
            found = load_file(made)["vectors"]
            assert bool(torch.isfinite(found).all())
            assert len(found) == (2, 24)[number]
    assert refusal("report", run, "--output", tmp_path / "report.html") is None
    assert run.name in (tmp_path / "report.html").read_text()


def test_a_run_continues_with_a_text_or_draws_no_image(run: Path, data: dict[str, Path], tmp_path: Path) -> None:
    how = ("--max-new-tokens", "3", *WRITES.get(run.name, ()))
    does(resumes(run.name), "continue", run, "generate", run, data["lines"], *how)
    drawn = tmp_path / "drawn.png"
    assert "builder of captions or questions" in str(refusal("show", "attention", run, data["text"], "-o", drawn))


@pytest.mark.parametrize(("run", "task"), in_turn(OF_KINDS, kinds(NAMES)), indirect=["run"])
def test_a_run_of_each_kind_reads_pairs_and_writes(task: str, run: Path, data: dict[str, Path], tmp_path: Path) -> None:
    tuned = tmp_path / "tuned"
    writer = WRITES.get(run.name, ()) if task == "generate" else ()
    how = (*OF_KINDS[task], *OF_TASK.get(run.name, ()), *writer, "--batch-size", "8", *ONE, "--output", tuned)
    if does(task != "generate" or resumes(run.name), task, run, "finetune", task, run, data[task], *how):
        assert refusal("evaluate", task, tuned, data[task], "--limit", "4") is None
        check_measured(tuned, task)


@pytest.mark.parametrize("run", marked(kinds(NAMES), GATE), indirect=True)
def test_a_run_of_each_kind_goes_out_or_says_where_it_differs(run: Path, tmp_path: Path) -> None:
    """Asked of what `workbench export` calls: reading the run again for each family would take most of the time."""
    loaded, wrong = load(run), {}
    for family in short_names("family"):
        try:
            export(loaded, tmp_path / family, family, network="main", place=run)
            refused = None
        except WorkbenchError as error:
            refused = str(error)
        written = (tmp_path / family / "model.safetensors").exists()
        said = refused is None or (("the family" in refused or "adapter" in refused) and "index" not in refused)
        if (refused is None) != written or not said:
            wrong[family] = refused
    assert wrong == {}
