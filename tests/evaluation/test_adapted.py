"""Any run is fine-tuned by adapters of any form: by one override, evaluated as other runs are, and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.evaluation.classify.test_task import rows, tuning
from workbench.evaluation.classify.task import Classification, ClassifyScoring
from workbench.evaluation.evaluating import evaluate
from workbench.evaluation.finetuning import fine_tune
from workbench.runs.loading import load

SIDE = "stream: text, after: [0, 1], size: 4, depth: 1, num_heads: 2"
FORMS = {
    "lora": "{adapter: lora, targets: [layers.*.qkv], rank: 2}",
    "prefix": "{adapter: prefix, size: 2}",
    "side": f"{{adapter: side, {SIDE}}}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_fine_tuned_by_adapters(
    form: str, pretrained: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    films, adapt = prepared("films", rows(64, 0)), f"model.adapt=[{FORMS[form]}]"
    quick = ("train.max_steps=2", "train.lr_schedule.warmup_steps=0")
    run = fine_tune(Classification(), tuning(pretrained, films, tmp_path / "run", adapt, *quick))
    base, tuned = load(pretrained).model.network().state_dict(), load(run).model.network().state_dict()
    added = {name for name in tuned if name.startswith("adapters.0.")}
    assert added == tuned.keys() - base.keys() - {"poolers.text.dense.weight", "poolers.text.dense.bias"}
    assert all(torch.equal(tuned[name], base[name]) for name in base.keys() - {"poolers.text.dense.weight"})
    evaluate(Classification(), ClassifyScoring(run=run, corpus=films))
    slow = ("train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.lr=1e-9")
    again = fine_tune(Classification(), tuning(run, films, tmp_path / "again", *slow))
    gone_on = load(again).model.network().state_dict()
    for name in added:
        torch.testing.assert_close(gone_on[name], tuned[name], atol=1e-6, rtol=1e-6)
