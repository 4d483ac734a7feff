"""A tiny world of videos: what happens in a segment is in the features of its clips, and in its caption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.text.tokenizer import Tokenizer, train_tokenizer

THINGS = ("red", "green", "blue", "white")
WAYS = ("left", "right", "up", "down")
SIZE = 8
BACKBONE = "made-up"


def video(number: int, segments: int = 3) -> dict[str, Any]:
    """Segments of two clips of a second each; the two last captions are of the same one, and another comes too late."""
    rng = np.random.default_rng(number)
    reported = [(5 * number + 3 * place) % 16 for place in range(segments)]
    features = rng.normal(0, 0.05, (2 * segments, SIZE))
    for row in range(2 * segments):
        thing, way = divmod(reported[row // 2], 4)
        features[row, [thing, 4 + way]] += 1
    captions = [f"the {THINGS[thing]} one goes {WAYS[way]}" for thing, way in (divmod(each, 4) for each in reported)]
    times = [[2.0 * place, 2.0 * place + 2] for place in range(segments)]
    thing, way = divmod(reported[-1], 4)
    return {
        "captions": [*captions, f"{WAYS[way]} goes the {THINGS[thing]} one", "it is over"],
        "caption_times": [*times, times[-1], [1000.0, 1002.0]],
        "clips": {
            "features": features.astype(np.float16),
            "times": np.stack([np.arange(2 * segments), np.arange(2 * segments) + 1], 1).astype(np.float32),
        },
        "meta": {"backbone": BACKBONE},
    }


def write_videos(folder: Path, videos: list[dict[str, Any]]) -> str:
    with ShardWriter(folder / "part-000000.tar", kind="video-text") as writer:
        for number, made in enumerate(videos):
            writer.add(f"f{number}", made)
    assert writer.info is not None
    finish_corpus(folder, kind="video-text", shards=[writer.info], provenance={"command": "test", "inputs": []})
    return str(folder)


def make_videos(folder: Path) -> Path:
    """Holds the corpora `train` and `test` and `tokenizer.json`."""
    write_videos(folder / "train", [video(number) for number in range(5)])
    write_videos(folder / "test", [video(number) for number in range(20, 24)])
    texts = [caption for number in range(16) for caption in video(number)["captions"]]
    Tokenizer(train_tokenizer(texts, "wordpiece", 90)).save(folder / "tokenizer.json")
    return folder


NCE = {"objective": "vision.mil_nce", "name": "joint", "tap": "apart"}
PAIRS = {"objective": "vision.pair_contrast", "name": "alignment", "exchange": "video", "tap": "apart"}
WRITES = {"objective": "denoising", "name": "generation", "view": "masked", "noises": [{"noise": "empty", "rate": 0.2}]}
WORDS = {"objective": "mlm", "view": "masked"}


def tree(folder: Path, objectives: list[dict[str, Any]], **train: Any) -> dict[str, Any]:
    """A recipe of two encoders, a layer over both and a decoder (UniVL's stack)."""
    quiet = {"num_heads": 2, "intermediate_size": 64, "dropout": 0.0, "attention_dropout": 0.0}
    token = {"embedding": "token", "hidden_size": 32, "max_positions": 24, "dropout": 0.0}
    clips = {"embedding": "vision.clips", "hidden_size": 32, "feature_size": SIZE, "max_positions": 24, "dropout": 0.0}
    builder = {"builder": "vision.video_caption", "max_length": 16, "captions": "one", "pairs": 2}
    return {
        "name": "videos",
        "tokenizer": str(folder / "tokenizer.json"),
        "model": {
            "streams": {"text": token, "video": clips, "target": {**token, "token_types": 0}},
            "layers": [
                {"layer": "self", "stream": "text", **quiet},
                {"layer": "self", "stream": "video", **quiet},
                {"layer": "tap", "name": "apart"},
                {"layer": "joint", "streams": ["text", "video"], **quiet},
                {"layer": "cross", "stream": "target", "to": ["text", "video"], **quiet},
            ],
            "tie": {"target.token": "text.token"},
            "poolers": ["text"],
            "init_range": 0.15,
        },
        "tasks": {
            "reported": {
                "corpora": [str(folder / "train")],
                "sequence": {**builder, "video": {"image_processor": "vision.clips", "backbone": BACKBONE}},
                "objectives": objectives,
            }
        },
        "train": {
            "max_steps": 2,
            "global_batch_size": 4,
            "micro_batch_size": 2,
            "lr": 3e-3,
            "num_workers": 0,
            "save_every": 1000,
            **train,
        },
    }
