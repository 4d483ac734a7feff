"""A table whose rows are divided over ranks trains as on one rank, and its checkpoints fit any number of ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.conftest import WORDS
from tests.training.test_ranks import run_ranks
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.reading import load_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.pretrain import pretrain

ENTITIES = 60


@pytest.fixture(scope="session")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of texts with linked words; some have none."""
    folder, rng = tmp_path_factory.mktemp("linked"), random.Random(0)
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        for number in range(60):
            words = [rng.choice(WORDS.split()) for _ in range(rng.randint(1, 20))]
            starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
            spans = [
                [start, start + len(word), f"Q{rng.randrange(ENTITIES)}", 1.0]
                for start, word in zip(starts, words, strict=False)
                if number % 3 and rng.random() < 0.5
            ]
            writer.add(f"r{number}", {"text": " ".join(words) + ".", "spans": spans, "meta": {}})
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={"command": "test", "inputs": []})
    return folder


def with_table(linked: Path, **table: Any) -> Callable[[dict[str, Any]], None]:
    """ERNIE-THU with a trained table of entities; 4 lanes, so that 4 ranks have a micro-batch each."""

    def change(tree: dict[str, Any]) -> None:
        options = {"path": ENTITIES, "hidden_size": 8, "trainable": True, "rows": "sharded", **table}
        tree["model"]["streams"]["entity"] = {"embedding": "kg.entity_table", **options}
        fused = {"layer": "kg.aggregator", "streams": ["text", "entity"], "num_heads": [2, 2]}
        tree["model"]["layers"] = [fused, {**fused, "entity_output": False}]
        task = tree["tasks"]["text"]
        task["corpora"] = [str(linked)]
        rows = {f"Q{number}": number for number in range(ENTITIES)}
        task["sequence"]["transforms"] = [{"transform": "kg.entity_stream", "table": rows, "cls_row": False}]
        task["objectives"].append({"objective": "kg.dea", "replaced": 0.2})
        tree["train"].update(max_steps=8, global_batch_size=8, micro_batch_size=2, save_every=4)

    return change


def numbers(run: Path) -> np.ndarray:
    return np.array([[each[name] for name in ("mlm/loss", "dea/loss", "grad_norm")] for each in read_metrics(run)])


@pytest.fixture
def alone(make_recipe: Any, linked: Path, tmp_path: Path) -> Path:
    return pretrain(load_recipe(str(make_recipe(with_table(linked)))), tmp_path / "alone")


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_as_one(
    make_recipe: Any, linked: Path, launch: Any, alone: Path, tmp_path: Path, ranks: int
) -> None:
    run_ranks(launch, ranks, make_recipe(with_table(linked)), tmp_path / "ranks")
    one, several = numbers(alone), numbers(tmp_path / "ranks")
    assert len(one) == 8
    assert np.ptp(one[:, 1]) > 0.1
    np.testing.assert_allclose(several, one, atol=1e-6, rtol=1e-6)
