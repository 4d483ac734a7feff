"""Models that write text: a run that starts from their folder, and the folder it goes out to, say what theirs says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
import yaml
from safetensors.torch import load_file
from torch import Tensor

from tests.interop.worlds import WORDS, equal, model_of, recipe_file, texts, there_and_back, tokenizer
from workbench.cli.generation import generate
from workbench.core.keyed import Draws
from workbench.evaluation.analysis.generation import Generator
from workbench.generation.decoding import Decoding
from workbench.models.context import Context
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import LoadedRun, load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(9))
PROMPTS = [" ".join(WORDS[:7]), " ".join(WORDS[5:8]), " ".join(WORDS[3:])]
LONGEST = 8
PAD, END = 0, 3
NOT_READ = {f"model.{stack}.embed_positions.weight": slice(2, None) for stack in ("encoder", "decoder")}
"""Rows of tables that theirs and ours both read, where not all are."""
T5 = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2}
NEWER = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
BART = {"d_model": 32, "max_position_embeddings": 40} | {
    f"{stack}_{size}": number
    for stack in ("encoder", "decoder")
    for size, number in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "activation_function": "gelu_new"}
GPT = {name: size for name, size in GPT2.items() if name != "activation_function"}
CAUSAL = ("gpt", "gpt2")
BARTS = {"bart": "Bart", "mbart": "MBart"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("gpt", GPT),
    "gpt2": ("gpt2", GPT2),
    "t5": ("t5", T5),
    "t5-v1.1": ("t5", NEWER),
    "t5-v1.1-one-matrix": ("t5", NEWER),
    "mt5": ("mt5", NEWER),
    "t5-narrow-heads": ("t5", {**T5, "d_kv": 4}),
    "bart": ("bart", BART),
    "bart-scaled": ("bart", {**BART, "scale_embedding": True}),
    "mbart": ("mbart", {**BART, "scale_embedding": True}),
}


def released(folder: Path, name: str, vocab_size: int) -> None:
    """What their library writes of a model with random weights."""
    family, sizes = MODELS[name]
    ends = {"bos_token_id": None, "eos_token_id": END, "pad_token_id": PAD}
    torch.manual_seed(0)
    if family == "gpt2":
        model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=vocab_size, **sizes, **ends))
    elif family == "gpt":
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(vocab_size=vocab_size, **sizes, **ends))
    elif family in BARTS:
        kind = getattr(transformers, f"{BARTS[family]}Config")
        config = kind(vocab_size=vocab_size, decoder_start_token_id=END, forced_eos_token_id=None, **sizes, **ends)
        model = getattr(transformers, f"{BARTS[family]}ForConditionalGeneration")(config)
    else:
        library = family.upper()
        kind = getattr(transformers, f"{library}Config")
        config = kind(vocab_size=vocab_size, decoder_start_token_id=PAD, **sizes, **ends)
        model = getattr(transformers, f"{library}ForConditionalGeneration")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    if name == "t5-v1.1":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(vocab_size, 32))
    model.save_pretrained(folder)


def recipe(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """The model's folder, and a recipe that starts from it."""
    family, folder = MODELS[name][0], tmp_path / "theirs"
    words = tokenizer(tmp_path / "tokenizer.json", SENTINELS)
    released(folder, name, tokenizers.Tokenizer.from_file(str(words)).get_vocab_size())
    builder: dict[str, Any] = {"builder": "document", "max_length": 24, "begin": None, "end": "eos"}
    if family in CAUSAL:
        objective: dict[str, Any] = {"objective": "clm"}
        builder["visibility"] = "causal"
    elif family in BARTS:
        objective = {"objective": "denoising", "noises": [{"noise": "mask", "rate": 0.3}]}
    else:
        tied = name in ("t5", "t5-narrow-heads")
        objective = {"objective": "span_corruption", "sentinels": len(SENTINELS), "head": {"tied": tied}}
    corpus = str(texts(tmp_path / "texts"))
    model = model_of(family, json.loads((folder / "config.json").read_text()))
    task = {"corpora": [corpus], "sequence": builder, "objectives": [objective]}
    model["init_from"] = str(folder)
    return folder, recipe_file(tmp_path / "recipe.yaml", model, task, tokenizer=str(words))


def opened(folder: Path, family: str) -> Any:
    auto = transformers.AutoModelForCausalLM if family in CAUSAL else transformers.AutoModelForSeq2SeqLM
    return auto.from_pretrained(folder).eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_in_and_goes_out(name: str, tmp_path: Path) -> None:
    family = MODELS[name][0]
    folder, file = recipe(tmp_path, name)
    written = there_and_back(tmp_path, file, family)
    original = load_file(folder / "model.safetensors")
    assert original.keys() - {"final_logits_bias"} <= written.keys()
    equal({n: tensor for n, tensor in written.items() if n in original}, original, NOT_READ)
    check_logits_and_texts(tmp_path, opened(folder, family))
    check_logits_and_texts(tmp_path, opened(tmp_path / "exported", family))


