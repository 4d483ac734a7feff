"""Steps of small recipes on one rank of several."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from tests.recipes.conftest import World as Data
from tests.recipes.test_recipes import small_recipe
from workbench.core.processes.distributed import World, data_world, distributed
from workbench.optimization.factory import make_optimizer
from workbench.parallel.mesh import parts_of
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.memory import Memory
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer
from workbench.training.capacity import resident
from workbench.training.data import reader_of
from workbench.training.modes import set_training
from workbench.training.parallel import Work, built, is_lean, parallel_of
from workbench.training.step import Updater
from workbench.training.trainer import prepare_layers

DROPOUT = 0.1
Losses = list[dict[str, float]]


def prepared(name: str, data: Data, lanes: int, train: dict[str, Any]) -> Recipe:
    """A small recipe with dropout, of which everything is trained, from fresh weights."""
    plain = _with_dropout(dataclasses.asdict(small_recipe(name, data)))
    plain["train"] |= {"groups": [], "train_only": [], "precision": "float32"}
    plain["train"] |= {"global_batch_size": 2 * lanes, "micro_batch_size": 2} | train
    recipe = recipe_from_dict(plain, name)
    for network in recipe.networks.values():
        network.init_from.clear()
    return recipe


def _with_dropout(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_with_dropout(inner) for inner in tree]
    if not isinstance(tree, dict):
        return tree
    named = ("dropout",) if tree.get("layer") == "linear" else ("dropout", "attention_dropout")  # it has no scores
    return {key: DROPOUT if key in named and value is not None else _with_dropout(value) for key, value in tree.items()}


def steps(
    name: str, data: Data, world: World, *, lanes: int, count: int, parallel: dict[str, Any], **train: Any
) -> Losses:
    """Losses and the gradient's norm of the first steps. The second has an empty lane; the third, of several tasks,
    only the first task. The main rank holds the memory that the plan of the run says."""
    recipe = prepared(name, data, lanes, {**train, "parallel": parallel})
    world = data_world(world, recipe.train.parallel.tensor)
    tokenizer = None if recipe.tokenizer is None else Tokenizer.load(recipe.tokenizer)
    tasks = tasks_of(recipe, tokenizer)
    batches = MicroBatches(tasks, {key: reader_of(recipe, task) for key, task in tasks.items()})
    root = built(lambda: make_model(recipe, tasks, tokenizer), recipe.train, world)
    if world.is_main or not is_lean(recipe.train, world):
        root.start_followers()
    parts = parts_of(recipe.train.parallel, world)
    planned = resident(root, recipe.train, world.device, parts)
    parallel = parallel_of(root, recipe.train, world)
    held = resident(root, recipe.train, world.device, parts)
    assert held == planned if world.is_main else held <= planned, (name, held, planned)
    set_training(root)
    root.progress, root.remembered = 0.0, Memory()
    prepare_layers(root, compile=recipe.train.compile, checkpointing=recipe.train.activation_checkpointing)
    optimizer, weights = make_optimizer(root, recipe.train), dict.fromkeys(tasks, 1.0)
    updater = Updater(root, optimizer, tasks, recipe.train, world, seed=0, weights=weights, parallel=parallel)
    parallel.begin(batches)
    seen: Losses = []
    for step in range(count):
        work = []
        for task in list(tasks)[: 1 if step == 2 else None]:
            for lane in world.lanes(lanes):
                micro = batches.micro_batch(MicroBatchId(task, step, lane))
                work.append(Work(task, lane, None if step == 1 and lane == lanes - 1 else micro))
        result = updater.run(step, work)
        seen.append({key: total / number for key, (total, number) in result.losses.items()})
        seen[-1]["norm"] = result.grad_norm
    return seen


def run_rank(environment: dict[str, str], file: Path) -> None:
    """Run the steps that a file asks for: the small corpora, names, a number of pretended nodes and the options of
    `steps`. The losses go to `FILE.RANK`, what is printed to `FILE.RANK.txt`. The environment is that of torchrun."""
    with file.with_suffix(f".{environment['RANK']}.txt").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.update(environment)
    torch.set_num_threads(1)
    data, names, nodes, options = pickle.loads(file.read_bytes())
    with distributed() as world:
        os.environ["LOCAL_WORLD_SIZE"] = str(world.size // nodes)
        found = {}
        for name in names:
            found[name] = steps(name, data, world, **options)
            file.with_suffix(f".{world.rank}").write_bytes(pickle.dumps(found))
