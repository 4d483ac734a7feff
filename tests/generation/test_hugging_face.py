"""Texts of GPT, GPT-2 and T5 with random weights are those of Hugging Face's `generate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from workbench.generation.beams import beam_search
from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, draw
from workbench.interop.families.gpt import Gpt
from workbench.interop.families.gpt2 import Gpt2
from workbench.interop.families.t5 import T5
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.pretraining.objective import Continuation, Head
from workbench.sequences.batch import Batch, Stream

LENGTHS = [5, 2, 7]
SEARCHES: list[dict[str, Any]] = [
    {},
    {"beams": 3},
    {"beams": 4, "length_penalty": 2.0, "early_stopping": "never"},
    {"beams": 2, "length_penalty": -0.5, "early_stopping": "true"},
]
LONGEST = 7


class Tied(Head):
    """Logits by the text's table, scaled."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        table: Tensor = network.embeddings["text"].token.weight
        return rows * self.scale @ table.T


def stream(rows: list[Tensor], **fields: list[Tensor]) -> Stream:
    lengths = [len(row) for row in rows]
    joined = {name: torch.cat(values) for name, values in {"input_ids": rows, **fields}.items()}
    return Stream(joined, torch.tensor([0, *lengths]).cumsum(0), lengths)


def prompts_of_texts() -> tuple[list[Tensor], Batch]:
    """Prompts of several lengths, by themselves and as a batch that is read from left to right."""
    g = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 40, (n,), generator=g) for n in LENGTHS]
    places = [torch.arange(n) for n in LENGTHS]
    return prompts, Batch({"text": stream(prompts, position_ids=places, rank=places)})


@torch.no_grad()
def ours(decoder: Decoder, search: dict[str, Any], prompts: int) -> list[list[int]]:
    decoding = Decoding(max_new_tokens=LONGEST, **search)
    made = beam_search(decoder, decoding, prompts) if decoding.beams > 1 else draw(decoder, decoding, [None] * prompts)  # type: ignore[list-item]
    return [text.tokens for text in made]


def theirs(model: Any, search: dict[str, Any], end: int, given: dict[str, Tensor], prompt: int) -> list[list[int]]:
    """The new tokens of `generate`, without the end and what stands behind it."""
    names = {"beams": "num_beams"}
    values = {"true": True, "false": False}
    options = {names.get(n, n): values.get(v, v) for n, v in search.items()}
    options["use_cache"] = False  # theirs fails for a decoder that has not as many layers as its encoder
    made = model.generate(
        **given, max_new_tokens=LONGEST, min_length=0, do_sample=False, eos_token_id=end, pad_token_id=0, **options
    )
    texts = made[:, prompt:].tolist()
    return [text[: text.index(end)] if end in text else text for text in texts]


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_gpt2(search: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "initializer_range": 0.3}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    reported = FamilyConfig(config.to_dict())
    network = Network(Gpt2().network(reported)).eval()
    network.load_state_dict(to_ours(model.state_dict(), Gpt2().rules(reported)).tensors)

    prompts, batch = prompts_of_texts()
    width = max(LENGTHS)
    padded = torch.stack([torch.cat([torch.zeros(width - len(p)).long(), p]) for p in prompts])
    mask = torch.stack([torch.cat([torch.zeros(width - n), torch.ones(n)]) for n in LENGTHS]).long()
    given = {"input_ids": padded, "attention_mask": mask}
    for end in (3, 11):
        decoder = Decoder(network, Tied(1.0), Continuation("text", end), batch)
        assert ours(decoder, search, 3) == theirs(model, search, end, given, width)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_gpt(search: dict[str, Any]) -> None:
    """Theirs counts positions of padded prompts from the padding, so it gets one prompt at a time."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "initializer_range": 0.3}
    model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes)).eval()
    reported = FamilyConfig(model.config.to_dict())
    network = Network(Gpt().network(reported)).eval()
    network.load_state_dict(to_ours(model.state_dict(), Gpt().rules(reported)).tensors)

    prompts, batch = prompts_of_texts()
    for end in (3, 11):
        decoder = Decoder(network, Tied(1.0), Continuation("text", end), batch)
        expected = [theirs(model, search, end, {"input_ids": p[None]}, len(p))[0] for p in prompts]
        assert ours(decoder, search, 3) == expected


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_t5(search: dict[str, Any], shared: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = shared / "golden/hf/t5"
    config = FamilyConfig(json.loads((folder / "config.json").read_text())["config"])
    w, inputs = (load_file(folder / f"{kind}.safetensors") for kind in ("weights", "inputs"))
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**config)).eval()
    model.load_state_dict(w, strict=False)
    network = Network(T5().network(config)).eval()
    network.embeddings["target"] = network.embeddings["text"]
    network.load_state_dict(to_ours(w, T5().rules(config))[0], strict=False)

    real = inputs["attention_mask"].bool()
    sources = [row[kept] for row, kept in zip(inputs["input_ids"], real, strict=True)]
    first = [torch.zeros(1).long() for _ in sources]
    batch = Batch({"text": stream(sources), "target": stream(first, position_ids=first, rank=first)})
    given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    for end in (1, 7):
        decoder = Decoder(network, Tied(config["d_model"] ** -0.5), Continuation("target", end), batch)
        assert ours(decoder, search, len(sources)) == theirs(model, search, end, given, 1)
