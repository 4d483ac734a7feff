"""Two steps of small recipes on the CPU and on the pretend device: do they agree, what is launched, who waits?

    python -m tests.gpu_without_gpu steps bert gpt-2        (by hand; all recipes without a name)
    python -m tests.gpu_without_gpu steps ernie-thu:no-room (its table of entities stays in its file)
    python -m tests.gpu_without_gpu steps ernie-thu:sharded (it is trained, and its rows could be on several ranks)

Each recipe is shrunk as in `tests/recipes`. Its steps run without dropout in float32 on the CPU, then in float32 and
bfloat16 on the device, from the same weights on the same batches. A fourth run has dropout and the precision that a GPU
gets by default, and is counted in its second step: the first sets up what stays.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.gpu_without_gpu.emulation.mode import install

EMULATION = install()  # before the product is imported

import torch  # noqa: E402

from kg.models.embeddings import entity_table  # noqa: E402
from tests.gpu_without_gpu.emulation.counting import PACKAGES, ROOT, Record, recorded  # noqa: E402
from tests.recipes.conftest import World as Data  # noqa: E402
from tests.recipes.conftest import write_world  # noqa: E402
from tests.recipes.test_recipes import small_recipe  # noqa: E402
from workbench.core.processes.distributed import World  # noqa: E402
from workbench.models.attention import call  # noqa: E402
from workbench.optimization.factory import make_optimizer  # noqa: E402
from workbench.pretraining.assembly import make_model  # noqa: E402
from workbench.pretraining.table_lookups import connect_tables  # noqa: E402
from workbench.recipe.reading import recipe_names  # noqa: E402
from workbench.recipe.spec import Recipe  # noqa: E402
from workbench.recipe.trees import recipe_from_dict  # noqa: E402
from workbench.training.data import first_batches  # noqa: E402
from workbench.training.modes import set_training  # noqa: E402
from workbench.training.parallel import Work  # noqa: E402
from workbench.training.step import Updater  # noqa: E402

STEPS = 2
SHARE = entity_table.SHARE
DROPOUT = 0.1


def prepared(name: str, data: Data, precision: str, dropout: float) -> Recipe:
    """A small recipe of which everything is trained, from fresh weights."""
    name, _, variant = name.partition(":")
    entity_table.SHARE = 0.0 if variant == "no-room" else SHARE
    plain = dataclasses.asdict(small_recipe(name, data))
    if variant == "sharded":
        plain["model"]["streams"]["entity"] |= {"trainable": True, "rows": "sharded"}
    plain["train"] |= {"groups": [], "train_only": [], "precision": precision}
    recipe = recipe_from_dict(_with_dropout(plain, dropout), name)
    for network in recipe.networks.values():
        network.init_from.clear()
    return recipe


def _with_dropout(tree: Any, rate: float) -> Any:
    if isinstance(tree, list):
        return [_with_dropout(inner, rate) for inner in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: rate if key in ("dropout", "attention_dropout") and value is not None else _with_dropout(value, rate)
        for key, value in tree.items()
    }


def steps(recipe: Recipe, device: torch.device) -> tuple[list[dict[str, float]], Record]:
    """Losses and the gradient's norm of each step, and what was recorded in the last one."""
    tokenizer, tasks, batches = first_batches(recipe)
    torch.manual_seed(0)
    root = make_model(recipe, tasks, tokenizer)
    root.to(device)
    connect_tables(tasks.values(), root, device)
    for micro in batches.values():
        looked_up = tasks[micro.task].lookups.items()
        micro.tables = {path: of(micro.views, tasks[micro.task].objectives) for path, of in looked_up}
    set_training(root)
    root.progress = 0.0
    world, optimizer = World(device=device), make_optimizer(root, recipe.train)
    updater = Updater(root, optimizer, tasks, recipe.train, world, seed=0, weights=dict.fromkeys(tasks, 1.0))
    work = [Work(task, 0, micro) for task, micro in batches.items() if micro is not None]
    seen, record = [], Record()
    for step in range(STEPS):
        last = step == STEPS - 1 and device.type == "cuda"
        with recorded() if last else nullcontext(record) as record:
            result = updater.run(step, work)
            seen.append({name: total / count for name, (total, count) in result.losses.items()})
            seen[-1]["norm"] = result.grad_norm
    return seen, record


@contextmanager
def _kernels_noted() -> Iterator[set[str]]:
    """Names of the attention kernels that are chosen."""
    names: set[str] = set()
    before = call.choose

    def choose(request: Any) -> Any:
        kernel = before(request)
        names.add(kernel.name)
        return kernel

    call.choose = choose
    try:
        yield names
    finally:
        call.choose = before


def furthest(ones: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    """The largest relative difference of a loss or norm. NaN anywhere is infinitely far."""
    pairs = [(a[key], b[key]) for a, b in zip(ones, others, strict=True) for key in a]
    differences = [abs(a - b) / max(abs(a), 1e-3) for a, b in pairs]
    return max(d if d == d else float("inf") for d in differences)


def check(name: str, data: Data, only: str | None = None) -> dict[str, Any]:
    """What is found of a recipe; `errors` says by run what ended it, with the product's line."""
    found: dict[str, Any] = {"errors": {}}
    gpu = torch.device("cuda", 0)
    expected: list[dict[str, float]] = []
    if only != "counted":
        with _reported(found, "cpu"):
            expected, _ = steps(prepared(name, data, "float32", 0.0), torch.device("cpu"))
    for key in ("float32", "bfloat16", "counted"):
        if only not in (None, key):
            continue
        with _reported(found, key), EMULATION, _kernels_noted() as kernels:
            if key == "counted":
                _, record = steps(prepared(name, data, "auto", DROPOUT), gpu)
                found |= {"waits": record.waits, "launches": record.counts["launches"], "kernels": sorted(kernels)}
                found["sites"] = dict(record.sites.most_common())
                found["products"], found["copies"] = record.counts["products"], record.counts["to_device"]
            else:
                seen, _ = steps(prepared(name, data, key, 0.0), gpu)
                found[key] = furthest(expected, seen)
    return found


@contextmanager
def _reported(found: dict[str, Any], run: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename.startswith(tuple(f"{ROOT}/{package}/" for package in PACKAGES))]
        place = f" @ {Path(own[-1].filename).relative_to(ROOT)}:{own[-1].lineno}" if own else ""
        found["errors"][run] = f"{type(error).__name__}: {str(error)[:600]}{place}"


def measured(names: list[str], only: str | None = None) -> dict[str, Any]:
    """`check` of each recipe, reported as it is found."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        data = write_world(Path(folder))
        for name in names:
            results[name] = check(name, data, only)
            sys.stdout.write(f"{name} {json.dumps(results[name])}\n")
            sys.stdout.flush()
            gc.collect()
    return results


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help="names; default: all that ship")
    parser.add_argument("--output", type=Path, help="a JSON file for what is found")
    parser.add_argument("--only", choices=("float32", "bfloat16", "counted"), help="one of the runs on the device")
    options = parser.parse_args(arguments)
    results = measured(options.recipes or recipe_names(), options.only)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1))
    return int(any(found["errors"] for found in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
