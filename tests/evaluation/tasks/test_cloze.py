"""Classification by the words of a pattern, from a pretrained run to predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, network, prepare, pretrain_on, recipe_tree
from tests.evaluation.tasks.test_classify import rows
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClozeScoring, ClozeTuning
from workbench.evaluation.tasks.cloze import ClozeClassification
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

PATTERN = "{text} it was {mask} ."


def tuning(run: Path, corpus: str, output: Path, *overrides: str, **options: Any) -> ClozeTuning:
    wanted: dict[str, Any] = {"epochs": 1.0, "batch_size": 8, "lr": 1e-2, "pattern": PATTERN, **options}
    wanted.setdefault("word", ["1=good", "0=bad"])
    return ClozeTuning(run=run, corpus=corpus, output=output, overrides=["train.num_workers=0", *overrides], **wanted)


def contract_world(folder: Path) -> World:
    base, corpus = pretrain_on(make_texts(folder)), prepare(folder, "train", rows(24, 0))
    return World(fine_tune(ClozeClassification(), tuning(base, corpus, folder / "run")), corpus, base, {})


CASE = EvaluationCase(world=contract_world)


def test_the_head_of_pretraining_is_kept_and_learns(
    pretrained: Path, prepared: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus, dev = prepared("movies", rows(64, 0)), prepared("movies-dev", rows(20, 1))
    still = fine_tune(ClozeClassification(), tuning(pretrained, corpus, tmp_path / "still", "train.lr=1e-12"))
    before, after = load(pretrained).model.heads["mlm"], load(still).model.heads["cloze"]
    for (name, one), (_, other) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    assert not [record for record in caplog.records if "computes something else" in record.getMessage()]
    learned = fine_tune(ClozeClassification(), tuning(pretrained, corpus, tmp_path / "learned", epochs=12.0, lr=1e-2))
    found = evaluate(ClozeClassification(), ClozeScoring(run=learned, corpus=dev))
    assert found.numbers["accuracy"] == 1
    again = fine_tune(ClozeClassification(), tuning(learned, corpus, tmp_path / "again", "train.lr=1e-12"))
    assert evaluate(ClozeClassification(), ClozeScoring(run=again, corpus=dev)).numbers["accuracy"] == 1


def test_the_auxiliary_loss_is_an_objective_behind_it(pretrained: Path, prepared: Any, tmp_path: Path) -> None:
    own = recipe_of(ClozeClassification(), tuning(pretrained, prepared("movies", rows(64, 0)), tmp_path / "x"))
    (objective,) = own.tasks["cloze"].objectives
    both = f"tasks.cloze.objectives=[{objective}, {{objective: mlm, weight: 1e-4}}]".replace("'", '"')
    run = fine_tune(ClozeClassification(), tuning(pretrained, prepared("movies", []), tmp_path / "both", both))
    assert [*load(run).model.heads] == ["cloze", "mlm"]


def test_what_cannot_fill_a_pattern_is_refused(pretrained: Path, texts: Path, prepared: Any, tmp_path: Path) -> None:
    corpus = prepared("movies", rows(64, 0))
    reading = recipe_tree(texts, network(16), [{"objective": "clm"}])
    reading["tasks"]["text"]["sequence"]["visibility"] = "causal"
    other = pretrain(recipe_from_dict(reading), tmp_path / "gpt")
    both = {"main": network(16), "generator": network(8)}
    replaced = [{"objective": "mlm", "network": "generator"}, {"objective": "rtd"}]
    electra = pretrain(recipe_from_dict(recipe_tree(texts, both, replaced)), tmp_path / "electra")
    for run, options, message in [
        (pretrained, {"word": ["1=good"]}, "1 of the 2 classes of the label 'verdict' have none; add --word 0=WORD"),
        (pretrained, {"word": ["1=good", "0=bad", "1=old"]}, "the class '1' has several words; allowed: one for each"),
        (pretrained, {"word": ["1=good", "0=bad", "2=old"]}, "unknown class '2' in the label 'verdict'"),
        (pretrained, {"pattern": "{text}"}, "pattern: '{text}'; allowed"),
        (electra, {}, r"the network 'main' .* \(its objectives: rtd\), .*; --network generator"),
        (other, {}, r"predicts no masked tokens \(its objectives: clm\)"),
    ]:
        with pytest.raises(WorkbenchError, match=message):
            recipe_of(ClozeClassification(), tuning(run, corpus, tmp_path / "run", **options))
    own = recipe_of(ClozeClassification(), tuning(electra, corpus, tmp_path / "run", network="generator"))
    assert own.tasks["cloze"].objectives[0]["network"] == "generator"
