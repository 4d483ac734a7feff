"""The MLM training step against a plain Hugging Face loop, on documents of natural lengths.

    python benchmarks/mlm_step.py --size small --length 128 --batch 8
    python benchmarks/mlm_step.py --size base --length 512 --batch 8 --rounds 5
    python benchmarks/mlm_step.py --size base --length 512 --batch 64 --steps 20 --device cuda

Peers: BertForMaskedLM + DataCollatorForLanguageModeling + AdamW, (padded) each batch padded to its longest document,
(packed) documents concatenated and cut into blocks of `length`. Each contestant runs in a process of its own with its
own memory settings; rounds alternate; the ratio is of the medians of real tokens per second. Dropout 0.1 everywhere.
float32 on a CPU, bfloat16 autocast on CUDA.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

SIZES = {"small": (256, 4, 4, 8192), "base": (768, 12, 12, 30522)}
SPECIAL = 5
CLS, SEP, MASK = 2, 3, 4


def documents(vocab: int, length: int, batch: int, seed: int) -> Iterator[list[Any]]:
    """Batches of documents: lengths log-normal with median 90 and mean 160, cut at `length`."""
    import numpy as np

    rng = np.random.default_rng(seed)
    while True:
        sizes = np.clip(np.exp(rng.normal(np.log(90), 1.07, batch)).astype(int), 8, length)
        yield [rng.integers(SPECIAL, vocab, size) for size in sizes]


class WordTokenizer:
    """What the mlm objective asks of a tokenizer."""

    def __init__(self, vocab: int) -> None:
        import numpy as np

        self.vocab_size = vocab
        self.ordinary_ids = np.arange(SPECIAL, vocab)

    def id(self, role: str) -> int:
        return {"cls": CLS, "sep": SEP, "mask": MASK}[role]


def autocast(device: str) -> Any:
    import torch

    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


def ours(size: str, device: str) -> Callable[[list[Any], int], int]:
    import torch

    from workbench.core.keyed import Draws
    from workbench.core.processes.malloc import keep_freed_memory
    from workbench.models.network import Network
    from workbench.objectives.mlm import Mlm
    from workbench.optimization.factory import make_optimizer
    from workbench.pretraining.forward import HeadInputs
    from workbench.recipe.spec import NetworkSpec, TrainSpec
    from workbench.sequences.batch import collate
    from workbench.sequences.sequence import Sequence, text_fields

    keep_freed_memory()
    hidden, layers, heads, vocab = SIZES[size]
    text = {"embedding": "token", "hidden_size": hidden, "vocab_size": vocab}
    stack = {"layer": "self", "stream": "text", "num_heads": heads, "repeat": layers}
    network = Network(NetworkSpec({"text": text}, [stack])).train()
    objective = Mlm(WordTokenizer(vocab))  # type: ignore[arg-type]
    head = objective.head(network)
    root = torch.nn.ModuleList([network, head]).to(device)
    optimizer = make_optimizer(root, TrainSpec(1, 1, 1, 1e-4))

    def step(docs: list[Any], number: int) -> int:
        sequences = [Sequence({"text": text_fields(ids)}, (number, i)) for i, ids in enumerate(docs)]
        objective.corrupt(sequences, Draws(0, number=(number,)))
        batch = collate(sequences).to(device)
        targets = batch.targets["mlm"]
        with autocast(device):
            loss = head(HeadInputs.of(network, batch, targets)).loss / len(targets["labels"])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(root.parameters(), 1.0)
        optimizer.step()
        return sum(len(ids) for ids in docs)

    return step


def hugging_face(size: str, length: int, packed: bool, device: str) -> Callable[[list[Any], int], int]:
    import numpy as np
    import torch
    from tokenizers import Tokenizer, models
    from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    hidden, layers, heads, vocab = SIZES[size]
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4} | {f"w{i}": i for i in range(5, vocab)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "[UNK]")), pad_token="[PAD]", unk_token="[UNK]",
        cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    config = BertConfig(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )  # fmt: skip
    model = BertForMaskedLM(config).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rest = np.zeros(0, np.int64)

    def step(docs: list[Any], number: int) -> int:
        nonlocal rest
        if packed:
            stream = np.concatenate([rest, *docs])
            blocks = len(stream) // length
            rest = stream[blocks * length :]
            docs = np.split(stream[: blocks * length], blocks) if blocks else []
            if not docs:
                return 0
        batch = collator([{"input_ids": ids, "attention_mask": np.ones_like(ids)} for ids in docs])
        with autocast(device):
            loss = model(**batch.to(device)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return sum(len(ids) for ids in docs)

    return step


def contestant(name: str, options: argparse.Namespace, pipe: Any) -> None:
    """Runs rounds when asked: answers real tokens per second."""
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = options.device
    packed = name == "packed"
    step = ours(options.size, device) if name == "ours" else hugging_face(options.size, options.length, packed, device)
    stream = documents(SIZES[options.size][3], options.length, options.batch, seed=1)
    number = 0
    while (steps := pipe.recv()) > 0:
        tokens, start = 0, time.perf_counter()
        for _ in range(steps):
            tokens += step(next(stream), number)
            number += 1
        if device == "cuda":
            torch.cuda.synchronize()
        pipe.send(tokens / (time.perf_counter() - start))


def peak(threads: int, device: str) -> float:
    """Floating-point operations per second of a large matrix product in the precision used: the best of ten."""
    import torch

    from workbench.training.metrics import measured_peak

    torch.set_num_threads(threads)
    return measured_peak(torch.device(device), torch.bfloat16 if device == "cuda" else None, repeats=10)


def flops_per_token(size: str) -> float:
    """Matrix products of forward and backward per real token: blocks, and the vocabulary for 15 % of the tokens."""
    hidden, layers, _, vocab = SIZES[size]
    return 6 * (layers * 12 * hidden**2 + 0.15 * (hidden * vocab + hidden**2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=None, help="steps of a round (default 6, for base 2)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    steps = options.steps or (2 if options.size == "base" else 6)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # for all: spinning threads would measure the other contestants
    context = mp.get_context("spawn")
    pipes = {}
    for name in ("ours", "padded", "packed"):
        pipes[name], other = context.Pipe()
        context.Process(target=contestant, args=(name, options, other), daemon=True).start()
    found: dict[str, list[float]] = {name: [] for name in pipes}
    for round_ in range(options.rounds + 1):
        for name, pipe in pipes.items():
            pipe.send(1 if round_ == 0 else steps)
            speed = pipe.recv()
            if round_:
                found[name].append(speed)
    for pipe in pipes.values():
        pipe.send(0)
    medians = {name: statistics.median(speeds) for name, speeds in found.items()}
    share = medians["ours"] * flops_per_token(options.size) / peak(options.threads, options.device)
    where = options.device if options.device == "cuda" else f"{options.threads} threads"
    print(f"BERT-{options.size}, documents cut at {options.length}, batch {options.batch}, {where}")
    for name, speed in medians.items():
        print(f"  {name:7} {speed:9.0f} real tokens/s   ours / this = {medians['ours'] / speed:.2f}")
    print(f"  share of the measured matrix-product peak on real tokens (without attention's products): {share:.0%}")


if __name__ == "__main__":
    main()
