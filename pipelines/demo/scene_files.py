"""The scenes as raw files, laid out like Flickr8k: `captions_<split>.jsonl` (image, captions), `images_<split>/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.demo.captions import Claim, captions, ceiling
from pipelines.demo.files import write_jsonl
from pipelines.demo.scenes import Scene, make_scenes, render
from workbench.core.files.drafts import write_text
from workbench.core.keyed import generator

TRAIN, HELD_OUT = 3000, 500
_PROVENANCE = {"source": "rendered by the workbench", "license": "Apache-2.0"}


def write_scenes(folder: Path, seed: int = 0, train: int = TRAIN, held_out: int = HELD_OUT) -> dict[str, Any]:
    """Write both splits and `scenes.json`: the counts and the best image-retrieval R@1 that the captions allow."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = dict(zip(("train", "heldout"), make_scenes(train, held_out, seed), strict=True))
    summary: dict[str, Any] = {"seed": seed}
    for name, scenes in splits.items():
        claims = _write_split(folder, name, scenes, seed)
        summary[name] = {"images": len(scenes), "captions": sum(map(len, claims))}
        if name == "heldout":
            summary[name]["image_retrieval_r1_ceiling"] = round(ceiling(claims, scenes), 4)
    write_text(folder / "scenes.json", json.dumps(summary, indent=1) + "\n")
    return summary


def _write_split(folder: Path, name: str, scenes: list[Scene], seed: int) -> list[list[Claim]]:
    images = folder / f"images_{name}"
    images.mkdir(exist_ok=True)
    lines, claims = [], []
    for number, scene in enumerate(scenes):
        file = f"scene_{name}_{number:05d}.png"
        render(scene).save(images / file)
        said = captions(scene, generator(seed, "captions", name, number))
        lines.append({"image": file, "captions": [text for text, _ in said], **_PROVENANCE})
        claims.append([claim for _, claim in said])
    write_jsonl(folder / f"captions_{name}.jsonl", lines)
    return claims
