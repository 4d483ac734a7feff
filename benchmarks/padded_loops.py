"""The peers of `benchmarks.whole_run`: plain training loops that pad, as the released models and the usual scripts do.

    python -m benchmarks.padded_loops bert FOLDER --output progress.jsonl --length 128 --batch 8 --steps 100

    bert       BertForMaskedLM with DataCollatorForLanguageModeling's masking
    k-bert     the same encoder with soft positions and a dense visible matrix made in the loader (the released code)
    ernie-thu  the same encoder's layers with an entity vector at every position, entity prediction at every position
               (the released code)
    uniter     words and regions padded, then moved together (the released code's gather)

`--vocabulary all` predicts every position and lets the loss choose, as BertForMaskedLM and ERNIE-THU's released code
do;
`masked` predicts the masked positions alone, as the released models of K-BERT and UNITER do. Each reads the documents
into
memory, tokenises them by the batch in one loader worker, shuffles, masks 15 %, clips to 1.0, steps a fused AdamW, and
writes a line every ten steps. float32, dropout 0.1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from benchmarks.padded_batches import Collator, Documents, EntityCollator, RegionCollator, TreeCollator
from benchmarks.padded_models import Fused, Plain, Regions, Tree

PEERS: dict[str, tuple[type[Collator], Callable[..., Plain]]] = {
    "bert": (Collator, Plain),
    "k-bert": (TreeCollator, Tree),
    "ernie-thu": (EntityCollator, Fused),
    "uniter": (RegionCollator, Regions),
}


def train(options: argparse.Namespace) -> None:
    """Train and write a line {step, tokens, loss} every `log_every` steps."""
    torch.manual_seed(0)
    make_collator, make_model = PEERS[options.recipe]
    collator = make_collator(options.folder, options.length, options.padding)
    model = make_model(options.folder, collator.tokenizer, options.vocabulary).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    loader = DataLoader(
        Documents(options.folder), options.batch, shuffle=True, num_workers=options.workers, collate_fn=collator,
        drop_last=True,
    )  # fmt: skip
    step, tokens, total = 0, 0, torch.zeros(())
    with options.output.open("w") as output:
        while step < options.steps:
            for batch in loader:
                loss, count = model(batch)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                step, tokens, total = step + 1, tokens + int(count), total + loss.detach()
                if step % options.log_every == 0:
                    line = {"step": step, "tokens": tokens, "loss": float(total) / options.log_every}
                    output.write(json.dumps(line) + "\n")
                    output.flush()
                    tokens, total = 0, torch.zeros(())
                if step == options.steps:
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=list(PEERS))
    parser.add_argument("folder", type=Path, help="what benchmarks.whole_run_inputs wrote")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--padding", choices=["longest", "max"], default="longest")
    parser.add_argument("--vocabulary", choices=["all", "masked"], default="all")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
