"""Any run is fine-tuned by adapters of any form, by heads alone, with rates by layers: by one override, evaluated as
other runs are, and continued with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.evaluation.tasks.test_classify import rows, tuning
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring
from workbench.evaluation.tasks.classify import Classification
from workbench.runs.loaded_run import load

SIDE = "stream: text, after: [0, 1], size: 4, depth: 1, num_heads: 2"
BOTH = "targets: [layers.*.output, layers.*.outer]"
FORMS = {
    "bottleneck": f"{{adapter: bottleneck, {BOTH}, size: 4}}",
    "lora": "{adapter: lora, targets: [layers.*.qkv], rank: 2}",
    "prefix": "{adapter: prefix, size: 2}",
    "side": f"{{adapter: side, {SIDE}}}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_fine_tuned_by_adapters(
    form: str, pretrained: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    movies, adapt = prepared("movies", rows(64, 0)), f"model.adapt=[{FORMS[form]}]"
    quick = ("train.max_steps=2", "train.lr_schedule.warmup_steps=0")
    run = fine_tune(Classification(), tuning(pretrained, movies, tmp_path / "run", adapt, *quick))
    base, tuned = load(pretrained).model.network().state_dict(), load(run).model.network().state_dict()
    added = {name for name in tuned if name.startswith("adapters.0.")}
    assert added == tuned.keys() - base.keys() - {"poolers.text.dense.weight", "poolers.text.dense.bias"}
    assert all(torch.equal(tuned[name], base[name]) for name in base.keys() - {"poolers.text.dense.weight"})
    evaluate(Classification(), ClassifyScoring(run=run, corpus=movies))
    slow = ("train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.lr=1e-9")
    again = fine_tune(Classification(), tuning(run, movies, tmp_path / "again", *slow))
    continued = load(again).model.network().state_dict()
    for name in added:
        torch.testing.assert_close(continued[name], tuned[name], atol=1e-6, rtol=1e-6)


def test_adapters_of_another_run_are_next_to_those_of_this_one(
    pretrained: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    """Each was trained alone; here all read one network, which is trained, while their own layers stay."""
    movies = prepared("movies", rows(64, 0))
    apart = {"one": FORMS["side"], "other": FORMS["side"].replace("after: [0, 1]", "after: [1]")}
    quick = ("train.max_steps=2", "train.lr_schedule.warmup_steps=0")
    one, other = (
        fine_tune(Classification(), tuning(pretrained, movies, tmp_path / name, f"model.adapt=[{form}]", *quick))
        for name, form in apart.items()
    )
    kept = ("model.adapted=trained", "train.freeze=[networks.main.adapters.*.end.layers.*]")
    both = fine_tune(Classification(), tuning(one, movies, tmp_path / "both", *kept, *quick, adapters=[other]))
    states = [load(run).model.network().state_dict() for run in (pretrained, one, other, both)]
    base, first, second, joined = states
    for number, own in enumerate((first, second)):
        theirs = {name.removeprefix("adapters.0.") for name in own if name.startswith("adapters.")}
        assert theirs == {n.removeprefix(f"adapters.{number}.") for n in joined if n.startswith(f"adapters.{number}.")}
        layers = {name for name in theirs if ".layers." in name}
        assert layers
        assert all(torch.equal(joined[f"adapters.{number}.{name}"], own[f"adapters.0.{name}"]) for name in layers)
        combined = "end.combine.weight"
        assert not torch.equal(joined[f"adapters.{number}.{combined}"], own[f"adapters.0.{combined}"])
    assert not torch.equal(
        joined["layers.0.attention.attention.qkv.weight"], base["layers.0.attention.attention.qkv.weight"]
    )
    assert load(both).recipe.networks["main"].adapted == "trained"
    evaluate(Classification(), ClassifyScoring(run=both, corpus=movies))


def test_a_run_without_adapters_has_none_to_give(
    pretrained: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    movies = prepared("movies", rows(64, 0))
    with pytest.raises(WorkbenchError, match=r"--adapters .*its network has none; name a run that was trained with"):
        fine_tune(Classification(), tuning(pretrained, movies, tmp_path / "run", adapters=[pretrained]))


def test_frozen_features_train_pooler_and_head_alone(
    pretrained: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    """The states are the same in every epoch: what is not trained has no dropout."""
    movies, only = prepared("movies", rows(64, 0)), "train.train_only=[heads,networks.main.poolers]"
    quick = ("model.streams.text.dropout=0.5", "train.lr_schedule.warmup_steps=0")
    run = fine_tune(Classification(), tuning(pretrained, movies, tmp_path / "run", only, *quick))
    base, tuned = (load(each).model.network() for each in (pretrained, run))
    changed = {name for name, tensor in tuned.state_dict().items() if not _equal(base.state_dict().get(name), tensor)}
    assert changed == {"poolers.text.dense.weight", "poolers.text.dense.bias"}
    found = evaluate(Classification(), ClassifyScoring(run=run, corpus=movies))
    assert found.counts["texts"] == 64


def test_layers_learn_at_rates_of_their_own(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    movies = prepared("movies", rows(64, 0))
    once = ("train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.clip_norm=null")
    base = load(pretrained).model.network().state_dict()
    moved = {}
    for decay in ("1.0", "0.5"):
        run = fine_tune(
            Classification(), tuning(pretrained, movies, tmp_path / decay, f"train.layer_decay={decay}", *once)
        )
        state = load(run).model.network().state_dict()
        names = ("layers.0.attention.attention.qkv.weight", "embeddings.text.token.weight")
        moved[decay] = [float((state[name] - base[name]).abs().max()) for name in names]
    for number, share in enumerate((0.5, 0.25)):  # a top layer, the embedding below it
        assert moved["0.5"][number] == pytest.approx(share * moved["1.0"][number], rel=0.05)


def _equal(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and torch.equal(one, other)
