"""The README's first results, one after the other, in about thirty minutes on two cores.

    python -m benchmarks.first_results --data data --output first-results [--only knowledge speed]

Each is a benchmark of its own with a small budget, in the order of the README, and leaves its numbers in a folder of
OUTPUT. What is there already is not done again where the benchmark can continue. A result is left out, and named at the
end, where `data` lacks its raw corpora.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TEXTS = ("gutenberg/books.jsonl", "wikitext2/valid.txt", "wiki_linked/docs_train.jsonl", "multi30k")


@dataclass(frozen=True)
class FirstResult:
    """A benchmark, the raw corpora that it reads, and its options."""

    benchmark: str
    needs: tuple[str, ...]
    options: tuple[str, ...] = ()


RESULTS = {
    "knowledge": FirstResult(
        "linked_relations",
        ("fewrel/wiki_train.jsonl", "fewrel/wiki_dev.jsonl", "codex/codex-m/train.txt"),
        ("--designs", "graph", "mentions-only", "random-entities", "no-kg", "tuned"),
    ),
    "images": FirstResult(
        "image_evidence",
        ("flickr8k/captions_train.jsonl", "flickr8k/captions_dev.jsonl"),
        ("--parts", "retrieval", "--seeds", "1"),
    ),
    "speed": FirstResult("text_steps", TEXTS[:1], ("--threads", "1", "--only", "gpt-2", "bert", "ernie-baidu")),
    "exactness": FirstResult("tiny_systems", TEXTS, ("--kind", "text", "--only", "bert")),
}
"""By what they show, in the order of the README."""


def missing(result: FirstResult, data: Path) -> list[str]:
    """The raw corpora that are not there."""
    return [name for name in result.needs if not (data / name).exists()]


def run(name: str, data: Path, output: Path) -> tuple[bool, str]:
    """Run a benchmark; whether it ended well, and the line for the end."""
    result = RESULTS[name]
    if lacking := missing(result, data):
        return False, f"{name}: left out, as {data} lacks {', '.join(lacking)}"
    began, folder = time.monotonic(), output / name
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"benchmarks.{result.benchmark}", "--data", str(data), "--output", str(folder), *result.options]
    print("$ python -m", *words, flush=True)
    code = subprocess.run([sys.executable, "-m", *words], env={"OMP_NUM_THREADS": "1", **os.environ}).returncode
    ended = f"ended with exit code {code}, see above" if code else f"the numbers are in {folder}"
    return not code, f"{name}: {(time.monotonic() - began) / 60:.1f} minutes; {ended}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw corpora")
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--only", nargs="*", choices=[*RESULTS], default=[*RESULTS], help="default: all")
    options = parser.parse_args()
    done = [run(name, options.data.resolve(), options.output.resolve()) for name in options.only]
    print("", *(line for _, line in done), sep="\n")
    if not all(well for well, _ in done):
        sys.exit(2)


if __name__ == "__main__":
    main()
