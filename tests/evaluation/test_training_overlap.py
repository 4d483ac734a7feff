"""An evaluation on training data is reported: the same corpus, another split of its files, or what came before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.corpora.text import text as prepare_text
from tests.evaluation.conftest import network, prepare, recipe_tree
from workbench.core.options.command import command
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.training_overlap import training_overlap
from workbench.evaluation.task_options import PseudoPerplexityScoring
from workbench.evaluation.tasks.pseudo_perplexity import PseudoPerplexity
from workbench.recipe.trees import recipe_from_dict
from workbench.report.page import render
from workbench.report.run import load_run
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


def test_the_same_corpus_and_another_split_of_its_files_are_told_and_a_held_out_part_is_not(world: Path) -> None:
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
    assert "measure memorisation" in caplog.text
    assert "evaluated on what it was trained on" in render([load_run(world / "run")])
    caplog.clear()
    held_out = PseudoPerplexityScoring(run=world / "run", corpus=str(world / "part-test"), limit=2)
    assert evaluate(PseudoPerplexity(), held_out).seen == []
    assert "remembers" not in caplog.text
