"""Recipes on the pretend device with kernels that compute nothing: what is allocated, and what is compiled?

    python -m tests.gpu_without_gpu run -m tests.gpu_without_gpu.unemulated memory bert modernbert clip
    python -m tests.gpu_without_gpu run -m tests.gpu_without_gpu.unemulated compiles k-bert modernbert:compile
    python -m tests.gpu_without_gpu run -m tests.gpu_without_gpu.unemulated launches bert gpt-2 t5

`memory`: a recipe as it ships, with a vocabulary of a usual size, on sequences that are as long as they may be: the
allocator's peak of six steps, whose rows differ. `compiles`: a small recipe on 50 batches of different sizes, dynamo as
always and the eager backend in the place of inductor: how often each function is compiled. `kernel`: one step, compiled
for real. `launches`: launches, waits and processor time of a step at its base size, next to Hugging Face's class on the
same batches, padded, with clipping and a fused AdamW; flex attention is left out, as compiling it would take minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pipelines.gpu.stepping import stepping as peer_stepping
from pipelines.gpu.text_peers import PEERS
from tests.gpu_without_gpu.emulation.counting import WAITS, counts
from tests.recipes.conftest import World as Data
from tests.recipes.conftest import linked_texts, write_corpus, write_world
from tests.recipes.test_recipes import small_recipe
from workbench.core.processes.distributed import World
from workbench.core.processes.malloc import grow_segments
from workbench.models.attention import flex as flex_module
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer
from workbench.training import step as step_module
from workbench.training.data import reader_of
from workbench.training.modes import set_training
from workbench.training.parallel import Work
from workbench.training.step import Updater
from workbench.training.trainer import prepare_layers

BATCHES = 50
VOCABULARY = 50_400
"""At least as large as those of the recipes that are measured."""
COMPILED = Counter[str]()


def stepping(recipe: Recipe, *, compiles: bool = False) -> Callable[[int], int]:
    """A function that makes the step of a number and returns its rows."""
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    tasks = tasks_of(recipe, tokenizer)
    name, task = next(iter(tasks.items()))
    reader, device = reader_of(recipe, task), torch.device("cuda", 0)
    root = make_model(recipe, tasks, tokenizer).to(device)
    set_training(root)
    root.progress = 0.0
    optimizer = make_optimizer(root, recipe.train)
    weights = dict.fromkeys(tasks, 1.0)
    updater = Updater(root, optimizer, tasks, recipe.train, World(device=device), seed=0, weights=weights)
    if compiles:
        prepare_layers(root, compile=True, checkpointing=False)

    def run(number: int) -> int:
        micro = task.micro_batch(reader.micro_batch(number, 0), (0, number, 0), 0.0)
        assert micro is not None
        updater.run(number, [Work(name, 0, micro.pin_memory())])
        return sum(stream.rows for stream in next(iter(micro.views.values())).streams.values())

    return run


def nothing_is_computed() -> None:
    """So nothing is finite but by chance: a step must not look."""
    assert callable(step_module._not_finite)
    step_module._not_finite = lambda *given: ""


# ---- memory ----

STEPS = 6


def long_texts(count: int) -> list[dict[str, Any]]:
    rng = random.Random(0)
    words = " ".join(sample["text"] for sample in linked_texts(24)).split()
    return [{"text": " ".join(rng.choices(words, k=1500)), "meta": {}} for _ in range(count)]


def large_vocabulary(tokenizer: Path, folder: Path) -> Path:
    """The small tokenizer with tokens that no text has."""
    plain = json.loads(tokenizer.read_text())
    known = plain["model"]["vocab"]
    known |= {f"[unused{i}]": len(known) + i for i in range(VOCABULARY - len(known))}
    file = folder / "large.json"
    file.write_text(json.dumps(plain))
    return file


def as_shipped(name: str, data: Data, folder: Path, sequences: int | None = None) -> Recipe:
    """On one device its micro-batch, or one of so many sequences, with nothing accumulated."""
    plain = dataclasses.asdict(load_recipe(name))
    corpus = folder / "long"
    size = sequences or plain["train"]["micro_batch_size"]
    if not corpus.is_dir():
        write_corpus(corpus, "text", long_texts(600))
    for task in plain["tasks"].values():
        images = "image" in str(task["sequence"]["builder"])
        task["corpora"], task["held_out"] = {str(data.images if images else corpus): 1.0}, []
    for entry in _dictionaries(plain["model"]):
        if "vocab_size" in entry:
            entry["vocab_size"] = VOCABULARY + 128  # with sentinels
    plain["tokenizer"] = str(large_vocabulary(data.tokenizer, folder))
    plain["train"] |= {"global_batch_size": size, "micro_batch_size": size, "groups": [], "train_only": []}
    recipe = recipe_from_dict(plain, name)
    for network in recipe.networks.values():
        network.init_from.clear()
    return recipe


def memory(name: str, data: Data, folder: Path) -> dict[str, Any]:
    name, _, sequences = name.partition(":")
    recipe = as_shipped(name, data, folder, int(sequences) if sequences else None)
    run = stepping(recipe)
    torch.cuda.reset_peak_memory_stats()
    rows = [run(number) for number in range(STEPS)]
    peaks = {"peak GiB": torch.cuda.max_memory_allocated(), "reserved GiB": torch.cuda.max_memory_reserved()}
    gib = {name: round(peak / 2**30, 2) for name, peak in peaks.items()}
    return {"micro_batch_size": recipe.train.micro_batch_size, "rows": rows, **gib}


# ---- compiling ----


def ragged_texts(count: int) -> list[dict[str, Any]]:
    """The small corpus's texts, each with another number of sentences behind."""
    rng = random.Random(0)
    samples = linked_texts(count)
    for sample in samples:
        sample["text"] += " They like the river and the bridge." * rng.randrange(8)
    return samples


