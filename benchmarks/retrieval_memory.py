"""Peak memory and time of ranking 5,000 images with 25,000 captions by vectors, in blocks, next to the whole matrix.

    python -m benchmarks.retrieval_memory [--images 5000] [--texts 25000] [--size 256] [--rerank 16] [--whole]

COCO's 5k protocol. `--rerank` orders the first candidates anew, both ways, by scores that are drawn, which stand for
those of a matching model. `--whole` makes the matrix at once, for comparison. The limit that is meant is 2 GB.
"""

from __future__ import annotations

import argparse
import resource

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.rounds import clock_of
from vision.metrics.retrieval_scores import DualScores, MatrixScores, RetrievalScores, rerank, retrieval_metrics


def peak() -> float:
    """Of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--texts", type=int, default=25000)
    parser.add_argument("--size", type=int, default=256, help="of the vectors")
    parser.add_argument("--rerank", type=int, default=0)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    draws = torch.Generator().manual_seed(0)
    images = F.normalize(torch.randn(options.images, options.size, generator=draws), dim=1)
    owner = np.arange(options.texts) * options.images // options.texts
    texts = F.normalize(images[owner] + 0.3 * torch.randn(options.texts, options.size, generator=draws), dim=1)
    clock = clock_of(torch.get_num_threads())
    before, start = peak(), clock()
    scores: RetrievalScores = DualScores(texts, images)
    others: RetrievalScores | None = None
    if options.whole:
        scores = MatrixScores(scores.block(slice(0, options.texts), slice(0, options.images)))
    if options.rerank:
        drawn = np.random.default_rng(0)
        first = scores
        scores, others = (
            rerank(first, lambda t, i: drawn.random(len(t)), options.rerank, by=by) for by in ("text", "image")
        )
    numbers = retrieval_metrics(scores, owner, text_scores=others)
    seconds = clock() - start
    print(f"{options.texts:,} x {options.images:,}: {seconds:.1f} s, peak {peak():.2f} GB ({before:.2f} before)")
    print({name: round(value, 4) for name, value in numbers.items()})


if __name__ == "__main__":
    main()
