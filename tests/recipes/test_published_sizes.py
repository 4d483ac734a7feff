"""Recipes have as many parameters as the paper, the published code or the class of the library.

Where the library has a class of the published configuration (its defaults, where nothing else is said), the counts are
equal but for what is named; a paper's figure is met within its own rounding. Not here, as nothing to compare with was
found: what b2t2, cbt, speechbert, univl, unicoder-vl, videobert, vilbert and vl-bert have next to BERT; sensebert; the
adapters of k-adapter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from kg.sequences.entity_vocabulary import save_entity_vocabulary
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.objectives._token_head import HeadOptions, TokenHead
from workbench.objectives.mlm import MlmHead
from workbench.optimization.groups import freeze
from workbench.recipe.reading import load_recipe

PUBLISHED = {  # size of the vocabulary, millions of parameters of the network without its heads
    "bert": (30522, 110),
    "bert-large": (30522, 340),
    "bert-wwm-large": (30522, 340),
    "roberta": (50265, 125),
    "roberta-large": (50265, 355),
    "albert": (30000, 12),
    "albert-large": (30000, 18),
    "albert-xlarge": (30000, 60),
    "albert-xxlarge": (30000, 223),  # the published model; the paper's table 1 says 235
    "spanbert": (28996, 110),
    "spanbert-large": (28996, 340),
}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 312, "num_hidden_layers": 4, "num_attention_heads": 12, "intermediate_size": 1200}
SMALL = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
ENTITIES = 5
"""Rows of LUKE's table of entities here: two and the special ones."""
PADDING = {"positions of padding": 2}
"""RoBERTa counts positions from the padding's id; in rows of the table, as the others below."""
VECTORS = {"e-bert": {"text.path": 768}, "ernie-thu": {"entity.path": 100, "entity.shuffled": 100}}
VECTORS |= {name: {"wiki.path": 300, "wordnet.path": 200} for name in ("knowbert",)}
"""Of entities' vectors, which stay as they are and are not counted, their size."""


def numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def network_of(name: str, vocab_size: int, folder: Path) -> Network:
    """The first network of a recipe, with tables of few entities."""
    changes = []
    for option, size in VECTORS.get(name, {}).items():
        path = folder / f"{option}.safetensors"
        save_vectors(GraphVectors(["a", "b"], torch.randn(2, size), [], torch.zeros(0, size)), path)
        changes.append(f"model.streams.{option}={path}")
    if name == "luke":
        vocabulary = folder / "vocabulary.safetensors"
        save_entity_vocabulary(vocabulary, Counter("ab"), 2, {})
        changes.append(f"model.streams.entity.vocabulary={vocabulary}")
    with torch.device("meta"):
        return build_networks(load_recipe(name, changes), vocab_size=vocab_size)["main"]


def whole(network: Network) -> int:
    return numbers(network)


def of_text(network: Network) -> int:
    """The embedding of words, the layers that only words or words and others pass, and the poolers."""
    layers = [layer for layer in network.layers if "text" in getattr(layer, "reads", ()) and not _crosses(layer)]
    return sum(map(numbers, [network.embeddings["text"], *layers, network.poolers]))


def of_text_alone(network: Network) -> int:
    """The same without the layers that others pass too."""
    return of_text(network) - sum(numbers(layer) for layer in network.layers if type(layer).__name__ == "JointLayer")


def _crosses(layer: nn.Module) -> bool:
    return type(layer).__name__ in ("CoLayer", "CrossLayer", "BoxesInTextLayer", "VisualElementsLayer")


@dataclass(frozen=True)
class Same:
    """A class of the library, of a configuration.

    Attributes:
        rows: what is there and not here, in rows of the hidden size.
        more: the same, in numbers; below 0 what is here alone.
        part: which parameters of ours are compared.
    """

    kind: str
    config: dict[str, Any]
    rows: dict[str, int] | None = None
    more: dict[str, int] | None = None
    part: Callable[[Network], int] = whole
    pooled: bool = True

    def count(self) -> int:
        model, config = getattr(transformers, f"{self.kind}Model"), getattr(transformers, f"{self.kind}Config")
        made = config(**self.config)
        unpooled = {} if self.pooled else {"add_pooling_layer": False}
        with torch.device("meta"):
            found = numbers(model(made, **unpooled))
        width = made.hidden_size if hasattr(made, "hidden_size") else 0
        return found - width * sum((self.rows or {}).values()) - sum((self.more or {}).values())