def count_compiles() -> None:
    """dynamo and its guards as always; what it traced runs eagerly, and is noted by the function's name and line."""
    flex_module.SMALL = 0  # so that small recipes are compiled too
    compiled = torch.compile

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return graph.forward

    def eagerly(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **{**kwargs, "backend": backend, "mode": None, "options": None})

    torch.compile = eagerly  # type: ignore[assignment]


def compiles(name: str, data: Data, folder: Path, layers: bool) -> dict[str, Any]:
    """How often each function was compiled, and how many sizes of batches there were."""
    corpus = folder / "ragged"
    if not corpus.is_dir():
        write_corpus(corpus, "text", ragged_texts(8 * BATCHES))
    plain = dataclasses.asdict(small_recipe(name, data))
    for task in plain["tasks"].values():
        task["corpora"] = {str(corpus): 1.0} if str(data.text) in task["corpora"] else task["corpora"]
    plain["train"] |= {"groups": [], "train_only": []}
    for entry in _dictionaries(plain):
        if "repeat" in entry:
            entry["repeat"] = 3
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    run = stepping(recipe_from_dict(plain, name), compiles=layers)
    rows = [run(number) for number in range(BATCHES)]
    found = Counter(
        f"{Path(one.co_filename).name}:{one.co_firstlineno} {one.co_name}"
        for one in torch._dynamo.utils.get_compilation_metrics()
        if one.fail_type is None and one.co_name is not None
    )
    reasons = [one.recompile_reason for one in torch._dynamo.utils.get_compilation_metrics() if one.recompile_reason]
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return {"sizes": len(set(rows)), "compiled": found, "reasons": reasons, "graph breaks": breaks}


def _dictionaries(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, list):
        return [found for inner in tree for found in _dictionaries(inner)]
    if not isinstance(tree, dict):
        return []
    return [tree, *(found for inner in tree.values() for found in _dictionaries(inner))]


# ---- launches ----

SEQUENCES = 8
"""Of a micro-batch whose launches are counted: they hardly depend on it."""


def launches(name: str, data: Data, folder: Path) -> dict[str, Any]:
    recipe = as_shipped(name, data, folder, SEQUENCES)
    found = {"ours": _counted(stepping(recipe))}
    if name in PEERS:
        found["Hugging Face"] = _counted(_peer(name, recipe))
    return found


def _peer(name: str, recipe: Recipe) -> Callable[[int], object]:
    """A step of Hugging Face's class, on our batches."""
    peer = dataclasses.replace(PEERS[name], options={})
    model = peer.made(VOCABULARY + 128).cuda()
    tasks = tasks_of(recipe, Tokenizer.load(str(recipe.tokenizer)))
    task = next(iter(tasks.values()))
    reader = reader_of(recipe, task)

    def forward(number: int) -> torch.Tensor:
        micro = task.micro_batch(reader.micro_batch(number, 0), (0, number, 0), 0.0)
        assert micro is not None
        given = {key: value.pin_memory().cuda(non_blocking=True) for key, value in peer.inputs(micro).items()}
        with torch.autocast("cuda", torch.bfloat16):
            loss: torch.Tensor = model(**given).loss
        return loss

    return peer_stepping(model, forward)


def _counted(run: Callable[[int], object]) -> dict[str, float]:
    """Of a step after the first; making its batch is in the time."""
    run(0)
    before, begun = counts(), time.process_time()
    run(1)
    seconds, after = time.process_time() - begun, counts()
    made = {kind: after[kind] - before[kind] for kind in after}
    waits = sum(made[kind] for kind in WAITS)
    launched = made["launches"] + made["products"] + made["fills"]
    return {"launches": launched, "waits": waits, "processor ms": round(1e3 * seconds)}


def without_flex() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            ctx.save_for_backward(q, k, v)
            return q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:3], dtype=torch.float32)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)

    assert callable(flex_module._flex_call)
    assert callable(flex_module._function)
    flex_module._flex_call = lambda q, k, v, *rest: Nothing.apply(q, k, v)
    flex_module._function = lambda function, compiled: function  # type: ignore[assignment]


def kernel(name: str, data: Data, folder: Path) -> dict[str, Any]:
    run = stepping(small_recipe(name, data))
    return {"rows": run(0)}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("memory", "compiles", "launches", "kernel"))
    parser.add_argument("recipes", nargs="+", help="names; `:compile` compiles the layers; `:64` is a micro-batch")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    grow_segments(torch.device("cuda", 0))  # as `pretrain` does
    nothing_is_computed()
    if options.what == "compiles":
        count_compiles()
    if options.what == "launches":
        without_flex()
    results = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        data = write_world(folder)
        for name in options.recipes:
            try:
                if options.what == "memory":
                    results[name] = memory(name, data, folder)
                elif options.what == "launches":
                    results[name] = launches(name, data, folder)
                elif options.what == "compiles":
                    results[name] = compiles(name.partition(":")[0], data, folder, layers=name.endswith(":compile"))
                else:
                    results[name] = kernel(name, data, folder)
            except Exception as error:
                results[name] = {"error": f"{type(error).__name__}: {str(error)[:600]}"}
            sys.stdout.write(f"{name} {json.dumps(results[name])}\n")
            sys.stdout.flush()
    if options.output:
        options.output.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
