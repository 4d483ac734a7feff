"""A recipe may leave to its corpora what made their features; its run then holds to that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.task_corpora import as_corpora_say
from workbench.recipe.spec import InitFrom, Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.text.tokenizer import train_tokenizer
from workbench.training.pretrain import pretrain

PNG = b"\x89PNG\r\n\x1a\n"  # nobody looks at it


def regions(folder: Path, backbone: str, about: dict[str, Any]) -> str:
    infos, rng = [], np.random.default_rng(0)
    with ShardWriter(folder / "part-000000.tar", kind="image-text") as writer:
        for i in range(8):
            boxes = np.float32([[0, 0, 1, 1], [0, 0, 0.5, 0.5]])
            found = {"features": rng.standard_normal((2, 6)).astype("float16"), "boxes": boxes}
            meta = {"backbone": backbone}
            writer.add(f"r{i}", {"image": PNG, "regions": found, "captions": [f"caption {i}"], "meta": meta})
    assert writer.info is not None
    infos.append(writer.info)
    finish_corpus(folder, kind="image-text", shards=infos, provenance={}, about=about)
    return str(folder)


def recipe(tokenizer: Path, *corpora: str, image: dict[str, Any] | None = None) -> Recipe:
    text = {"embedding": "token", "hidden_size": 8, "max_positions": 16}
    rows = {"embedding": "vision.regions", "hidden_size": 8, "feature_size": 6}
    return recipe_from_dict(
        {
            "name": "left-open",
            "tokenizer": str(tokenizer),
            "model": {
                "streams": {"text": text, "image": rows},
                "layers": [{"layer": "joint", "streams": ["text", "image"], "num_heads": 2, "intermediate_size": 16}],
            },
            "tasks": {
                "pairs": {
                    "corpora": list(corpora),
                    "sequence": {
                        "builder": "image_caption",
                        "max_length": 12,
                        "image_processor": {
                            "image_processor": "vision.regions",
                            **({"backbone": None} if image is None else image),
                        },
                    },
                    "objectives": [{"objective": "mlm"}],
                }
            },
            "train": {"max_steps": 1, "lr": 1e-3, "global_batch_size": 4, "micro_batch_size": 4, "num_workers": 0},
        }
    )


def backbone_of(settled: Recipe) -> object:
    builder = settled.tasks["pairs"].sequence.builder
    assert isinstance(builder, dict)
    return builder["image_processor"]["backbone"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(train_tokenizer(["caption number of a photograph"] * 5, "wordpiece", 60).to_str(), "utf-8")
    return path


def test_a_run_keeps_what_its_corpus_says(tmp_path: Path, tokenizer: Path) -> None:
    """It trains, its recipe names the backbone, and continues with features of that one alone."""
    corpus = regions(tmp_path / "one", "timm:a@1", {"backbone": "timm:a@1"})
    run = pretrain(recipe(tokenizer, corpus), tmp_path / "run")
    assert backbone_of(read_recipe(run)) == "timm:a@1"
    pretrain(recipe(tokenizer, corpus), run)
    other = regions(tmp_path / "other", "timm:b@2", {"backbone": "timm:b@2"})
    with pytest.raises(WorkbenchError, match="timm:b@2"):
        pretrain(recipe(tokenizer, other), run)


@pytest.mark.parametrize("image", [{"backbone": None}, {}], ids=["null", "not named"])
def test_corpora_of_a_task_must_say_the_same(tmp_path: Path, tokenizer: Path, image: dict[str, Any]) -> None:
    one = regions(tmp_path / "one", "timm:a@1", {"backbone": "timm:a@1"})
    same = regions(tmp_path / "same", "timm:a@1", {"backbone": "timm:a@1"})
    assert backbone_of(as_corpora_say(recipe(tokenizer, one, same, image=image))) == "timm:a@1"
    other = regions(tmp_path / "other", "timm:b@2", {"backbone": "timm:b@2"})
    with pytest.raises(
        WorkbenchError, match=r"tasks.pairs.sequence.image_processor.backbone .*one: timm:a@1; .*other: timm:b@2"
    ):
        as_corpora_say(recipe(tokenizer, one, other, image=image))
    silent = regions(tmp_path / "silent", "timm:a@1", {})
    with pytest.raises(WorkbenchError, match=r"silent: nothing\. Set it"):
        as_corpora_say(recipe(tokenizer, silent, image=image))


def test_what_a_recipe_names_stays(tmp_path: Path, tokenizer: Path) -> None:
    one = regions(tmp_path / "one", "timm:a@1", {"backbone": "timm:a@1"})
    assert backbone_of(as_corpora_say(recipe(tokenizer, one, image={"backbone": "mine"}))) == "mine"
    with pytest.raises(WorkbenchError, match="but this model needs those of 'mine'"):
        pretrain(recipe(tokenizer, one, image={"backbone": "mine"}), tmp_path / "run")


def test_tasks_of_one_stream_must_say_the_same(tmp_path: Path, tokenizer: Path) -> None:
    one = regions(tmp_path / "one", "timm:a@1", {"backbone": "timm:a@1"})
    other = regions(tmp_path / "other", "timm:b@2", {"backbone": "timm:b@2"})
    first, second = recipe(tokenizer, one), recipe(tokenizer, other)
    both = replace(first, tasks={"pairs": first.tasks["pairs"], "more": second.tasks["pairs"]})
    with pytest.raises(
        WorkbenchError, match=r"backbone of image_processor 'vision\.regions' .* tasks\.pairs: timm:a@1; tasks\.more"
    ):
        as_corpora_say(both)
    same = replace(first, tasks={"pairs": first.tasks["pairs"], "more": first.tasks["pairs"]})
    assert backbone_of(as_corpora_say(same)) == "timm:a@1"


def test_weights_that_have_learned_from_other_features_are_reported(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They fit by their size; what the projection has learned does not."""
    one, other = (regions(tmp_path / name, name, {"backbone": name}) for name in ("timm:a@1", "timm:b@2"))
    run = pretrain(recipe(tokenizer, one), tmp_path / "run")

    def begin(corpus: str, name: str, **entry: Any) -> str:
        asked = recipe(tokenizer, corpus)
        spec = replace(asked.networks["main"], init_from=[InitFrom(str(run), **entry)])
        capsys.readouterr()
        pretrain(replace(asked, model=spec), tmp_path / name)
        return capsys.readouterr().err

    reported = "learned from features of backbone timm:a@1; here they are of backbone timm:b@2"
    assert reported in begin(other, "whole")
    assert reported in begin(other, "rows", stream="image", layers=[])
    assert "learned from features" not in begin(other, "words", stream="text", layers=[])
    assert "learned from features" not in begin(one, "same")