@torch.no_grad()
def check_logits_and_texts(tmp_path: Path, model: Any) -> None:
    """Of the run, against a model of theirs."""
    loaded = load(tmp_path / "run")
    assert loaded.tokenizer is not None
    two_stacks = model.config.is_encoder_decoder
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    generate(tmp_path / "run", tmp_path / "prompts.txt", Decoding(max_new_tokens=LONGEST), tmp_path / "made.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "made.jsonl").read_text().splitlines()]
    for prompt, line in zip(PROMPTS, lines, strict=True):
        ids = [*loaded.tokenizer.encode(prompt).ids.tolist(), *([END] if two_stacks else [])]
        made = model.generate(
            torch.tensor([ids]), max_new_tokens=LONGEST, do_sample=False, eos_token_id=END, pad_token_id=PAD
        )[0, 1 if two_stacks else len(ids) :].tolist()
        made = made[: made.index(END)] if END in made else made
        assert line["tokens"] == loaded.tokenizer.tokens(made)
        torch.testing.assert_close(our_logits(loaded, prompt), their_logits(model, ids), atol=1e-5, rtol=1e-5)
    if not two_stacks:
        check_states_and_loss(loaded, model)


def check_states_and_loss(loaded: LoadedRun, model: Any) -> None:
    """Of a language model: the output of each layer, and the mean loss over the tokens of a text."""
    task, objective = loaded.tasks["it"].evaluating(), loaded.model.heads["clm"]
    (sequence,) = task.sequences([{"key": "it", "text": PROMPTS[0], "draw": (0,)}])
    ids = torch.from_numpy(sequence.streams["text"]["input_ids"])[None]
    found = model(ids, labels=ids, output_hidden_states=True)
    task.objectives[0].objective.corrupt([sequence], Draws(0, number=()))
    batch = collate([sequence])
    context = Context(batch, keep_hidden=True)
    network = loaded.model.network("main")
    network(batch, context)
    ours = [hidden["text"] for hidden in context.hidden]
    if model.config.model_type == "gpt2":
        ours.pop(-2)  # theirs norms the last layer's output before it is recorded
    for mine, their in zip(ours, found.hidden_states, strict=True):
        torch.testing.assert_close(mine, their[0], atol=1e-5, rtol=1e-5)
    targets = batch.targets["clm"]
    loss = objective(HeadInputs.of(network, batch, targets)).loss / len(targets["labels"])
    torch.testing.assert_close(loss, found.loss, atol=1e-5, rtol=1e-5)


def our_logits(loaded: LoadedRun, prompt: str) -> Tensor:
    """Of the rows of a prompt, or of the first row of a decoder."""
    generator = Generator(loaded)
    (sequence,) = generator.task.sequences([{"key": "it", "text": prompt, "draw": (0,)}])
    generator.continuation.prompt(sequence)
    batch = collate([sequence])
    states = generator.network(batch)[generator.continuation.stream]
    head: Any = loaded.model.heads[generator.placed.name]
    logits: Tensor = head.logits(generator.network, states)
    return logits


def their_logits(model: Any, ids: list[int]) -> Tensor:
    given = {"input_ids": torch.tensor([ids])}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.tensor([[model.config.decoder_start_token_id]])
    logits: Tensor = model(**given).logits[0]
    return logits


def test_a_learned_prompt_is_read_as_theirs(tmp_path: Path) -> None:
    """GPT-2's weights in joint layers over a prompt and the text (Lester et al., arXiv:2104.08691)."""
    folder, file = recipe(tmp_path, "gpt2")
    tree = yaml.safe_load(file.read_text())
    tree["model"]["streams"]["prompt"] = {"embedding": "queries", "hidden_size": 32, "count": 3}
    joint, norm = tree["model"]["layers"]
    joint.pop("stream")
    tree["model"]["layers"] = [{**joint, "layer": "joint", "streams": ["prompt", "text"]}, norm]
    queries = {"transform": "queries", "stream": "prompt", "count": 3, "of": "text"}
    before = {"transform": "before", "streams": ["prompt", "text"]}
    tree["tasks"]["it"]["sequence"]["transforms"] = [queries, before]
    file.write_text(yaml.safe_dump(tree))
    loaded = load(pretrain(load_recipe(str(file)), tmp_path / "run"))
    with torch.no_grad():
        theirs, network = transformers.AutoModel.from_pretrained(folder).eval(), loaded.model.network().eval()
        prompt = network.embeddings["prompt"].table.weight
        (sample,) = loaded.tasks["it"].sequences([{"key": "a", "draw": (0,), "text": PROMPTS[0]}])
        ids = torch.as_tensor(sample.fields("text")["input_ids"])
        states = network(collate([sample]))["text"]
        placed = torch.cat([prompt - theirs.wpe.weight[:3], theirs.wte(ids)])  # theirs adds positions to the prompt
        wanted = theirs(inputs_embeds=placed[None]).last_hidden_state[0, 3:]
        torch.testing.assert_close(states, wanted, rtol=0, atol=1e-5)
        (tmp_path / "prompts.txt").write_text(PROMPTS[0] + "\n")
        generate(tmp_path / "run", tmp_path / "prompts.txt", Decoding(max_new_tokens=LONGEST), tmp_path / "made.jsonl")
        words = json.loads((tmp_path / "made.jsonl").read_text())["tokens"]
        assert loaded.tokenizer is not None
        ids, made = torch.as_tensor(loaded.tokenizer.encode(PROMPTS[0]).ids), []
        while len(made) < len(words):
            placed = torch.cat(
                [prompt - theirs.wpe.weight[:3], theirs.wte(torch.cat([ids, torch.tensor(made, dtype=int)]))]
            )
            made.append(
                int((theirs(inputs_embeds=placed[None]).last_hidden_state[0, -1] @ theirs.wte.weight.T).argmax())
            )
        assert loaded.tokenizer.tokens(made) == words
