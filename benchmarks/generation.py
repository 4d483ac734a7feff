"""Cached generation, greedy or by beams, against Hugging Face's `generate`: same weights, prompts of unequal lengths.

    python -m benchmarks.generation
    python -m benchmarks.generation --models gpt2 --size base --batch 8 --new 32 --rounds 3
    python -m benchmarks.generation --beams 4
    python -m benchmarks.generation --size base --batch 64 --new 128 --device cuda

Both run in this process in alternating rounds (`benchmarks.rounds`); the ratio is of new tokens per second. Theirs pads
the prompts to the longest one. The texts have to be the same, to the last token (in float32; no token ends a text).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import transformers

from benchmarks.rounds import clock_of, compared
from workbench.generation.beams import beam_search
from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, draw
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.pretraining.objective import Continuation
from workbench.sequences.batch import Batch, Stream

Prompts = list[Any]
Writer = Callable[[Prompts, int], list[list[int]]]

SIZES = {"small": (256, 4, 4, 8192), "base": (768, 12, 12, 32128)}
POSITIONS = 1024
SHORTEST, LONGEST = 8, 96
START = 2
"""The token that a decoder begins with."""


def their_model(name: str, size: str) -> Any:
    """A model of theirs with random weights that spread the logits, so that texts do not repeat one token."""
    hidden, layers, heads, vocab = SIZES[size]
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    torch.manual_seed(0)
    if name == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=vocab, n_embd=hidden, n_layer=layers, n_head=heads, n_positions=POSITIONS, **ends
        )
        model: Any = transformers.GPT2LMHeadModel(config)
    elif name == "bart":
        config = transformers.BartConfig(
            vocab_size=vocab, d_model=hidden, encoder_layers=layers, decoder_layers=layers,
            encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * hidden,
            decoder_ffn_dim=4 * hidden, max_position_embeddings=POSITIONS, decoder_start_token_id=START,
            forced_eos_token_id=None, **ends,
        )  # fmt: skip
        model = transformers.BartForConditionalGeneration(config)
    else:
        config = transformers.T5Config(
            vocab_size=vocab, d_model=hidden, d_kv=hidden // heads, d_ff=4 * hidden, num_layers=layers,
            num_heads=heads, decoder_start_token_id=START, **ends,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=2 * hidden**-0.5)
    return model.eval()


def theirs(model: Any, beams: int) -> Writer:
    """Their `generate`, of prompts that are padded: in front where they are continued with, else behind."""
    device, in_front = next(model.parameters()).device, not model.config.is_encoder_decoder

    def write(prompts: Prompts, new: int) -> list[list[int]]:
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            at = slice(width - len(prompt), width) if in_front else slice(len(prompt))
            ids[row, at], mask[row, at] = prompt, 1
        made = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=new,
            do_sample=False,
            num_beams=beams,
            use_cache=True,
        )
        found: list[list[int]] = made[:, -new:].tolist()
        return found

    return write


def ours(name: str, model: Any, beams: int) -> Writer:
    """Our decoder with the same weights."""
    checkpoint_family, config = make_family(name), FamilyConfig(model.config.to_dict())
    spec = checkpoint_family.network(config)
    network = Network(spec).eval()
    for target, source in spec.tie.items():
        stream, module = target.split(".")
        setattr(network.embeddings[stream], module, network.embeddings.get_submodule(source))
    network.load_state_dict(to_ours(model.state_dict(), checkpoint_family.rules(config)).tensors, strict=False)
    device = next(model.parameters()).device
    network.to(device)
    grows = "target" if model.config.is_encoder_decoder else "text"

    class Words(Continuation):
        """Words are predicted by their table, of T5 from scaled states."""

        def logits(self, head: Any, network: Network, rows: Any) -> Any:
            scale = rows.shape[1] ** -0.5 if name == "t5" else 1.0
            return torch.nn.functional.linear(rows * scale, network.embeddings["text"].token.weight)

    def stream(rows: Prompts, causal: bool) -> Stream:
        places = torch.cat([torch.arange(len(row)) for row in rows])
        fields = {"input_ids": torch.cat(rows), "position_ids": places, **({"rank": places} if causal else {})}
        lengths = [len(row) for row in rows]
        fields = {field: values.to(device) for field, values in fields.items()}
        return Stream(fields, torch.tensor([0, *lengths], device=device).cumsum(0), lengths)

    @torch.inference_mode()
    def write(prompts: Prompts, new: int) -> list[list[int]]:
        streams = {"text": stream(prompts, grows == "text")}
        if grows == "target":
            streams["target"] = stream([torch.tensor([START])] * len(prompts), True)
        decoder = Decoder(network, torch.nn.Identity(), Words(grows, None), Batch(streams))  # type: ignore[arg-type]
        decoding = Decoding(max_new_tokens=new, beams=beams)
        generators: list[Any] = [None] * len(prompts)  # nothing is drawn
        made = draw(decoder, decoding, generators) if beams == 1 else beam_search(decoder, decoding, len(prompts))
        return [text.tokens for text in made]

    return write


def measured(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Median new tokens per second of both.

    Raises:
        SystemExit: the texts are not the same.
    """
    g = torch.Generator().manual_seed(1)
    lengths = torch.linspace(SHORTEST, LONGEST, options.batch).long().tolist()
    prompts = [torch.randint(3, SIZES[options.size][3], (length,), generator=g) for length in lengths]
    model = their_model(name, options.size).to(options.device)
    writers = {"ours": ours(name, model, options.beams), "Hugging Face": theirs(model, options.beams)}
    first = {who: write(prompts, options.new) for who, write in writers.items()}
    if first["ours"] != first["Hugging Face"]:
        raise SystemExit(f"{name}: the texts differ, so the speeds say nothing")
    works = {who: lambda write=write: write(prompts, options.new) for who, write in writers.items()}
    seconds = compared(works, options.rounds, clock_of(options.threads, options.device))
    return {who: options.batch * options.new / each for who, each in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=["gpt2", "bart", "t5"], default=["gpt2", "bart", "t5"])
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    where = options.device if options.device == "cuda" else f"{options.threads} threads"
    prompts = f"{options.batch} prompts of {SHORTEST} to {LONGEST} tokens"
    way = "greedy" if options.beams == 1 else f"{options.beams} beams"
    print(f"{way}, size {options.size}, {prompts}, {options.new} new, {where}")
    for name in options.models:
        speeds = measured(name, options)
        for who, speed in speeds.items():
            print(f"  {name:5} {who:13} {speed:9.0f} new tokens/s   ours / this = {speeds['ours'] / speed:.2f}")


if __name__ == "__main__":
    main()
