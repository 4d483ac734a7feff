"""Sharded ranks give one rank's losses: every recipe, with dropout, lanes that the ranks do not divide, an empty lane,
and a task that has no turn."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import SERVER
from tests.recipes.conftest import World as Data
from tests.recipes.conftest import write_world
from tests.training.sharded_recipes import Losses, run_rank, steps
from tests.training.test_ranks import free_port
from workbench.core.processes.distributed import World
from workbench.recipe.reading import recipe_names

TIMEOUT_S = 600
PARTS = 4
OF_EACH_KIND = [
    "bert",  # tied tables, two objectives
    "ernie-thu",  # a frozen table, fusion
    "k-adapter",  # adapters on a frozen network
    "kepler",  # two tasks
    "albert",  # one layer many times
    "electra",  # two networks, tied
    "t5",  # encoder and decoder, shared score biases, Adafactor
    "transformer-xl",  # memory, shared biases
    "modernbert",  # StableAdamW
    "albef",  # a follower, global-batch and additive objectives
    "clip",  # a global-batch objective alone
    "lxmert",  # several streams and objectives
]
WHOLE = {"movement"}
"""It ranks whole weights, and refuses shards (`test_pruned.py`)."""
CLOSE = {"rel": 1e-6, "abs": 1e-6}
NORM = {"rel": 1e-4}
"""torch's norm of a large float32 tensor on a CPU is off by 4e-5, shards' norms by less (videobert: 8.039882 in double
precision, 8.039569 on one rank, 8.039726 on two)."""
BY_NORM = {"mt5": {"rel": 1e-5, "abs": 1e-6}}
"""Adafactor divides an update by its norm, which rounds so of 250,112 rows: the second loss is off by 3e-6."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return write_world(tmp_path_factory.mktemp("world"))


def on_ranks(
    data: Data, names: list[str], folder: Path, size: int, nodes: int, **options: Any
) -> list[dict[str, Losses]]:
    """The losses of each rank, by recipe. Processes that do not end are killed."""
    file = folder / "asked.pickle"
    file.write_bytes(pickle.dumps((data, names, nodes, options)))
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common["WORKBENCH_COLLECTIVES"] = ""
    settings = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
    ranks = [SERVER.Process(target=run_rank, args=(each, file)) for each in settings]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + TIMEOUT_S
    for rank in ranks:
        rank.join(max(0.0, deadline - time.monotonic()))
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
    outputs = "\n".join(path.read_text() for path in sorted(folder.glob("asked.*.txt")))
    assert codes == [0] * size, f"{codes}\n{outputs[-4000:]}"
    return [pickle.loads(file.with_suffix(f".{rank}").read_bytes()) for rank in range(size)]


def compare(
    data: Data,
    names: list[str],
    folder: Path,
    size: int,
    shard: str,
    nodes: int = 1,
    tensor: int = 1,
    close: Mapping[str, float] = CLOSE,
    **options: Any,
) -> None:
    """One rank's losses and norms are those of each of several."""
    options = {"lanes": 3, "count": 3, "parallel": {"shard": shard, "tensor": tensor}, **options}
    ranks = on_ranks(data, names, folder, size, nodes, **options)
    for name in names:
        expected = steps(name, data, World(), **{**options, "parallel": {}})
        for found in ranks:
            for one, other in zip(expected, found[name], strict=True):
                near = BY_NORM.get(name, close)
                wanted = {k: pytest.approx(v, **(NORM if k == "norm" else near)) for k, v in one.items()}
                assert other == wanted, name


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["bert", "clip"], id="two", marks=pytest.mark.long),
        pytest.param(OF_EACH_KIND, id="each kind", marks=pytest.mark.scale),
    ],
)
def test_two_ranks_that_hold_half_of_every_parameter_equal_one(data: Data, names: list[str], tmp_path: Path) -> None:
    compare(data, names, tmp_path, 2, "full")


@pytest.mark.scale
def test_two_nodes_of_two_ranks_equal_one(data: Data, tmp_path: Path) -> None:
    compare(data, ["ernie-thu", "clip"], tmp_path, 4, "node", nodes=2, lanes=5)


@pytest.mark.scale
def test_sharded_layers_that_are_recomputed_equal_others(data: Data, tmp_path: Path) -> None:
    compare(data, ["bert", "transformer-xl"], tmp_path, 2, "full", activation_checkpointing=True)


@pytest.mark.scale
def test_two_processes_that_compute_together_equal_one(data: Data, tmp_path: Path) -> None:
    compare(data, ["bert", "ernie-thu", "clip"], tmp_path, 2, "none", tensor=2)


@pytest.mark.scale
def test_two_ranks_of_two_processes_equal_one(data: Data, tmp_path: Path) -> None:
    compare(data, OF_EACH_KIND, tmp_path, 4, "full", tensor=2)


@pytest.mark.scale
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("size", "nodes", "shard"), [(2, 1, "full"), (4, 1, "full"), (4, 2, "node")])
def test_every_recipe_on_sharded_ranks_equals_one(
    data: Data, tmp_path: Path, size: int, nodes: int, shard: str, part: int
) -> None:
    names = [name for name in recipe_names() if not name.startswith("demo-") and name not in WHOLE][part::PARTS]
    compare(data, names, tmp_path, size, shard, nodes, lanes=size + 1)


@pytest.mark.scale
def test_compiled_sharded_layers_equal_others(data: Data, tmp_path: Path) -> None:
    """The compiler fuses other operations around the collectives, so the rounding differs a little more."""
    compare(data, ["bert", "ernie-thu"], tmp_path, 2, "full", close={"rel": 1e-5}, compile=True)
