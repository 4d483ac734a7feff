"""A table whose rows are divided over ranks trains as on one rank, and its checkpoints fit any number of ranks."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from kg.models.embeddings.entity_table import EntityTableEmbedding
from tests.training.conftest import WORDS
from tests.training.test_preamble import facts
from tests.training.test_ranks import run_ranks
from workbench.core.errors import WorkbenchError
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.models.initialisation import initialise
from workbench.parallel.sharded_table import ShardedTable
from workbench.recipe.reading import load_recipe
from workbench.report.run import load_run
from workbench.runs.checkpoint import stored_tables
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import TABLES
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import RUNS, verify_resume

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


@pytest.mark.scale
@pytest.mark.parametrize(("ranks", "others"), [(2, 3), (4, 1)])
def test_ranks_train_as_one_and_others_resume(
    make_recipe: Any, linked: Path, launch: Any, alone: Path, tmp_path: Path, ranks: int, others: int
) -> None:
    recipe, run = make_recipe(with_table(linked)), tmp_path / "ranks"
    parallel = [] if others == 1 else ["train.parallel.shard=full"]  # 4 lanes on 3 ranks: some micro-batches stand in
    run_ranks(launch, ranks, recipe, run, *parallel)
    one, several = numbers(alone), numbers(run)
    assert len(one) == 8
    assert np.ptp(one[:, 1]) > 0.1
    np.testing.assert_allclose(several, one, atol=1e-6, rtol=1e-6)
    files = sorted(path.name for path in (run / "checkpoints" / "step-4" / TABLES).iterdir())
    assert files == [f"rank-{rank:05d}.safetensors" for rank in range(ranks)]
    shutil.rmtree(run / "checkpoints" / "step-8")
    if others == 1:
        pretrain(load_recipe(str(recipe)), run)
    else:
        run_ranks(launch, others, recipe, run, *parallel)
    np.testing.assert_allclose(numbers(run), one, atol=1e-6, rtol=1e-6)
    read, rows = table_of(run), torch.arange(ENTITIES)
    assert len(read.mapped) == others
    assert not len(read.weight)
    whole = sum(p.numel() for name, p in workbench.load(alone).torch.named_parameters()) + ENTITIES * 8
    for each in (alone, run):  # whether this process has all rows, some or none
        assert facts(each)["parameters"] == f"{whole:,}, all trained"
        assert f"; {whole:,} parameters on" in repr(workbench.load(each))
        assert load_run(each).parameters() == whole
    torch.testing.assert_close(read(rows), table_of(alone)(rows), atol=1e-5, rtol=1e-4)


def table_of(run: Path) -> ShardedTable:
    table = workbench.load(run).torch.network().embeddings["entity"].table
    assert isinstance(table, ShardedTable)
    return table


def test_resuming_is_exact(make_recipe: Any, linked: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(make_recipe(with_table(linked))))
    assert verify_resume(recipe, tmp_path / "verified", steps=4).equal
    whole, other = (Checkpoints(tmp_path / "verified" / name).latest() for name in RUNS)
    assert whole is not None
    assert other is not None
    name, stored = "networks.main.embeddings.entity.table.exp_avg_sq", stored_tables(whole)
    assert stored[name].any()
    assert torch.equal(stored[name], stored_tables(other)[name])


@pytest.mark.long
def test_another_run_starts_from_its_rows(
    make_recipe: Any, linked: Path, launch: Any, alone: Path, tmp_path: Path
) -> None:
    def starting(tree: dict[str, Any]) -> None:
        with_table(linked)(tree)
        tree["model"]["init_from"] = str(alone)
        tree["train"].update(lr=1e-12, max_steps=4, lr_schedule={"lr_schedule": "constant"})

    run_ranks(launch, 2, make_recipe(starting, "starting"), tmp_path / "run")
    rows, first = torch.arange(ENTITIES), EntityTableEmbedding(ENTITIES, True, 8, seed=3)
    initialise(first, 0.02)
    torch.testing.assert_close(table_of(tmp_path / "run")(rows), table_of(alone)(rows), atol=1e-9, rtol=1e-6)
    assert not torch.allclose(table_of(alone)(rows), first.vectors.detach(), atol=1e-3)


def test_a_checkpoint_without_the_table_is_refused(make_recipe: Any, linked: Path, alone: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"a sharded table .*entity\.table of shape \[61, 8\].* shape \[60, 8\]"):
        workbench.load(alone, [f"model.streams.entity.path={ENTITIES + 1}"])
