"""XLM: languages added to tokens, a word head without a transformation; states, logits and losses of their library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from tests.contracts.cases import FamilyCase
from tests.interop.worlds import equal, model_of, recipe_file, text_task, texts, there_and_back, tokenizer
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.sequences.batch import Batch, Stream
from workbench.text.tokenizer import Tokenizer

CONFIG = {
    "model_type": "xlm",
    "vocab_size": 30,
    "emb_dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "max_position_embeddings": 20,
    "n_langs": 3,
}
PLAIN = {**CONFIG, "n_langs": 1, "gelu_activation": False, "sinusoidal_embeddings": True}
CAUSAL = {**PLAIN, "causal": True}
CASES = {"": FamilyCase(config=CONFIG), "plain": FamilyCase(config=PLAIN)}
CLOSE = {"atol": 1e-5, "rtol": 0.0}


def theirs(config: dict[str, Any]) -> Any:
    """Their model with large random weights; positions of a formula stay."""
    torch.manual_seed(0)
    model = transformers.XLMWithLMHeadModel(transformers.XLMConfig(**config, pad_token_id=0)).eval()
    for name, parameter in model.named_parameters():
        if "position" not in name or not config.get("sinusoidal_embeddings"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def inputs() -> tuple[dict[str, Tensor], Tensor, list[int]]:
    """Two pairs of sentences of different lengths, padded: ids, positions from 0 in both sentences, languages."""
    pairs = [(4, 5), (3, 2)]
    lengths = [sum(pair) for pair in pairs]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, 30, mask.shape, generator=torch.Generator().manual_seed(1))
    positions, languages = torch.zeros(mask.shape, dtype=torch.long), torch.zeros(mask.shape, dtype=torch.long)
    for row, (first, second) in enumerate(pairs):
        positions[row, : first + second] = torch.cat([torch.arange(first), torch.arange(second)])
        languages[row, : first + second] = torch.tensor([2] * first + [row] * second)
    found = {"input_ids": ids, "position_ids": positions, "langs": languages, "attention_mask": mask.long()}
    return found, mask, lengths


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, CAUSAL], ids=["languages", "causal"])
def test_states_logits_and_loss(config: dict[str, Any], tmp_path: Path) -> None:
    given, mask, lengths = inputs()
    causal = "causal" in config
    if causal:  # their library takes a mask of padding for all of the mask; rows of padding see, and are not compared
        given = {name: value for name, value in given.items() if name not in ("attention_mask", "langs")}
    model, checkpoint_family = theirs(config), make_family("xlm")
    full = FamilyConfig(model.config.to_dict())
    weights, unused = to_ours(model.state_dict(), checkpoint_family.rules(full))
    assert unused == []
    network = Network(checkpoint_family.network(full)).eval()
    network.load_state_dict({name: tensor for name, tensor in weights.items() if name in network.state_dict()})
    names = {"input_ids": "input_ids", "position_ids": "position_ids"} | ({} if causal else {"langs": "language_ids"})
    fields = {ours: given[their][mask] for their, ours in names.items()}
    if causal:
        fields["rank"] = torch.cat([torch.arange(length) for length in lengths])
    batch = Batch({"text": Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)})
    states = network(batch)["text"]
    labels = torch.where(mask, given["input_ids"], -100)
    said = model(**given, labels=labels, output_hidden_states=True)
    torch.testing.assert_close(states, said.hidden_states[-1][mask], **CLOSE)
    ((name, spec),) = checkpoint_family.heads(full).items()
    words = Tokenizer.load(tokenizer(tmp_path / "tokenizer.json"))
    head: Any = build("objective", spec, "", tokenizer=words).head(network)
    head.load_state_dict({n.removeprefix(f"{name}."): t for n, t in weights.items() if n.startswith(f"{name}.")})
    logits = head.logits(network, states)
    torch.testing.assert_close(logits, said.logits[mask], **CLOSE)
    torch.testing.assert_close(F.cross_entropy(logits, labels[mask]), said.loss, **CLOSE)


@pytest.mark.parametrize("config", [CONFIG, CAUSAL], ids=["languages", "causal"])
def test_there_and_back(config: dict[str, Any], tmp_path: Path) -> None:
    model = theirs({**config, "sinusoidal_embeddings": False})  # of the others some are 0, which a step may change
    model.save_pretrained(tmp_path / "theirs")
    causal = "causal" in config
    task = text_task(texts(tmp_path / "texts", language="en"), "clm" if causal else "mlm")
    task["sequence"]["visibility"] = "causal" if causal else "bidirectional"
    task["objectives"][0] |= {"head": {"bias": True} if causal else {"transform": None}}
    if not causal:
        task["sequence"]["transforms"] = [{"transform": "languages", "languages": ["de", "en", "fr"]}]
    spec = {**model_of("xlm", model.config.to_dict()), "init_from": str(tmp_path / "theirs")}
    recipe = recipe_file(tmp_path / "r.yaml", spec, task, tokenizer=str(tokenizer(tmp_path / "tokenizer.json")))
    written = there_and_back(tmp_path, recipe, "xlm")
    original = load_file(tmp_path / "theirs" / "model.safetensors")
    equal({name: tensor for name, tensor in written.items() if name in original}, original)
    assert original.keys() <= written.keys()
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    given, _, _ = inputs()
    if causal:
        given = {"input_ids": given["input_ids"]}
    with torch.no_grad():
        torch.testing.assert_close(again(**given).logits, model(**given).logits, **CLOSE)


def test_texts_are_in_the_language_that_the_configuration_names() -> None:
    checkpoint_family = make_family("xlm")
    named = FamilyConfig({**CONFIG, "lang2id": {"fr": 2, "de": 0, "en": 1}, "lang_id": 1})
    (step,) = checkpoint_family.sequence(named)["transforms"]
    assert step == {"transform": "languages", "languages": ["de", "en", "fr"], "default": "en"}
    assert checkpoint_family.sequence(FamilyConfig(CONFIG))["transforms"][0]["languages"] == ["0", "1", "2"]
    assert "transforms" not in checkpoint_family.sequence(FamilyConfig(CAUSAL))


@pytest.mark.parametrize(
    ("key", "value", "reported"), [("asm", True, "adaptive softmax"), ("is_encoder", False, "a decoder")]
)
def test_what_our_parts_lack_is_reported(key: str, value: bool, reported: str) -> None:
    with pytest.raises(WorkbenchError, match=reported):
        make_family("xlm").network(FamilyConfig({**CONFIG, key: value}))
