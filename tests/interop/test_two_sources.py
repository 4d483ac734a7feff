"""Two sources of one fact in the folder of a checkpoint: a tied matrix with two names, a configuration and weights, a
tokenizer and a configuration. Neither wins in silence, and what is exported unchanged is what was read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from tests.interop.worlds import WORDS, equal, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import PretrainedWeights, make_family, read_checkpoint_folder
from workbench.interop.checkpoint_writer import export
from workbench.interop.rules import to_theirs
from workbench.interop.run_or_checkpoint import load
from workbench.interop.table_growth import by_class
from workbench.interop.weight_sources import RUN
from workbench.sequences.batch import collate

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}
BART = {"d_model": 32, "max_position_embeddings": 40} | {
    f"{stack}_{size}": number
    for stack in ("encoder", "decoder")
    for size, number in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 40))
}
GPT = {"n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 2}
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 40, "num_layers": 1, "num_heads": 2}
BERTS = "cls.predictions.decoder.weight"
TIED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "bert": ("BertForMaskedLM", SIZES, BERTS, "bert.embeddings.word_embeddings.weight"),
    "roberta": ("RobertaForMaskedLM", SIZES, "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    "albert": (
        *("AlbertForMaskedLM", {**SIZES, "embedding_size": 16}),
        *("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
    ),
    "electra": (
        *("ElectraForMaskedLM", {**SIZES, "embedding_size": 16}),
        *("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),
    ),
    "gpt2": ("GPT2LMHeadModel", GPT, "lm_head.weight", "transformer.wte.weight"),
    "gpt": ("OpenAIGPTLMHeadModel", GPT, "lm_head.weight", "transformer.tokens_embed.weight"),
    "bart": ("BartForConditionalGeneration", BART, "lm_head.weight", "model.shared.weight"),
    "t5": ("T5ForConditionalGeneration", T5, "lm_head.weight", "shared.weight"),
    "vision.vilt": (
        *("ViltForMaskedLM", {**SIZES, "image_size": 32, "patch_size": 16}),
        *("mlm_score.decoder.weight", "vilt.embeddings.text_embeddings.word_embeddings.weight"),
    ),
    "vision.visual_bert": (
        *("VisualBertForPreTraining", {**SIZES, "visual_embedding_dim": 24}),
        *(BERTS, "visual_bert.embeddings.word_embeddings.weight"),
    ),
    "kg.luke": (
        *("LukeForMaskedLM", {**SIZES, "entity_vocab_size": 30, "entity_emb_size": 32}),
        *("lm_head.decoder.weight", "luke.embeddings.word_embeddings.weight"),
    ),
}
"""By family: the class of the library, its sizes, and the two names of the tied matrix."""


def saved(folder: Path, family: str, **more: Any) -> dict[str, torch.Tensor]:
    """The weights that the library saves of a model with random weights; a tokenizer is next to them."""
    kind = getattr(transformers, TIED[family][0])
    words = tokenizer(folder / "tokenizer.json")
    size = tokenizers.Tokenizer.from_file(str(words)).get_vocab_size()
    torch.manual_seed(0)
    model = kind(kind.config_class(vocab_size=size, **TIED[family][1]))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    return load_file(folder / "model.safetensors")


def read(folder: Path, weights: dict[str, torch.Tensor]) -> PretrainedWeights:
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    files = find_files(folder)
    assert files is not None
    return read_checkpoint_folder(files)


@pytest.mark.parametrize("said", [{}, {"tie_word_embeddings": False}], ids=["tied", "untied"])
@pytest.mark.parametrize("family", [name for name in TIED if name != "t5"])
def test_a_matrix_that_differs_from_its_twin_is_read(
    family: str, said: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights, (*_, second, first) = saved(tmp_path, family, **said), TIED[family]
    weights[second] = torch.randn_like(weights[first])
    found = read(tmp_path, weights)
    name, spec = next((name, spec) for name, spec in found.heads.items() if "tied" in spec.get("head", {}))
    assert spec["head"]["tied"] is False
    assert torch.equal(found.tensors[f"{name}.output.weight"], weights[second])
    assert torch.equal(found.tensors["embeddings.text.token.weight"], weights[first])
    assert (f"{second} and {first} are one tensor in this family, but differ" in caplog.text) is not bool(said)


@pytest.mark.parametrize("family", TIED)
def test_a_matrix_under_its_twin_s_name_is_found(family: str, tmp_path: Path) -> None:
    weights, (*_, second, first) = saved(tmp_path, family), TIED[family]
    words = weights[second] = weights.pop(first)
    found = read(tmp_path, weights)
    assert torch.equal(found.tensors["embeddings.text.token.weight"], words)
    assert all(spec.get("head", {}).get("tied", True) for spec in found.heads.values())


def test_a_family_that_computes_with_one_refuses_two(tmp_path: Path) -> None:
    weights = saved(tmp_path, "t5")
    for name in ("lm_head.weight", "encoder.embed_tokens.weight"):
        with pytest.raises(WorkbenchError, match=f"{name} and shared.weight differ"):
            read(tmp_path, {**weights, name: torch.randn_like(weights["shared.weight"])})


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "electra", "gpt2"])
def test_predictions_with_two_matrices_are_those_of_the_library(family: str, tmp_path: Path) -> None:
    weights, (kind, _, second, first) = saved(tmp_path / "in", family), TIED[family]
    read(tmp_path / "in", {**weights, second: torch.randn_like(weights[first])})
    loaded = load(tmp_path / "in")
    (sequence,) = loaded.tasks["text"].evaluating().sequences([{"key": "a", "text": " ".join(WORDS[:6])}])
    head: Any = next(iter(loaded.model.heads.values()))
    network = loaded.model.network("main")
    ours = head.logits(network, network(collate([sequence]))["text"])
    export(loaded, tmp_path / "out", family, place=tmp_path / "in")
    for folder in ("in", "out"):
        theirs = getattr(transformers, kind).from_pretrained(tmp_path / folder).eval()
        ids = torch.from_numpy(sequence.streams["text"]["input_ids"])[None]
        torch.testing.assert_close(ours, theirs(ids).logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["roberta", "bart", "kg.luke", "vision.visual_bert"])
def test_rows_that_no_text_reads_are_exported_as_they_were(family: str, tmp_path: Path) -> None:
    """Rows 0 and 1 of positions that are counted from the padding; vectors that are read as their sum only."""
    weights = saved(tmp_path / "in", family)
    if family in ("roberta", "bart"):
        export(load(tmp_path / "in"), tmp_path / "out", family, place=tmp_path / "in")
        written = load_file(tmp_path / "out" / "model.safetensors")
    else:
        found = read(tmp_path / "in", weights)
        written = to_theirs(found.tensors, make_family(family).rules(found.config), weights).tensors
    assert weights.keys() - written.keys() <= {"final_logits_bias"}
    equal({name: written[name] for name in weights.keys() & written.keys()}, weights, {})


def test_positions_that_are_counted_from_another_padding_are_refused(tmp_path: Path) -> None:
    weights = saved(tmp_path, "roberta", pad_token_id=0)
    with pytest.raises(WorkbenchError, match="pad_token_id = 0 is not supported: positions are counted from it"):
        read(tmp_path, weights)


def test_a_tokenizer_of_another_size_or_with_other_ids_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path, "gpt2", eos_token_id=1)
    tokenizer(tmp_path / "tokenizer.json", ("more", "words", "than", "rows", "</s>"))
    load(tmp_path)
    assert "the tokenizer has 25 tokens, and the configuration has vocab_size = 20" in caplog.text
    assert "the configuration has eos_token_id = 1, and that token is 24 in the tokenizer" in caplog.text


def test_classes_that_a_configuration_names_are_matched_by_name(tmp_path: Path) -> None:
    """ViLT's answers: their order in `id2label` is that of the classifier's rows."""
    weights = saved(tmp_path, "vision.vilt", id2label={"0": "no", "1": "yes"})
    heads = read(tmp_path, {**weights, "classifier.3.weight": torch.eye(2, 64)}).heads
    assert heads["answers"]["answers"] == ["no", "yes"]
    head = nn.Module()
    head.outer = nn.Linear(64, 2, bias=False)
    head.by_class = ("outer.weight",)  # type: ignore[assignment]
    source: Any = SimpleNamespace(family="vision.vilt", heads=heads, classes=lambda name: heads[name]["answers"])
    assert source.family != RUN
    made = by_class(
        {"answers": head},
        {"answers.outer.weight": torch.eye(2, 64)},
        {"answers": {"objective": "vision.answers", "answers": ["yes", "no"]}},
        source,
        "",
    )
    assert torch.equal(made["answers.outer.weight"], torch.eye(2, 64).flip(0))
