"""Random corpora, read on any number of ranks and workers: every item once an epoch, and always the same samples."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.robustness.soak.engine import Trial, require
from tests.robustness.soak.processes import fork
from tests.robustness.soak.readers import digest
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter

WORDS = ("Paris", "a small town", "the Kingdom of Norway", "river.", "flows on.", "\u5317\u4eac\u5e02\u3002")


def trial(trial: Trial) -> None:
    """A mixture of one to three corpora, read through in a process of its own, which may have loader workers."""
    result = trial.folder / "result.json"
    ended = fork(lambda: _account(trial.rng, trial.folder, result), trial.folder, trial.folder / "output.log").wait()
    require(ended.code == 0 and not ended.hung, f"reading {ended}")
    found = json.loads(result.read_text())
    trial.counts["items"] += found["items"]
    trial.counts["epochs"] += found["epochs"]
    trial.counts[f"{found['ranks']} ranks"] += 1
    trial.counts[f"{found['workers']} workers"] += 1
    require(not found["wrong"], "\n".join(found["wrong"][:10]))


def _account(rng: random.Random, folder: Path, result: Path) -> None:
    micro_batch_size, lanes, seed = rng.randint(1, 5), rng.randint(1, 6), rng.randint(0, 99)
    unit, window = rng.choice([(None, None), ("text", rng.randint(20, 200))])
    corpora = [_corpus(folder / f"corpus {n}", rng, lanes) for n in range(rng.randint(1, 3))]
    weights = [rng.choice([1.0, 0.5, 3.0]) for _ in corpora]
    sizes: dict[str, Any] = {"lanes": lanes, "micro_batch_size": micro_batch_size, "unit": unit, "window": window}
    reader = Reader(list(zip(corpora, weights, strict=True)), seed=seed, **sizes)
    wrong = _pass(Reader.finite(corpora, **sizes), corpora)
    numbers = _until(reader, epochs=2)
    seen: Counter[tuple[int, int, int, int]] = Counter()
    for number in range(numbers):
        for lane in range(lanes):
            seen.update((p.corpus, p.draw[1], p.shard, p.item) for p in reader.places(number, lane))
    for corpus in range(len(corpora)):
        for epoch in (0, 1):
            counts = Counter({key[2:]: n for key, n in seen.items() if key[:2] == (corpus, epoch)})
            if set(counts.values()) - {1} or len(counts) > reader.items(corpus):
                wrong.append(f"corpus {corpus}, epoch {epoch}: items come {sorted(set(counts.values()))} times")
        if len([key for key in seen if key[:2] == (corpus, 0)]) != reader.items(corpus):
            wrong.append(f"corpus {corpus}: the first epoch does not have all {reader.items(corpus)} items")
    ranks, workers = rng.randint(1, min(3, lanes)), rng.randint(0, 3)
    wrong += _on_ranks(reader, min(numbers, 12), ranks, workers)
    found = {
        "items": sum(seen.values()),
        "epochs": 2 * len(corpora),
        "ranks": ranks,
        "workers": workers,
        "wrong": wrong,
    }
    result.write_text(json.dumps(found))


def _corpus(folder: Path, rng: random.Random, lanes: int) -> Corpus:
    """A corpus of uneven shards, some texts empty; at least as many records as lanes."""
    infos, records = [], 0
    while records < lanes or rng.random() < 0.6:
        with ShardWriter(folder / f"part-{len(infos):06d}.tar", kind="text") as writer:
            for _ in range(rng.choice([1, 2, 9, 30])):
                text = " ".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 5, 60])))
                writer.add(f"r{records}", {"text": text, "spans": [], "meta": {}})
                records += 1
        assert writer.info is not None
        infos.append(writer.info)
    finish_corpus(folder, kind="text", shards=infos, provenance={"command": "soak", "inputs": []})
    return Corpus.open(folder)


def _until(reader: Reader, epochs: int) -> int:
    """Micro-batches until every lane has read every corpus so many times."""
    number = 1
    while min(reader.epochs(number)) < epochs + 1:
        number *= 2
    return number


def _pass(every: Any, corpora: list[Corpus]) -> list[str]:
    """A finite pass has each item once."""
    places = [
        (place.corpus, place.shard, place.item)
        for number in range(every.steps)
        for lane in range(every.lanes)
        for place in every.places(number, lane)
    ]
    return (
        [] if len(places) == len(set(places)) == every.total else [f"a pass of {every.total} items has {len(places)}"]
    )


class _Micros:
    """What a rank's loader reads: micro-batch (number, lane) for its lanes."""

    def __init__(self, reader: Reader, places: list[tuple[int, int]]) -> None:
        self.reader, self.places = reader, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[str, str]:
        return str(self.places[i]), digest(self.reader.micro_batch(*self.places[i]))


def _on_ranks(reader: Reader, numbers: int, ranks: int, workers: int) -> list[str]:
    """The samples of each micro-batch do not depend on which rank and worker reads it."""
    from torch.utils.data import DataLoader

    wanted = {
        str((n, lane)): digest(reader.micro_batch(n, lane)) for n in range(numbers) for lane in range(reader.lanes)
    }
    found: dict[str, str] = {}
    for rank in range(ranks):
        own = [(n, lane) for n in range(numbers) for lane in range(rank, reader.lanes, ranks)]
        micros: Any = _Micros(reader, own)
        found.update(dict(DataLoader(micros, batch_size=None, num_workers=workers)))
    return [] if found == wanted else [f"on {ranks} ranks with {workers} workers the samples are others"]
