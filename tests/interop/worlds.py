"""checkpoints as folders, made from the golden weights, and the way there and back by a recipe and the command."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import yaml
from safetensors.torch import load_file
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor

from workbench.cli.export import export
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.recipe.reading import load_recipe
from workbench.training.pretrain import pretrain

WORDS = ["the", "old", "river", "runs", "past", "a", "small", "town", "where", "people", "buy", "bread", "and", "tell"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def texts(folder: Path, **fields: Any) -> Path:
    """A corpus of short texts, with these fields in every record."""
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        for i in range(12):
            text = " ".join(WORDS[i:]) + ". " + " ".join(WORDS[:6]) + "."
            writer.add(f"r{i}", {"text": text, "spans": [], "meta": {}, **fields})
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={"command": "test"})
    return folder


def photographs(folder: Path, feature_size: int, photograph: bytes, classes: int = 4) -> Path:
    """A corpus of captions, questions, and regions with so many numbers each, of so many classes."""
    rng = np.random.default_rng(0)
    with ShardWriter(folder / "part-000000.tar", kind="image-text") as writer:
        for i in range(8):
            corners = np.sort(rng.random((3, 2, 2)).astype(np.float32), axis=1).reshape(3, 4)
            features = rng.normal(size=(3, feature_size)).astype(np.float32)
            sure = {name: rng.random(3).astype(np.float32) for name in ("confidence", "attribute_confidence")}
            said = {name: rng.integers(classes, size=3) for name in ("classes", "attributes")}
            scores = {"scores": rng.dirichlet(np.ones(classes), 3).astype(np.float16)}
            regions = {"features": features, "boxes": corners, **sure, **said, **scores}
            caption = " ".join(WORDS[i : i + 4])
            asked = {"question_id": i, "question": caption, "answers": ["yes"]}
            record = {"image": photograph, "captions": [caption], "questions": [asked], "regions": regions}
            writer.add(f"r{i}", {**record, "meta": {"backbone": "made-up", "sha256": str(i)}})
    assert writer.info is not None
    about = {"backbone": "made-up"}
    finish_corpus(folder, kind="image-text", shards=[writer.info], provenance={"command": "test"}, about=about)
    return folder


def tokenizer(path: Path, more: tuple[str, ...] = ()) -> Path:
    """A tokenizer of few words, so that it fits all golden tables."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *WORDS, ".", *more])}
    backend = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    path.parent.mkdir(parents=True, exist_ok=True)
    backend.save(str(path))
    return path


def hugging_face(golden: Path, folder: Path) -> Path:
    """The folder that `save_pretrained` writes of a class with the golden weights."""
    plain = json.loads((golden / "config.json").read_text())
    transformers = importlib.import_module("transformers")
    kind = getattr(transformers, plain["model_class"])
    model = kind(kind.config_class(**plain["config"]))
    model.load_state_dict(load_file(golden / "weights.safetensors"), strict=False)
    model.save_pretrained(folder)
    return folder


def recipe_file(path: Path, model: Mapping[str, Any], task: Mapping[str, Any], **more: Any) -> Path:
    """A recipe that makes one step which changes nothing: its learning rate is below what float32 adds."""
    train = {
        "max_steps": 1,
        "global_batch_size": 4,
        "micro_batch_size": 4,
        "lr": 1e-30,
        "num_workers": 0,
        "verify": False,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"model": dict(model), "tasks": {"it": dict(task)}, "train": train, **more}))
    return path


def text_task(corpus: Path, *objectives: str) -> dict[str, Any]:
    pair = {"nsp", "sop"} & {*objectives}
    builder = {"builder": "sentence_pair" if pair else "document", "max_length": 16}
    return {"corpora": [str(corpus)], "sequence": builder, "objectives": [{"objective": name} for name in objectives]}


def model_of(family: str, config: Mapping[str, Any], **streams: Any) -> dict[str, Any]:
    """The `model` of a recipe that the family's configuration describes.

    Args:
        streams: options of a stream's embedding to change.
    """
    spec = make_family(family).network(FamilyConfig(config))
    changed = {name: {**part, **streams.get(name, {})} for name, part in spec.streams.items()}
    return {"streams": changed, "layers": spec.layers, "poolers": spec.poolers, "tie": spec.tie}


def there_and_back(folder: Path, recipe: Path, family: str) -> dict[str, Tensor]:
    """Start a run by the recipe, export it by the command; what was written."""
    run = pretrain(load_recipe(str(recipe)), folder / "run")
    export(run, folder / "exported", family)
    return load_file(folder / "exported" / "model.safetensors")


def equal(
    written: Mapping[str, Tensor], golden: Mapping[str, Tensor], rows: Mapping[str, int | slice] | None = None
) -> None:
    """Every tensor that was written is the golden one, bit for bit; of tables in `rows` those rows."""
    for name, tensor in written.items():
        at = (rows or {}).get(name, slice(None))
        assert torch.equal(tensor[at], golden[name][at]), name


def as_torch(weights: Path, file: Path) -> Path:
    """The weights as a file of torch, as most checkpoints are."""
    torch.save(load_file(weights), file)
    return file
