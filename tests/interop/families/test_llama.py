"""Llama and the families with its names: logits and greedy tokens equal to Hugging Face's, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tests.contracts.cases import FamilyCase
from tests.interop.test_language_models import PROMPTS, our_logits
from tests.interop.worlds import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.generation import Generator
from workbench.generation.decoding import Decoding
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.checkpoint_recipe import checkpoint_recipe_yaml
from workbench.interop.checkpoint_writer import export
from workbench.interop.family import FamilyConfig
from workbench.interop.run_or_checkpoint import load
from workbench.recipe.reading import load_recipe

CONFIG = {
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 8}
CASES = {
    "": FamilyCase(config=CONFIG),
    "3": FamilyCase(config={**CONFIG, "tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "biases": FamilyCase(config={**CONFIG, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "older": FamilyCase(config={**CONFIG, "rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 2.0}}),
}
WINDOW = {"use_sliding_window": True, "sliding_window": 5}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 2": ("llama", {}),
    "llama 3": ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3, "rms_norm_eps": 1e-5}),
    "llama, biases, wide heads": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "llama, yarn": ("llama", {"rope_parameters": YARN, "max_position_embeddings": 32}),
    "llama, dynamic": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}, "max_position_embeddings": 4},
    ),
    "smollm2": ("llama", {"num_attention_heads": 8, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "mistral": ("mistral", {"sliding_window": 4, "head_dim": 6}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2, windows": ("qwen2", {**WINDOW, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 5e6}}),
    "qwen3, windows": ("qwen3", {"head_dim": 8, **WINDOW, "max_window_layers": 2, "attention_bias": True}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}),
    "qwen3-moe": ("qwen3_moe", {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}),
    "qwen3-moe, normalised": (
        "qwen3_moe",
        {"num_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "norm_topk_prob": True},
    ),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0, 1]}),
}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def saved(name: str, folder: Path) -> Any:
    """Their model with random weights, and its folder with a tokenizer."""
    model_type, more = MODELS[name]
    ends = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 3}
    config = transformers.AutoConfig.for_model(**{**CONFIG, **ends, "model_type": model_type, **more})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer(folder / "tokenizer.json")
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_tokens_both_ways(name: str, tmp_path: Path) -> None:
    model, (family, _) = saved(name, tmp_path / "theirs"), MODELS[name]
    loaded = load(tmp_path / "theirs")
    assert loaded.tokenizer is not None
    export(loaded, tmp_path / "ours", family, place=tmp_path / "theirs")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    made = Generator(loaded, Decoding(max_new_tokens=8))([{"key": text, "text": text} for text in PROMPTS])
    for prompt, text in zip(PROMPTS, made, strict=True):
        ids = torch.from_numpy(loaded.tokenizer.encode(prompt).ids)[None]
        expected = model(ids).logits[0]
        torch.testing.assert_close(our_logits(loaded, prompt), expected, **CLOSE)
        assert torch.equal(again(ids).logits[0], expected)
        tokens = model.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :].tolist()
        tokens = tokens[: tokens.index(3)] if 3 in tokens else tokens
        assert tokens == list(text.tokens)


def test_a_recipe_is_written_from_a_folder(tmp_path: Path) -> None:
    """`workbench recipes --from FOLDER`: it can be read, and trains the next token with the table of words."""
    saved("llama 3", tmp_path / "theirs")
    (tmp_path / "mine.yaml").write_text(checkpoint_recipe_yaml(str(tmp_path / "theirs")))
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    (task,) = recipe.tasks.values()
    assert [spec["objective"] for spec in task.objectives] == ["clm"]
    layer = recipe.networks["main"].layers[0]
    assert (layer["kv_heads"], layer["rotary"], layer["rotary_scaling"]["kind"]) == (2, 500000.0, "llama3")


def test_an_older_configuration_says_the_same() -> None:
    plain = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    older = {"rope_theta": 500000.0, "rope_scaling": {"type": plain.pop("rope_type"), **plain}}
    specs = [
        make_family("llama").network(FamilyConfig({**CONFIG, **each})) for each in (older, {"rope_parameters": LLAMA3})
    ]
    assert specs[0] == specs[1]


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "rope_type 'longrope'.*linear.*llama3"),
        ("llama", {"rope_parameters": {"full_attention": {}}}, "have full_attention, which is not supported"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 is not supported"),
        ("llama", {"hidden_act": "relu"}, "unknown activation 'relu'"),
        ("llama", {"vocab_size": None}, "the configuration has no 'vocab_size'"),
        ("mistral", {"num_key_value_heads": None}, "the configuration has no 'num_key_value_heads'"),
        ("qwen3", {"layer_types": ["chunked_attention"] * 3}, "layer_types = .*allowed: 3 of"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers = .*allowed: 3 numbers"),
    ],
)
def test_what_our_layers_lack_is_refused(family: str, changes: dict[str, Any], said: str) -> None:
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    with pytest.raises(WorkbenchError, match=said):
        make_family(family).network(FamilyConfig(config))


def test_a_folder_says_its_positions(tmp_path: Path) -> None:
    """The longest text of a scaled network is written, as other programs limit texts by it."""
    saved("llama, yarn", tmp_path / "theirs")
    export(load(tmp_path / "theirs"), tmp_path / "ours", "llama")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["max_position_embeddings"] == 32
    assert config["rope_parameters"]["original_max_position_embeddings"] == 8


@pytest.mark.parametrize(
    ("family", "theirs"),
    [
        ("llama", transformers.LlamaConfig),
        ("mixtral", transformers.MixtralConfig),
        ("eurobert", transformers.EuroBertConfig),
    ],
)
def test_an_omitted_epsilon_is_the_library_s(family: str, theirs: Any) -> None:
    stated = FamilyConfig({key: value for key, value in CONFIG.items() if key != "rms_norm_eps"})
    network = make_family(family).network(stated)
    assert {layer["norm_eps"] for layer in network.layers} == {theirs().rms_norm_eps}


def test_two_keys_of_rotary_positions_must_agree() -> None:
    rope = {"rope_type": "linear", "factor": 2.0}
    config = {**CONFIG, "rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}}
    make_family("llama").network(FamilyConfig({**config, "rope_parameters": {**rope, "rope_theta": 1e4}}))
    with pytest.raises(WorkbenchError, match="of the configuration differ"):
        make_family("llama").network(FamilyConfig({**config, "rope_parameters": {**rope, "factor": 4.0}}))
