"""The MLM training step against plain Hugging Face loops, on documents of natural lengths.

    python -m benchmarks.mlm_step --size small --length 128 --batch 8
    python -m benchmarks.mlm_step --size base --length 512 --rounds 3 --steps 2
    python -m benchmarks.mlm_step --size base --length 512 --batch 64 --steps 20 --device cuda

Peers: BertForMaskedLM (SDPA) with DataCollatorForLanguageModeling and a fused AdamW. `padded`: documents in random
order, each batch padded to its longest. `grouped`: the documents of 50 batches sorted by length, as the Trainer's
`group_by_length` does it. `packed`: documents concatenated and cut into blocks of `length`. `+ masked`: the vocabulary
is computed at the masked positions alone. A round is `--steps` batches: making them, forward, backward, clipping and
the update. All contestants run in one process with the same memory settings and dropout 0.1; rounds alternate
(`benchmarks.rounds`). The ratio is of real tokens per second. float32 on a CPU, bfloat16 autocast on CUDA.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from benchmarks.rounds import clock_of, compared, timed
from workbench.core.keyed import Draws
from workbench.core.processes.malloc import keep_freed_memory
from workbench.models.network import Network
from workbench.objectives.mlm import Mlm
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.recipe.train_spec import TrainSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

SIZES = {"small": (256, 4, 4, 8192), "base": (768, 12, 12, 30522)}
SPECIAL = 5
CLS, SEP, MASK = 2, 3, 4
GROUP = 50
"""Batches that are sorted together: what Hugging Face's sampler calls a mega-batch."""
Documents = list[np.ndarray]
Step = Callable[[Documents], None]


def batches(options: argparse.Namespace) -> dict[str, list[Documents]]:
    """By order of the documents: as many batches as a round has steps.

    Lengths are log-normal with median 90 and mean 160, cut at `length`. Of the sorted batches every so many-th is
    taken, so that short and long ones occur as often as in all.
    """
    draws, count, steps = np.random.default_rng(1), GROUP * options.batch, options.steps
    sizes = np.clip(np.exp(draws.normal(np.log(90), 1.07, count)).astype(int), 8, options.length)
    documents = [draws.integers(SPECIAL, SIZES[options.size][3], size) for size in sizes]
    random, by_length = ([some[i : i + options.batch] for i in range(0, count, options.batch)] for some in
                         (documents, sorted(documents, key=len)))  # fmt: skip
    packed, rest = [], np.zeros(0, np.int64)
    for some in random[:steps]:
        stream = np.concatenate([rest, *some])
        *blocks, rest = np.split(stream, range(options.length, len(stream) + 1, options.length))
        packed.append(blocks)
    chosen = [by_length[(2 * i + 1) * GROUP // (2 * steps)] for i in range(steps)]
    return {"padded": random[:steps], "grouped": chosen, "packed": [blocks for blocks in packed if blocks]}


class WordTokenizer:
    """What the mlm objective asks of a tokenizer."""

    def __init__(self, vocab: int) -> None:
        self.vocab_size = vocab
        self.ordinary_ids = np.arange(SPECIAL, vocab)

    def id(self, role: str) -> int:
        return {"cls": CLS, "sep": SEP, "mask": MASK}[role]


def autocast(device: str, bfloat16: bool | None = None) -> Any:
    """Autocast to bfloat16; by default on CUDA alone."""
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda" if bfloat16 is None else bfloat16)


def updated(module: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()


def ours(size: str, device: str, bfloat16: bool | None = None) -> Step:
    hidden, layers, heads, vocab = SIZES[size]
    text = {"embedding": "token", "hidden_size": hidden, "vocab_size": vocab}
    stack = {"layer": "self", "stream": "text", "num_heads": heads, "repeat": layers}
    network = Network(NetworkSpec({"text": text}, [stack])).train()
    objective = Mlm(WordTokenizer(vocab))  # type: ignore[arg-type]
    head = objective.head(network)
    root = torch.nn.ModuleList([network, head]).to(device)
    optimizer = make_optimizer(root, TrainSpec(1, 1, 1, 1e-4))

    def step(documents: Documents) -> None:
        sequences = [Sequence({"text": text_fields(ids)}, (0, i)) for i, ids in enumerate(documents)]
        objective.corrupt(sequences, Draws(0, number=(0,)))
        batch = collate(sequences).to(device)
        targets = batch.targets["mlm"]
        with autocast(device, bfloat16):
            loss = head(HeadInputs.of(network, batch, targets)).loss / len(targets["labels"])
        updated(root, optimizer, loss)

    return step


def hugging_face(size: str, masked: bool, device: str) -> Step:
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(documents: Documents) -> None:
        batch = collator([{"input_ids": ids, "attention_mask": np.ones_like(ids)} for ids in documents]).to(device)
        with autocast(device):
            if masked:
                chosen = batch["labels"] != -100
                states = model.bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
                loss = F.cross_entropy(model.cls(states[chosen]), batch["labels"][chosen])
            else:
                loss = model(**batch).loss
        updated(model, optimizer, loss)

    return step


def contestants(options: argparse.Namespace) -> dict[str, tuple[Step, list[Documents]]]:
    """By name: a step, and the batches of its rounds."""
    orders = batches(options)
    found = {"ours": (ours(options.size, options.device), orders["padded"])}
    for words in ("", " + masked"):
        step = hugging_face(options.size, bool(words), options.device)
        found |= {order + words: (step, some) for order, some in orders.items()}
    return found


def peak() -> float:
    """Floating-point operations per second of a large matrix product in float32, on the clock of one thread."""
    matrix = torch.randn(1024, 1024)
    return 2 * 1024**3 / min(timed(lambda: matrix @ matrix) for _ in range(10))


def flops_per_token(size: str) -> float:
    """Matrix products of forward and backward per real token: blocks, and the vocabulary for 15 % of the tokens."""
    hidden, layers, _, vocab = SIZES[size]
    return 6 * (layers * 12 * hidden**2 + 0.15 * (hidden * vocab + hidden**2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="batches of a round, at most 50")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    keep_freed_memory()
    runs = contestants(options)
    works = {name: lambda step=step, some=some: [step(one) for one in some] for name, (step, some) in runs.items()}
    seconds = compared(works, options.rounds, clock_of(options.threads, options.device))
    tokens = {name: sum(len(ids) for documents in some for ids in documents) for name, (_, some) in runs.items()}
    speeds = {name: tokens[name] / seconds[name] for name in runs}
    where = options.device if options.device == "cuda" else f"threads: {options.threads}"
    print(f"BERT-{options.size}, documents cut at {options.length}, batch {options.batch}, {where}")
    for name, speed in speeds.items():
        print(f"  {name:16} {speed:9,.0f} real tokens/s   ours / this = {speeds['ours'] / speed:.2f}")
    if options.device == "cpu" and options.threads == 1:
        share = speeds["ours"] * flops_per_token(options.size) / peak()
        print(f"  share of the matrix products' peak on real tokens (without attention's products): {share:.0%}")


if __name__ == "__main__":
    main()
