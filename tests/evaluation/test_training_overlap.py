"""An evaluation on training data is reported: the same corpus, another split of its files, or what came before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.corpora.text import text as prepare_text
from tests.evaluation.conftest import network, prepare, recipe_tree
from workbench.core.options.command import command
from workbench.corpora.corpus import Corpus
from workbench.evaluation.likelihood_options import PseudoPerplexityScoring
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.training_overlap import training_overlap
from workbench.evaluation.tasks.pseudo_perplexity import PseudoPerplexity
from workbench.recipe.trees import recipe_from_dict
from workbench.report.page import render
from workbench.report.run import load_run
from workbench.runs.folder import read_recipe as load_run_recipe
from workbench.training.pretrain import pretrain

ROWS = [{"text": f"the red house is number {n}"} for n in range(20)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> Path:
    """A run on the greater part of a corpus, and one on other texts that starts from it."""
    folder = tmp_path_factory.mktemp("seen")
    prepare(folder, "whole", ROWS)
    prepare(folder, "other", [{"text": f"a green boat, {n}"} for n in range(8)])
    for name, share in (("part", 0.3), ("again", 0.5)):
        command(prepare_text)(
            inputs=[str(folder / "whole.jsonl")], output=folder / name, split=[f"test={share}"], workers=1
        )
    tree: dict[str, Any] = recipe_tree(texts, network(8), [{"objective": "mlm"}])
    tree["tasks"]["text"]["corpora"] = [str(folder / "part")]
    run = pretrain(recipe_from_dict(tree), folder / "run")
    tree["tasks"]["text"]["corpora"] = [str(folder / "other")]
    pretrain(recipe_from_dict({**tree, "model": {**tree["model"], "init_from": str(run)}}), folder / "tuned")
    return folder


def test_the_same_corpus_and_another_split_of_its_files_are_reported_and_a_held_out_part_is_not(world: Path) -> None:
    def reported(run: str, corpus: str) -> list[str]:
        return training_overlap(world / run, Corpus.open(world / corpus))

    assert reported("run", "part") == [f"trained on this very corpus ({world / 'part'})"]
    assert reported("run", "part-test") == []
    for name in ("whole", "again", "again-test"):
        (found,) = reported("run", name)
        assert found == f"trained on {world / 'part'}, prepared from the same whole.jsonl with another split"
    assert reported("run", "other") == []
    assert reported("tuned", "part")[0].startswith(
        f"started from {world / 'run'}, which was trained on this very corpus"
    )
    assert reported("tuned", "part-test") == []
    assert reported("tuned", "other") == [f"trained on this very corpus ({world / 'other'})"]


def test_it_is_a_warning_a_part_of_the_result_and_a_tag_of_the_report(
    world: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = evaluate(
        PseudoPerplexity(), PseudoPerplexityScoring(run=world / "run", corpus=str(world / "part"), limit=2)
    )
    assert found.seen
    assert "are too good" in caplog.text
    assert "evaluated on what it was trained on or chosen by" in render([load_run(world / "run")])
    caplog.clear()
    held_out = PseudoPerplexityScoring(run=world / "run", corpus=str(world / "part-test"), limit=2)
    assert evaluate(PseudoPerplexity(), held_out).seen == []
    assert "remembers" not in caplog.text


def test_equal_texts_in_training_and_test_are_counted_whatever_files_they_came_from(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": f"t{n}", "text": f"a  green boat, {n}"} for n in range(3)] + [{"text": "a new text"}]
    prepare(tmp_path, "mixed", rows)
    (found,) = training_overlap(world / "tuned", Corpus.open(tmp_path / "mixed"))
    assert found == f"trained on {world / 'other'}, which has 3 of its 4 texts"
    assert training_overlap(world / "run", Corpus.open(tmp_path / "mixed")) == []
    recipe = load_run_recipe(world / "tuned")
    recipe = replace(recipe, tasks={"text": replace(recipe.tasks["text"], held_out=[str(tmp_path / "mixed")])})
    pretrain(recipe, tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert "3 of 4 records" in said
    assert "the corpora of task text have too" in said


def test_a_run_whose_best_checkpoint_was_the_best_on_the_test_set_was_chosen_by_it(
    world: Path, texts: Path, tmp_path: Path
) -> None:
    tree: dict[str, Any] = recipe_tree(texts, network(8), [{"objective": "mlm"}])
    tree["tasks"]["text"] |= {"corpora": [str(world / "part")], "held_out": [str(world / "part-test")]}
    tree["train"] |= {"evaluate_every": 1}
    pretrain(recipe_from_dict(tree), tmp_path / "last")
    tree["train"] |= {"best": "mlm/loss"}
    pretrain(recipe_from_dict(tree), tmp_path / "best")
    test_set = Corpus.open(world / "part-test")
    assert training_overlap(tmp_path / "last", test_set) == []
    assert training_overlap(tmp_path / "best", test_set) == [
        f"chosen as the best on this very corpus ({world / 'part-test'})"
    ]
