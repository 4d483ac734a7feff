"""LLaVA: logits and greedy tokens equal to Hugging Face's, both ways."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor, nn

from tests.contracts.cases import FamilyCase
from tests.interop.worlds import WORDS, tokenizer
from tests.vision.interop.test_clip_parity import pixels
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.generation import Generator
from workbench.generation.decoding import Decoding
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.checkpoint_writer import export
from workbench.interop.family import FamilyConfig
from workbench.interop.run_or_checkpoint import load
from workbench.models.context import Context
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence

VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 24,
    "patch_size": 8,
}
TEXT = {
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIG = {"model_type": "llava", "vision_config": VISION, "text_config": TEXT}
CASES = {
    "": FamilyCase(config={**CONFIG, "vision_feature_layer": -1}),
    "plain": FamilyCase(config={**CONFIG, "vision_feature_layer": 3, "multimodal_projector_bias": False}),
}
IMAGE, END = 39, 3
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def saved(folder: Path, **more: Any) -> Any:
    """Their model with random weights, and its folder with a tokenizer."""
    ends = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": END}
    config: dict[str, Any] = {**CONFIG, "text_config": {**TEXT, **ends}, "image_token_index": IMAGE, **more}
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(**config)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    tokenizer(folder / "tokenizer.json")
    return model


def theirs(sequence: Sequence) -> dict[str, Tensor]:
    """The prompt as the library takes it: the image behind the begin token."""
    ids, patches = sequence.streams["text"]["input_ids"], sequence.streams["image"]["patches"]
    marks = [IMAGE] * sequence.length("projected")
    tokens = torch.tensor([[*ids[:1], *marks, *ids[1:]]])
    return {"input_ids": tokens, "pixel_values": pixels(torch.from_numpy(patches), 1)}


@torch.no_grad()
@pytest.mark.parametrize("more", [{}, {"vision_feature_layer": 2, "multimodal_projector_bias": False}])
def test_logits_and_greedy_tokens_both_ways(more: Any, tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    model = saved(tmp_path / "theirs", **more)
    loaded = load(tmp_path / "theirs")
    export(loaded, tmp_path / "ours", "vision.llava")
    again = transformers.LlavaForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()
    images = transformers.AutoImageProcessor.from_pretrained(tmp_path / "ours")
    generator = Generator(loaded, Decoding(max_new_tokens=8))
    network, head = loaded.model.network(), loaded.model.heads["clm"]
    for number, words in enumerate((WORDS[:5], WORDS[3:])):
        question = {"question_id": 0, "question": " ".join(words), "answers": []}
        [prompt] = generator.prompts([{"key": "a", "image": photo(number), "questions": [question]}])
        assert isinstance(prompt, Sequence), prompt
        inputs = theirs(prompt)
        count = prompt.length("projected")
        expected = model(**inputs).logits[0]
        batch = collate([prompt])
        states = network(batch, Context(batch))
        ours = head.logits(network, states["text"])
        rows = torch.cat([expected[:1], expected[1 + count :]])
        torch.testing.assert_close(ours, rows, **CLOSE)
        torch.testing.assert_close(again(**inputs).logits[0], expected, **CLOSE)
        shown = images(Image.open(BytesIO(photo(number))), return_tensors="pt")["pixel_values"]
        assert (shown - inputs["pixel_values"]).abs().mean() < 0.02  # resized by another library's rules
        tokens = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :].tolist()
        tokens = tokens[: tokens.index(END)] if END in tokens else tokens
        [made] = generator.write([prompt])
        assert tokens == list(made.tokens)


def test_an_export_keeps_the_id_of_the_mark_of_an_image(tmp_path: Path) -> None:
    """Also where it is not the last; without a checkpoint that states one, the tokenizer must have the token."""
    saved(tmp_path / "theirs", image_token_index=7)
    loaded = load(tmp_path / "theirs")
    assert export(loaded, tmp_path / "ours", "vision.llava").config["image_token_index"] == 7
    for spec in loaded.recipe.networks.values():
        spec.init_from.clear()
    with pytest.raises(WorkbenchError, match="needs image_token_index, the id of the token <image>"):
        export(loaded, tmp_path / "again", "vision.llava")
    assert loaded.tokenizer is not None
    loaded.tokenizer = loaded.tokenizer.with_tokens(["<image>"])
    made = export(loaded, tmp_path / "again", "vision.llava")
    assert made.config["image_token_index"] == loaded.tokenizer.vocabulary["<image>"]


def test_newer_names_are_read_too() -> None:
    family = make_family("vision.llava")
    names = ["model.vision_tower.vision_model.pre_layrnorm.bias", "model.language_model.norm.weight", "lm_head.weight"]
    wanted = ["vision_tower.pre_layrnorm.bias", "language_model.model.norm.weight", "language_model.lm_head.weight"]
    assert [family.spelt(name) for name in names] == wanted
    assert [family.spelt(name) for name in wanted] == wanted


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vision_feature_layer": [-2, -1]}, r"vision_feature_layer = \[-2, -1\]: needed: one of the 3 layers"),
        ({"vision_feature_layer": -4}, "vision_feature_layer = -4"),
        ({"vision_feature_select_strategy": "full"}, "vision_feature_select_strategy 'full'"),
        ({"text_config": {**TEXT, "model_type": "mistral"}}, "model_type 'mistral'"),
    ],
)
def test_what_our_layers_lack_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        make_family("vision.llava").network(FamilyConfig({**CONFIG, **changes}))
