"""Vision-language releases: by a recipe into a run, by the command back, and nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.interop.worlds import (
    equal,
    hugging_face,
    model_of,
    pictures,
    recipe_file,
    text_task,
    texts,
    there_and_back,
    tokenizer,
)

SUMMED = slice(0, 0)  # of tables whose rows are summed no row comes back by itself
ROWS: dict[str, int | slice] = {
    "uniter.img_embeddings.mask_embedding.weight": 1,
    "bert.embeddings.image_token_type_embeddings.weight": 1,
    "bert.embeddings.token_type_embeddings_visual.weight": SUMMED,
    "bert.embeddings.position_embeddings_visual.weight": SUMMED,
    "visual_bert.embeddings.visual_token_type_embeddings.weight": SUMMED,
    "visual_bert.embeddings.visual_position_embeddings.weight": SUMMED,
}
VOLTA = ["ctrl_uniter", "ctrl_visualbert", "ctrl_lxmert", "ctrl_vilbert", "original_lxmert", "original_vilbert"]


def check(folder: Path, family: str, task: dict[str, Any], tmp_path: Path, golden: Path) -> set[str]:
    """There and back; the names of the golden weights that were not written."""
    config = json.loads((folder / "config.json").read_text())
    if family == "vision.uniter":
        config["img_dim"] = 24
    model = {**model_of(family, config), "init_from": str(folder)}
    words = str(tokenizer(tmp_path / "tokenizer.json"))
    written = there_and_back(tmp_path, recipe_file(tmp_path / "r.yaml", model, task, tokenizer=words), family)
    weights = load_file(golden / "weights.safetensors")
    equal(written, weights, ROWS)
    assert written.keys() <= weights.keys()
    return weights.keys() - written.keys()


def test_uniter_with_its_heads(shared: Path, tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    corpus = pictures(tmp_path / "pictures", 24, photo(0))
    task = {
        "corpora": [str(corpus)],
        "sequence": {
            "builder": "image_caption",
            "max_length": 16,
            "image": {"image": "vision.regions", "backbone": "made-up"},
        },
        "objectives": [{"objective": name} for name in ("mlm", "vision.itm", "vision.mrfr")],
    }
    golden = shared / "golden/uniter"
    left = check(golden, "vision.uniter", task, tmp_path, golden)
    assert {name.split(".")[0] for name in left} == {"region_classifier", "vqa_output"}


@pytest.mark.parametrize("name", ["lxmert", "visual_bert"])
def test_hugging_face(name: str, shared: Path, tmp_path: Path) -> None:
    golden = shared / "golden/hf" / name
    folder = hugging_face(golden, tmp_path / "theirs")
    left = check(folder, f"vision.{name}", text_task(texts(tmp_path / "texts"), "mlm"), tmp_path, golden)
    heads = {"cls.seq_relationship", "obj_predict_head.", "answer_head."}
    assert all(name.startswith(tuple(heads)) for name in left)


@pytest.mark.parametrize("name", VOLTA)
def test_volta(name: str, shared: Path, tmp_path: Path) -> None:
    golden = shared / "golden/volta" / name
    left = check(golden, "vision.volta", text_task(texts(tmp_path / "texts"), "mlm"), tmp_path, golden)
    begins = ("bert.t_pooler", "bert.v_pooler", "cls.bi_seq", "cls.qaPredictions", "cls.imagePredictions")
    assert all(name.startswith(begins) for name in left)