CLASS_TOKEN = {"the class token's position, which is one with its vector here": 1}
SMOLLM = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
}
LARGER = {"hidden_size": 960, "num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5}
LLAMA3 = {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
CLIP_HEAD = {"projections": 512 * 512 + 768 * 512, "norms before them": 2 * 512 + 2 * 768, "scale": 1}
LIBRARY = {
    "clip": Same("CLIP", {}, more={**CLIP_HEAD, "the class token's position, one with its vector here": 768}),
    "siglip": Same("Siglip", {}, more={"projection of the text": 768 * 768 + 768, "scale and bias": 2}),
    "simcse": Same("Bert", {}, pooled=False),
    "simcse-supervised": Same("Bert", {}, pooled=False),
    "e5": Same("Bert", {}, pooled=False),
    "dpr": Same("Bert", {}, part=of_text, pooled=False),
    "lxmert": Same("Lxmert", {}),
    "vilt": Same("Vilt", {"image_size": 384}, rows=CLASS_TOKEN),
    "visualbert": Same(
        "VisualBert",
        {"visual_embedding_dim": 2048},
        rows={"positions and types of regions, of which all read one row each: their sum here": 512 + 2 - 1},
    ),
    "k-bert": Same("Bert", {"vocab_size": 21128}),
    "llama": Same("Llama", SMOLLM),
    "llama-360m": Same("Llama", {**SMOLLM, **LARGER, "intermediate_size": 2560}),
    "llama-8b": Same("Llama", LLAMA3),
    "distilbert": Same("DistilBert", {}),
    "bert-pkd": Same("Bert", {"num_hidden_layers": 6}),
    "tinybert": Same("Bert", TINY, pooled=False),
    "tinybert-task": Same("Bert", TINY),
    "theseus": Same("Bert", {"num_hidden_layers": 6}),
    "q8bert": Same("Bert", {}),
    "movement": Same("Bert", {}, part=lambda network: numbers(network) - numbers(network.adapters)),
    "layerdrop": Same("Roberta", ROBERTA, rows={**PADDING, "the only type": 1}, pooled=False),
    "minilm": Same("Bert", {**SMALL, "num_hidden_layers": 6}, pooled=False),
    "longformer": Same("Longformer", {**ROBERTA, "max_position_embeddings": 4098}, rows=PADDING, pooled=False),
    "kg-bert": Same("Bert", {}),
    "libert": Same("Bert", {}),
    "wklm": Same("Bert", {}, pooled=False),
    "e-bert": Same("Bert", {"vocab_size": 28996}),
    "kepler": Same("Roberta", ROBERTA, rows={**PADDING, "the only type": 1}, pooled=False),
    "sentilr": Same(
        "Roberta",
        ROBERTA,
        rows={**PADDING, "the only type": 1, "parts of speech, polarities, labels": -(5 + 3 + 6)},
        pooled=False,
    ),
    "luke": Same(
        "Luke",
        {**ROBERTA, "vocab_size": 50267, "entity_vocab_size": 500_000, "entity_emb_size": 256},
        rows={"positions of padding, of words and of entities": 4, "the only type of words": 1},
        more={"entities": (500_000 - ENTITIES) * 256},
        pooled=False,
    ),
    "k-adapter": Same(
        "Roberta",
        {**ROBERTA, **LARGE},
        rows={**PADDING, "the only type": 1},
        part=lambda network: numbers(network) - numbers(network.adapters),
        pooled=False,
    ),
    # systems that the library has no class of, and that start from BERT
    "uniter": Same("Bert", {}, rows={"the type of regions, which is their embedding's here": 1}, part=of_text),
    "unicoder-vl": Same("Bert", {}, part=of_text),
    "vilbert": Same("Bert", {}, part=of_text, pooled=False),
    "vl-bert": Same(
        "Bert", {}, rows={"the norm of words, which is the first layer's here": 2}, part=of_text, pooled=False
    ),
    "b2t2": Same("Bert", LARGE, part=of_text),
    "videobert": Same("Bert", LARGE, part=of_text),
    "cbt": Same("Bert", {}, part=of_text_alone, pooled=False),
    "speechbert": Same("Bert", {}, part=of_text, pooled=False),
    "univl": Same("Bert", {}, part=of_text_alone),
    "dual-encoder-pretrained": Same(
        "Bert",
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
        part=of_text,
        pooled=False,
    ),
}
VOCABULARIES = {"clip": 49408, "siglip": 32000, "luke": 50267, "k-bert": 21128, "e-bert": 28996, "coca": 64000}
VOCABULARIES |= {"llama": 49152, "llama-360m": 49152, "llama-8b": 128256}
VOCABULARIES |= dict.fromkeys(("kepler", "sentilr", "k-adapter", "layerdrop", "longformer"), 50265)


def image_encoder(network: Network) -> int:
    layers = [layer for layer in network.layers if getattr(layer, "reads", ()) == ("image",)]
    return sum(map(numbers, [network.embeddings["image"], *layers]))


def text_and_fusion(network: Network) -> int:
    """With the head of masked words, as a checkpoint of BERT counts it."""
    layers = [layer for layer in network.layers if "text" in getattr(layer, "reads", ())]
    with torch.device("meta"):
        head = MlmHead(network)
    return sum(map(numbers, [network.embeddings["text"], *layers, head]))


def decoder(network: Network) -> int:
    """With the head that predicts words, as the recipe says it."""
    layers = [layer for layer in network.layers if "text" in getattr(layer, "reads", ())]
    [said] = [spec for spec in load_recipe("coca").tasks["pairs"].objectives if spec["objective"] == "clm"]
    with torch.device("meta"):
        head = TokenHead(network, "text", HeadOptions(**said.get("head", {})))
    return sum(map(numbers, [network.embeddings["text"], *layers, head]))


FIGURES = {
    ("llama", "the name of SmolLM2-135M, arXiv:2502.02737"): (whole, 135, 0.5),
    ("albef", "BERT-base, 3.5 of arXiv:2107.07651"): (text_and_fusion, 123.7, 0.05),
    ("albef", "ViT-B/16, 3.5 of arXiv:2107.07651"): (image_encoder, 85.8, 0.05),
    ("coca", "image encoder, table 1 of arXiv:2205.01917"): (image_encoder, 86, 0.5),
    ("coca", "text decoder, table 1 of arXiv:2205.01917: 383 without the encoder"): (decoder, 297, 1.0),
    ("uniter", "footnote 12 of arXiv:1909.11740, which counts no tables"): (
        lambda network: numbers(network.layers) + numbers(network.poolers),
        86,
        0.5,
    ),
    ("ernie-thu", "section 3.4 of arXiv:1905.07129"): (whole, 114, 0.5),
    ("knowbert", "masked LM, table 1 of arXiv:1909.04164"): (
        lambda network: of_text(network) - sum(kars(network)),
        110,
        1.0,
    ),
    ("knowbert", "KAR of the wiki, table 1 of arXiv:1909.04164"): (lambda network: kars(network)[0], 2.4, 0.05),
}


def kars(network: Network) -> list[int]:
    return [numbers(layer) for layer in network.layers if type(layer).__name__ == "KarLayer"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name: str) -> None:
    vocab_size, millions = PUBLISHED[name]
    with torch.device("meta"):
        network = Network(load_recipe(name).networks["main"], vocab_size=vocab_size)
    assert sum(parameter.numel() for parameter in network.parameters()) / 1e6 == pytest.approx(millions, rel=0.04)


@pytest.mark.parametrize("name", LIBRARY)
def test_parameters_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    network = network_of(name, VOCABULARIES.get(name, 30522), tmp_path)
    assert LIBRARY[name].part(network) == LIBRARY[name].count()


@pytest.mark.parametrize(("name", "source"), FIGURES)
def test_parameters_round_to_the_figure_of_the_paper(name: str, source: str, tmp_path: Path) -> None:
    part, millions, rounding = FIGURES[name, source]
    network = network_of(name, VOCABULARIES.get(name, 30522), tmp_path)
    assert part(network) / 1e6 == pytest.approx(millions, abs=rounding)


FROZEN = {  # of the first network: the streams whose embeddings are frozen, and the layers
    "blip-2": (["image"], range(1, 40)),
    "blip-2-decoder": (["image", "text"], [*range(1, 40), *range(54, 87)]),
    "llava": (["image"], range(23)),
    "llava-alignment": (["image", "text"], [*range(23), *range(24, 57)]),
    "cbt": (["text"], range(12)),
    "dual-encoder-pretrained": (["text"], range(6)),
}


@pytest.mark.parametrize("name", FROZEN)
def test_encoders_and_decoders_of_others_are_frozen(name: str) -> None:
    """Whole ones alone: those of weights that are loaded, in the full size."""
    recipe, root = load_recipe(name), nn.Module()
    with torch.device("meta"):
        root.networks = nn.ModuleDict(build_networks(recipe, vocab_size=300))
    freeze(root, recipe.train)
    network = root.networks["main"]
    assert isinstance(network, Network)
    frozen = {path for path, parameter in network.named_parameters() if not parameter.requires_grad}
    streams, layers = FROZEN[name]
    parts = {f"embeddings.{stream}" for stream in streams} | {f"layers.{number}" for number in layers}
    assert {".".join(path.split(".")[:2]) for path in frozen} == parts
    assert {path for path, _ in network.named_parameters() if ".".join(path.split(".")[:2]) in parts} == frozen
