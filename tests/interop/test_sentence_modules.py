"""Exported folders as sentence-transformers opens them: equal vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import workbench
from tests.evaluation.conftest import TEXTS, make_texts, network, pretrain_on, recipe_tree
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain_on(make_texts(tmp_path_factory.mktemp("sentences")))


def pooled_run(folder: Path, pooler: dict[str, Any]) -> Path:
    model = {**network(16), "poolers": [{"stream": "text", **pooler}]}
    return pretrain(recipe_from_dict(recipe_tree(make_texts(folder), model, [{"objective": "mlm"}])), folder / "run")


@pytest.mark.parametrize("pool", ["mean", "summary"])
def test_its_vectors_are_ours(run: Path, pool: str, tmp_path: Path) -> None:
    export(run, tmp_path / "out", "bert", also=["sentence-transformers"], pool=pool)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, workbench.load(run).encode(TEXTS, pool=pool), atol=2e-6)


@pytest.mark.parametrize(
    "pooler",
    [
        {"pooler": "summary"},
        {"pooler": "mean", "dense": False, "activation": None},
        {"pooler": "max", "size": 5, "activation": "relu"},
        {"pooler": "last", "activation": None, "bias": False},
    ],
    ids=lambda each: str(each["pooler"]),
)
def test_a_pooler_becomes_its_modules(pooler: dict[str, Any], tmp_path: Path) -> None:
    tuned = pooled_run(tmp_path, pooler)
    export(tuned, tmp_path / "out", "bert", also=["sentence-transformers"], pool="pooled")
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, workbench.load(tuned).encode(TEXTS, pool="pooled"), atol=2e-6)


def test_a_pooler_without_a_form_is_named(tmp_path: Path) -> None:
    tuned = pooled_run(tmp_path, {"pooler": "concat"})
    with pytest.raises(WorkbenchError, match="has no form for the pooler 'concat' with dense = True"):
        export(tuned, tmp_path / "out", "bert", also=["sentence-transformers"], pool="pooled")
    with pytest.raises(WorkbenchError, match=r"pooler text: pooler = workbench.models.poolers:ConcatPooler here"):
        export(tuned, tmp_path / "out", "bert")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{"pool": "mean"}, {"size": 16, "bias": True, "activation": "tanh", "norm": True}])
def test_vectors_of_a_contrast_are_ours(options: dict[str, Any], tmp_path: Path) -> None:
    tree = recipe_tree(make_texts(tmp_path), network(16), [{"objective": "contrast", "learned": False, **options}])
    tree["tasks"]["text"]["sequence"] = {"builder": "text_pair", "passages": "twice", "max_length": 16}
    run = pretrain(recipe_from_dict(tree), tmp_path / "run")
    export(run, tmp_path / "out", "bert", also=["sentence-transformers"])
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, workbench.load(run).encode(TEXTS), atol=2e-6)


def test_a_later_export_leaves_none_of_its_files(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", "bert", also=["sentence-transformers"])
    export(run, tmp_path / "out", "bert")
    assert not (tmp_path / "out" / "modules.json").exists()


def test_what_it_has_no_form_for_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        WorkbenchError,
        match="--pool pooled: sentence-transformers has no form for it; allowed: mean, summary, and pooled where",
    ):
        export(run, tmp_path / "out", "bert", also=["sentence-transformers"], pool="pooled")
    assert not (tmp_path / "out").exists()
