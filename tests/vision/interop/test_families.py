"""Vision-language checkpoints: by a recipe into a run, by the command back, and nothing has changed."""

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
    photographs,
    recipe_file,
    text_task,
    texts,
    there_and_back,
    tokenizer,
)
from workbench.core.errors import WorkbenchError

SUMMED = slice(0, 0)  # of tables whose rows are summed no row comes back by itself
ROWS: dict[str, int | slice] = {
    "uniter.img_embeddings.mask_embedding.weight": 1,
    "bert.embeddings.image_token_type_embeddings.weight": 1,
    "bert.embeddings.token_type_embeddings_visual.weight": SUMMED,
    "bert.embeddings.position_embeddings_visual.weight": SUMMED,
    "visual_bert.embeddings.visual_token_type_embeddings.weight": SUMMED,
    "visual_bert.embeddings.visual_position_embeddings.weight": SUMMED,
}
VOLTA = [
    *(f"ctrl_{name}" for name in ("uniter", "visualbert", "lxmert", "vilbert", "vl-bert")),
    "original_lxmert",
    "original_vilbert",
]


def check(folder: Path, family: str, task: dict[str, Any], tmp_path: Path, golden: Path) -> set[str]:
    """There and back; the names of the golden weights that were not written."""
    config = config_of(folder)
    model = {**model_of(family, config), "init_from": str(folder)}
    words = str(tokenizer(tmp_path / "tokenizer.json"))
    written = there_and_back(tmp_path, recipe_file(tmp_path / "r.yaml", model, task, tokenizer=words), family)
    weights = load_file(golden / "weights.safetensors")
    equal(written, weights, ROWS)
    assert written.keys() <= weights.keys()
    return weights.keys() - written.keys()


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def some_answers(count: int) -> list[str]:
    """So many, one of which is that of the images' questions."""
    return ["yes", *map(str, range(count - 1))]


@pytest.mark.parametrize("classes", ["mrc", "mrc_kl"])
def test_uniter_with_its_heads(classes: str, shared: Path, tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    """Its one classifier of regions serves either objective."""
    golden = shared / "golden/uniter"
    config = config_of(golden)
    known = config["img_label_dim"]
    task = of_images(photographs(tmp_path / "images", config["img_dim"], photo(0), known))
    names = ("mlm", "vision.itm", "vision.mrfr")
    task["objectives"] = [
        *({"objective": name} for name in names),
        {"objective": f"vision.{classes}", "num_classes": known},
    ]
    left = check(golden, "vision.uniter", task, tmp_path, golden)
    assert {name.split(".")[0] for name in left} == {"vqa_output"}


def of_images(corpus: Path, builder: str = "image_caption") -> dict[str, Any]:
    """A task on captions (or questions) and regions, without objectives."""
    image = {"image_processor": "vision.regions", "backbone": "made-up"}
    return {"corpora": [str(corpus)], "sequence": {"builder": builder, "max_length": 16, "image_processor": image}}


def test_lxmert_with_all_of_its_heads(shared: Path, tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    golden = shared / "golden/hf/lxmert"
    folder = hugging_face(golden, tmp_path / "theirs")
    config = config_of(golden)["config"]
    objects, attributes, answers = (config[f"num_{name}_labels"] for name in ("object", "attr", "qa"))
    corpus = photographs(tmp_path / "images", config["visual_feat_dim"], photo(0), min(objects, attributes))
    task = of_images(corpus, "question_image")
    task["objectives"] = [
        {"objective": "vision.itm"},
        {"objective": "mlm"},
        {"objective": "vision.mrfr", "loss": "smooth_l1", "tied": False},
        {"objective": "vision.mrc", "name": "objects", "of": "mrfr", "num_classes": objects},
        {
            "objective": "vision.mrc",
            "name": "attributes",
            "of": "mrfr",
            "target": "attributes",
            "num_classes": attributes,
        },
        {"objective": "vision.answers", "answers": some_answers(answers)},
    ]
    assert check(folder, "vision.lxmert", task, tmp_path, golden) == set()
    written = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert [written[f"num_{name}_labels"] for name in ("object", "attr", "qa")] == [objects, attributes, answers]


@pytest.mark.parametrize("name", ["lxmert", "visual_bert"])
def test_hugging_face(name: str, shared: Path, tmp_path: Path) -> None:
    golden = shared / "golden/hf" / name
    folder = hugging_face(golden, tmp_path / "theirs")
    left = check(folder, f"vision.{name}", text_task(texts(tmp_path / "texts"), "mlm"), tmp_path, golden)
    heads = {"cls.seq_relationship", "obj_predict_head.", "answer_head."}
    assert all(name.startswith(tuple(heads)) for name in left)


@pytest.mark.parametrize("name", VOLTA)
def test_volta(name: str, shared: Path, tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    """With its poolers and the heads of regions; LXMERT's has the text's alone, and answers."""
    golden = shared / "golden/volta" / name
    config, lxmert = config_of(golden), name == "original_lxmert"
    classes = classes_of(golden)
    corpus = photographs(tmp_path / "images", config["v_feature_size"], photo(0), min(classes.values()))
    task = of_images(corpus, "question_image" if lxmert else "image_caption")
    pool, size = ["text"] if lxmert else ["text", "image"], config["pooler_size"]
    if lxmert:
        reported = {"objective": "vision.mrc", "of": "mrfr"}
        regions = [
            {"objective": "vision.mrfr", "tied": False},
            {**reported, "name": "objects", "num_classes": classes["3"]},
            {**reported, "name": "attributes", "target": "attributes", "num_classes": classes["4"]},
            {"objective": "vision.answers", "answers": some_answers(config["qa_num_answers"]), "pooled_size": size},
        ]
    else:
        regions = [{"objective": "vision.mrc_kl", "num_classes": classes["0"], "norm": name != "ctrl_vl-bert"}]
    task["objectives"] = [
        {"objective": "vision.itm", "pool": pool, "pooled_size": size},
        {"objective": "mlm"},
        *regions,
    ]
    if name == "ctrl_vl-bert":
        task["sequence"]["image_processor"]["whole"] = "first"
    assert check(golden, "vision.volta", task, tmp_path, golden) == set()


def classes_of(golden: Path) -> dict[str, int]:
    """Rows of VOLTA's heads of regions by their numbers, which no option names; not of the one for features."""
    found = {}
    for name, tensor in load_file(golden / "weights.safetensors").items():
        head, _, rest = name.partition("cls.imagePredictions.decoder_dict.")
        if not head and rest.endswith(".bias") and not rest.startswith("5."):
            found[rest.removesuffix(".bias")] = len(tensor)
    return found


def test_a_head_that_computes_something_else_is_not_exported(
    shared: Path, tmp_path: Path, photo: Callable[[int], bytes]
) -> None:
    golden = shared / "golden/uniter"
    config = config_of(golden)
    known = config["img_label_dim"]
    task = of_images(photographs(tmp_path / "images", config["img_dim"], photo(0), known))
    task["objectives"] = [{"objective": "vision.mrc", "norm": False, "num_classes": known}]
    with pytest.raises(WorkbenchError, match=r"head mrc: norm = False here, True there"):
        check(golden, "vision.uniter", task, tmp_path, golden)
