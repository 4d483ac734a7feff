"""Speed of training entity vectors: `prepare vectors` next to pykeen's own training loop on the same triples.

    python -m benchmarks.vectors [--entities 5000] [--triples 100000] [--dim 64] [--epochs 3] [--rounds 3]

Both train the same pykeen model with the same batches, negatives, loss and Adam; ours also keeps its state, and writes
the vectors. Rounds alternate (`benchmarks.rounds`); a ratio is ours to pykeen's triples per second.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from pykeen.models import model_resolver
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory

from benchmarks.rounds import compared
from kg.graph.store import GraphStore
from kg.vectors.options import VectorOptions
from kg.vectors.training import train_vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=5_000)
    parser.add_argument("--triples", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=["TransE", "RotatE"])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = made_up(Path(folder, "graph"), chosen.entities, chosen.triples)
        for model in chosen.models:
            options = VectorOptions(model=model, dim=chosen.dim, epochs=chosen.epochs)
            compare(store, options, Path(folder, "v.safetensors"), chosen.rounds)


def made_up(path: Path, entities: int, triples: int) -> GraphStore:
    rng = np.random.default_rng(0)
    heads, tails = rng.integers(entities, size=(2, triples)).tolist()
    rows = zip(heads, rng.integers(20, size=triples).tolist(), tails, strict=True)
    return GraphStore.build(((f"Q{h}", f"P{r}", f"Q{t}") for h, r, t in rows), path)


def compare(store: GraphStore, options: VectorOptions, output: Path, rounds: int) -> None:
    peers = {"ours": lambda: train_vectors(store, output, options), "pykeen": lambda: by_pykeen(store, options)}
    torch.set_num_threads(1)
    seen = options.epochs * store.num_triples
    speeds = {name: seen / seconds for name, seconds in compared(peers, rounds).items()}
    rates = ", ".join(f"{name} {speed:,.0f} triples/s" for name, speed in speeds.items())
    ratio = speeds["ours"] / speeds["pykeen"]
    print(f"{options.model}, size {options.dim}: {rates}; ours / pykeen {ratio:.2f}", flush=True)


def by_pykeen(store: GraphStore, options: VectorOptions) -> None:
    """A model and a training loop as pykeen's pipeline makes them."""
    rows = torch.from_numpy(store.triple_rows).long()
    triples = CoreTriplesFactory(rows, store.num_entities, store.num_relations)
    model = model_resolver.make(
        options.model,
        triples_factory=triples,
        embedding_dim=options.dim,
        loss=options.loss,
        random_seed=options.seed,
    )
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=triples,
        optimizer=torch.optim.Adam(model.parameters(), lr=options.lr),
        negative_sampler_kwargs={"num_negs_per_pos": options.negatives},
    )
    loop.train(triples, num_epochs=options.epochs, batch_size=options.batch_size, use_tqdm=False)


if __name__ == "__main__":
    main()
