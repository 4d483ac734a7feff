"""A tiny image-text world of coloured squares, a joint model of it, and its fine-tuned runs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vision.evaluation.task_options import VqaTuning
from vision.evaluation.tasks.vqa import Vqa
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 30), "blue": (30, 30, 220), "white": (250, 250, 250)}
PLACES = ("left", "right")
SIDE = 16


def photograph(colour: str, place: str, shade: int) -> bytes:
    """A grey image, one half of which has a colour; `shade` makes equal descriptions different images."""
    pixels = np.full((SIDE, SIDE, 3), 90 + 7 * shade % 40, np.uint8)
    half = slice(None, SIDE // 2) if place == "left" else slice(SIDE // 2, None)
    pixels[:, half] = COLOURS[colour]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def record(number: int) -> dict[str, Any]:
    colour, place = list(COLOURS)[number % 4], PLACES[number // 4 % 2]
    return {
        "image": photograph(colour, place, number),
        "captions": [f"a {colour} square on the {place}.", f"on the {place} it is {colour}."],
        "questions": [
            {
                "question_id": 10 * number,
                "question": "what color is the square?",
                "answers": [colour],
                "answer_type": "other",
                "question_type": "what color",
            },
            {
                "question_id": 10 * number + 1,
                "question": "is it red or white?",
                "answers": ["yes" if colour in ("red", "white") else "no"],
                "answer_type": "yes/no",
                "question_type": "is it",
            },
        ],
        "meta": {},
    }


def write_corpus(folder: Path, records: list[dict[str, Any]], **about: Any) -> str:
    with ShardWriter(folder / "part-000000.tar", kind="image-text") as writer:
        for i, made in enumerate(records):
            writer.add(f"r{i}", made)
    assert writer.info is not None
    provenance: dict[str, Any] = {"command": "test", "inputs": []}
    finish_corpus(folder, kind="image-text", shards=[writer.info], provenance=provenance, about=about)
    return str(folder)


def tree(folder: Path, objectives: list[dict[str, Any]], **train: Any) -> dict[str, Any]:
    """A recipe of one joint layer on 2 x 2 patches."""
    joint = {"layer": "joint", "streams": ["text", "image"], "num_heads": 2, "intermediate_size": 64}
    image = {"image_processor": "vision.patches", "size": SIDE, "patch": 8}
    return {
        "name": "tiny",
        "tokenizer": str(folder / "tokenizer.json"),
        "model": {
            "streams": {
                "text": {"embedding": "token", "hidden_size": 32, "max_positions": 24, "dropout": 0.0},
                "image": {
                    "embedding": "vision.patches",
                    "hidden_size": 32,
                    "grid": 2,
                    "patch": 8,
                },
            },
            "layers": [{**joint, "dropout": 0.0, "attention_dropout": 0.0}],
            "poolers": ["text"],
            "init_range": 0.15,
        },
        "tasks": {
            "pairs": {
                "corpora": [str(folder / "train")],
                "sequence": {"builder": "image_caption", "max_length": 16, "image_processor": image},
                "objectives": objectives,
            }
        },
        "train": {
            "max_steps": 2,
            "global_batch_size": 8,
            "micro_batch_size": 8,
            "lr": 3e-3,
            "num_workers": 0,
            "save_every": 1000,
            **train,
        },
    }


def writer(folder: Path, **train: Any) -> dict[str, Any]:
    """A recipe of a decoder behind 2 x 2 patches that learns the answers of conversations."""
    recipe = tree(folder, [{"objective": "clm"}], **train)
    streams = recipe["model"]["streams"]
    streams["text"] |= {"max_positions": None, "token_types": 0}
    streams["image"] |= {"hidden_size": 24}
    streams["projected"] = {"embedding": "vision.projected", "hidden_size": 32}
    plain = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "intermediate_size": 64, "norm_place": "pre"}
    recipe["model"]["layers"] = [
        {**plain, "layer": "self", "stream": "image"},
        {"layer": "vision.projector", "stream": "projected", "to": "image"},
        {**plain, "layer": "joint", "streams": ["projected", "text"], "rotary": 10000, "repeat": 2},
    ]
    recipe["model"]["poolers"] = []
    recipe["tasks"]["pairs"]["sequence"] = {
        "builder": "conversation",
        "max_length": 64,
        "template": {"user": "on: ", "assistant": "it: "},
        "history": False,
        "image_processor": {"image_processor": "vision.patches", "size": SIDE, "patch": 8},
        "transforms": [{"transform": "vision.projected"}, {"transform": "before", "streams": ["projected", "text"]}],
    }
    return recipe


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the corpora `train` (32 images) and `test` (10) and `tokenizer.json`."""
    return make_squares(tmp_path_factory.mktemp("squares"))


def make_squares(folder: Path) -> Path:
    """As `squares`, in the folder."""
    write_corpus(folder / "train", [record(i) for i in range(32)])
    write_corpus(folder / "test", [record(i) for i in range(40, 50)])
    texts = [text for i in range(32) for text in record(i)["captions"]]
    texts += [question["question"] for question in record(0)["questions"]]
    Tokenizer(train_tokenizer(texts, "wordpiece", 120)).save(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def train(squares: Path) -> Callable[..., Path]:
    """`train(name, objectives)`: a run of a recipe with these objectives."""

    def trained(name: str, objectives: list[dict[str, Any]], **options: Any) -> Path:
        return pretrain(recipe_from_dict(tree(squares, objectives, **options)), squares / "runs" / name)

    return trained


@pytest.fixture(scope="session")
def matching(train: Callable[..., Path]) -> Path:
    """A run with mlm, matching."""
    return train("matching", [{"objective": "mlm"}, {"objective": "vision.itm"}])


@pytest.fixture(scope="session")
def contrast(train: Callable[..., Path]) -> Path:
    """A run whose joint layer encodes texts and images apart."""
    itc = {"objective": "vision.itc", "size": 8, "pool_text": "mean", "pool_image": "mean"}
    return train("contrast", [{**itc, "apart": True, "view": "contrast"}])


@pytest.fixture(scope="session")
def apart(squares: Path) -> Path:
    """A dual encoder: no layer mixes texts and images."""
    itc = {"objective": "vision.itc", "size": 8, "pool_image": "mean"}
    recipe = tree(squares, [itc], max_steps=1, evaluate_every=1)
    recipe["tasks"]["pairs"]["held_out"] = [str(squares / "test")]
    plain = {"layer": "self", "num_heads": 2, "intermediate_size": 64}
    recipe["model"]["layers"] = [{**plain, "stream": stream} for stream in ("text", "image")]
    return pretrain(recipe_from_dict(recipe), squares / "runs" / "apart")


@pytest.fixture(scope="session")
def answering(matching: Path, squares: Path) -> Path:
    """The matching run, fine-tuned until it answers."""
    output = squares / "runs" / "answering"
    tuning = VqaTuning(
        run=matching,
        corpus=str(squares / "train"),
        overrides=["train.max_steps=200", "train.evaluate_every=200"],
        held_out=str(squares / "test"),
        output=output,
        min_count=2,
        batch_size=16,
        lr=3e-3,
    )
    return fine_tune(Vqa(), tuning)


@pytest.fixture(scope="session")
def test_corpus(squares: Path) -> Corpus:
    return Corpus.open(squares / "test")


@pytest.fixture(scope="session")
def captions_only(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A corpus of images with captions."""
    kept = [{k: v for k, v in record(i).items() if k != "questions"} for i in range(4)]
    return write_corpus(tmp_path_factory.mktemp("captions") / "corpus", kept)
