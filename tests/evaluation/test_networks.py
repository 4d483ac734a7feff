"""A network's name is strict, and every command that reads one of a run's networks has an option for its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from tests.evaluation.conftest import network, recipe_tree
from workbench.cli.encoding import encode
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, run_folder
from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.evaluated_run import find_objective
from workbench.objectives.mlm import Mlm
from workbench.recipe.spec import Recipe, SequenceSpec
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

SEVERAL = r"networks:? (large, small|small, large)"


class OnMlm(DownstreamTask[Tuning, Scoring]):
    tuning, scoring, objective = Tuning, Scoring, Mlm

    def setup(self, tuning: Tuning, base: Recipe) -> Setup:
        return Setup(SequenceSpec({"builder": "document", "max_length": 24}), {"objective": "mlm"})


def test_a_run_may_be_the_folder_one_is_in(pretrained: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pretrained)
    assert run_folder(OnMlm(), Tuning(run=Path("."), corpus=str(texts / "texts"))) == pretrained.with_name("one-onmlm")
    assert run_folder(OnMlm(), Tuning(run=Path("../one"), corpus="")) == Path("../one-onmlm")


def test_a_name_that_is_none_is_refused(pretrained: Path, two_networks: Path) -> None:
    one, two = load(pretrained).model, load(two_networks).model
    assert one.network() is one.network("main")
    for root, name in ((one, "typo"), (two, "main"), (two, "smal")):
        with pytest.raises(WorkbenchError, match=f"unknown network '{name}'"):
            root.network(name)
    with pytest.raises(WorkbenchError, match=SEVERAL):
        two.network()


def test_export_writes_the_network_that_was_named_with_its_own_heads(two_networks: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="unknown network 'typo'"):
        export(two_networks, tmp_path / "typo", "bert", network="typo")
    with pytest.raises(WorkbenchError, match=SEVERAL):
        export(two_networks, tmp_path / "none", "bert")
    for name, width in (("small", 8), ("large", 16)):
        export(two_networks, tmp_path / name, "bert", network=name)
        tensors = load_file(tmp_path / name / "model.safetensors")
        assert tensors["bert.embeddings.word_embeddings.weight"].shape[1] == width
        head = tensors.get("cls.predictions.transform.dense.weight")
        assert head is None if name == "large" else head.shape == (8, 8)  # large's head is not called mlm


def test_encode_reads_the_network_that_was_named(two_networks: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the red boat is new .\n")
    output = tmp_path / "vectors.safetensors"
    with pytest.raises(WorkbenchError, match=SEVERAL):
        encode(two_networks, tmp_path / "lines.txt", output)
    for name, width in (("small", 8), ("large", 16)):
        encode(two_networks, tmp_path / "lines.txt", output, network=name)
        with safe_open(output, "pt") as file:
            assert file.get_tensor("vectors").shape == (1, width)


def test_the_network_that_was_named_is_fine_tuned_and_evaluated(
    two_networks: Path, texts: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"run": two_networks, "corpus": str(texts / "texts"), "output": tmp_path / "run"}
    with pytest.raises(WorkbenchError, match=SEVERAL):
        fine_tune(OnMlm(), Tuning(**options))
    with pytest.raises(WorkbenchError, match="unknown network 'typo'"):
        fine_tune(OnMlm(), Tuning(**options, network="typo"))
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.lr=1e-9", "train.optimizer.weight_decay=0"]
    run = fine_tune(OnMlm(), Tuning(**options, network="large", overrides=quick))
    before, after = (load(folder).model.network("large").state_dict() for folder in (two_networks, run))
    assert max(float((after[name] - before[name]).abs().max()) for name in before) < 1e-6
    assert OnMlm().open(Scoring(run=run, corpus=str(texts / "texts"))).network.sizes == {"text": 16}


def test_what_was_tied_or_frozen_is_fine_tuned_by_itself(texts: Path, tmp_path: Path) -> None:
    tied = {**network(16), "tie": {"text.token": "first.text.token"}, "frozen": True}
    tree = recipe_tree(texts, {"first": network(16), "second": tied}, [{"objective": "mlm", "network": "first"}])
    base = pretrain(recipe_from_dict(tree), tmp_path / "base")
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.optimizer.weight_decay=0"]
    options: dict[str, Any] = {"run": base, "corpus": str(texts / "texts"), "output": tmp_path / "run"}
    run = fine_tune(OnMlm(), Tuning(**options, network="second", lr=1e-3, overrides=quick))
    before, after = (load(folder).model.network("second").state_dict() for folder in (base, run))
    changed = {name: float((after[name] - before[name]).abs().max()) for name in before}
    assert 0 < changed["embeddings.text.token.weight"] < 2e-3
    assert max(changed.values()) < 2e-3


def test_a_follower_is_encoded_exported_and_fine_tuned_by_its_name(texts: Path, tmp_path: Path) -> None:
    networks = {"main": network(16), "slow": {"follows": "main", "decay": 0.9}}
    soft = {"follower": "slow", "share": 0.4}
    tree = recipe_tree(texts, networks, [{"objective": "mlm", "soft": soft}])
    base = pretrain(recipe_from_dict(tree), tmp_path / "base")
    model = load(base).model
    assert model.network() is model.network("main")
    (tmp_path / "lines.txt").write_text("the red boat is new .\n")
    vectors = {}
    for name in ("main", "slow"):
        encode(base, tmp_path / "lines.txt", tmp_path / f"{name}.safetensors", network=name)
        vectors[name] = load_file(tmp_path / f"{name}.safetensors")["vectors"]
        export(base, tmp_path / name, "bert", network=name)
        tensors = load_file(tmp_path / name / "model.safetensors")
        table = model.network(name).embeddings["text"].token.weight
        assert tensors["bert.embeddings.word_embeddings.weight"].equal(table)
        assert tensors["cls.predictions.transform.dense.weight"].equal(model.heads_of(name)["mlm"].dense.weight)
    assert not vectors["main"].equal(vectors["slow"])
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0", "train.lr=1e-9", "train.optimizer.weight_decay=0"]
    options: dict[str, Any] = {"run": base, "corpus": str(texts / "texts"), "output": tmp_path / "run"}
    run = fine_tune(OnMlm(), Tuning(**options, network="slow", overrides=quick))
    tuned = load(run).model
    for before, after in ((model.network("slow"), tuned.network()), (model.heads_of("slow"), tuned.heads)):
        found = after.state_dict()
        assert max(float((found[n] - tensor).abs().max()) for n, tensor in before.state_dict().items()) < 1e-6


def test_an_evaluation_asks_which_of_several_it_measures(two_networks: Path) -> None:
    loaded = load(two_networks)
    with pytest.raises(WorkbenchError, match="mlm reads the networks large, small; pass --network"):
        find_objective(loaded, two_networks, Mlm, "")
    assert find_objective(loaded, two_networks, Mlm, "", network="large").network.sizes == {"text": 16}
    with pytest.raises(WorkbenchError, match="unknown network 'typo'"):
        find_objective(loaded, two_networks, Mlm, "", network="typo")
