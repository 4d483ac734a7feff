"""Small checkpoints to try: runs of the demo, and a CLIP of its scenes, in the cache of this machine.

`workbench.load("workbench:k-bert-world")` opens one. Each is a run: its recipe, its last checkpoint, its tokenizer, its
results, what it reads of a graph, and a card. All of its data are made up (the world, the scenes) or free (easy-VQA).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.demo.plan import DemoJob, plan
from workbench.core.files.drafts import draft_folder, write_text
from workbench.recipe.recipe_listing import stack
from workbench.recipe.trees import as_tree, dump_recipe, recipe_from_dict
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.folder import read_recipe
from workbench.runs.metrics_file import read_results
from workbench.runs.names import DATA, EVALUATIONS, RECIPE, STATUS, TOKENIZER
from workbench.runs.stored_run import NAMED, named_folder

CLIP = "runs/clip"
RUNS = {
    "bert-world": ("runs/bert", "fill in words; what it knows of the made-up world is in its weights"),
    "k-bert-world": ("runs/k-bert", "fill in words, with the graph of the made-up world"),
    "ernie-typing": ("runs/ernie-thu-typing", "the types of a mention, with vectors of the graph"),
    "clip-scenes": (CLIP, "compare texts with drawings of coloured shapes"),
    "joint-questions": ("runs/joint-vqa", "answer easy-VQA's questions, from stored features of the images"),
}
SOURCES = {
    "bert": "Sentences from templates about real country names (GeoNames, CC BY 4.0) with made-up facts.",
    "clip": "Drawings of coloured shapes with captions from templates; both are made by the demo.",
    "joint": "easy-VQA (MIT licence) and the demo's drawings, seen by EfficientNet-Lite0 (Apache-2.0).",
}


def jobs() -> list[DemoJob]:
    """The demo's jobs that the checkpoints need, and the CLIP's."""
    words = ("corpora/scenes", "corpora/words.json")
    changes = ("vars.corpus=corpora/scenes", "tokenizer=corpora/words.json", "train.num_workers=0")
    frame = ("tasks.pairs.sequence.begin=cls", "tasks.pairs.sequence.end=sep")
    trained = ("pretrain", "clip-tiny", *changes, *frame, "--output", CLIP)
    found = ("evaluate", "retrieval", CLIP, "corpora/scenes-heldout")
    more = [
        DemoJob("pretrain", trained, CLIP, 90, words),
        DemoJob("evaluate", found, f"{CLIP}/{EVALUATIONS}", 4, (CLIP,)),
    ]
    wanted = {place for place, _ in RUNS.values()}
    everything = [*plan(), *more]
    return _needed(everything, wanted)


def _needed(everything: list[DemoJob], wanted: set[str]) -> list[DemoJob]:
    """The jobs that make what is wanted, those that these need, and the evaluations of the wanted, in their order."""
    chosen: set[int] = set()
    places = set(wanted)
    for number in reversed(range(len(everything))):
        job = everything[number]
        evaluates = job.command[0] == "evaluate" and job.command[2] in wanted
        if evaluates or any(place == job.output or place.startswith(f"{job.output}/") for place in places):
            chosen.add(number)
            places |= {*job.needs, *job.command}
    return [job for number, job in enumerate(everything) if number in chosen]


def publish(folder: Path) -> Iterator[Path]:
    """Copy the runs of a finished demo into the cache, each as a whole; yields the place of each.

    Args:
        folder: the demo's.
    """
    for name, (place, use) in RUNS.items():
        target = named_folder(name)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_folder(target)
        _copy(folder, folder / place, draft, target)
        write_text(draft / "README.md", _card(name, use, folder / place))
        draft.rename(target)
        yield target


def _copy(folder: Path, run: Path, draft: Path, target: Path) -> None:
    """A run with its best or last checkpoint, and the graph or vectors that it reads, which its recipe names there."""
    last = Checkpoints(run).best_or_last()
    assert last is not None
    for name in (TOKENIZER, DATA, STATUS):
        if (run / name).is_file():
            shutil.copy2(run / name, draft / name)
    shutil.copytree(last, draft / last.relative_to(run))
    if (run / EVALUATIONS).is_dir():
        shutil.copytree(run / EVALUATIONS, draft / EVALUATIONS)
    read = json.loads((run / DATA).read_text("utf-8"))["read"]
    places = {place for kind in ("graph", "vectors") for place in read.get(kind, {})}
    tree = as_tree(read_recipe(run))
    for place in sorted(places):
        inside = Path("read") / Path(place).name
        copy = shutil.copytree if (folder / place).is_dir() else shutil.copy2
        (draft / inside).parent.mkdir(exist_ok=True)
        copy(folder / place, draft / inside)
        named = str(Path(place).parent) if Path(place).name == "graph" else place
        tree = _renamed(tree, {place, named}, str(target / inside))
    write_text(draft / RECIPE, dump_recipe(recipe_from_dict(tree)))


def _renamed(tree: Any, old: set[str], new: str) -> Any:
    if isinstance(tree, dict):
        return {name: _renamed(each, old, new) for name, each in tree.items()}
    if isinstance(tree, list):
        return [_renamed(each, old, new) for each in tree]
    return new if isinstance(tree, str) and tree in old else tree


def _card(name: str, use: str, run: Path) -> str:
    """What the checkpoint is, its data and licence, its recipe, and its results with those of its baselines."""
    recipe = read_recipe(run)
    data = next((text for kind, text in SOURCES.items() if kind in name), SOURCES["bert"])
    rows = ["| task | number | value |", "|---|---|---|"]
    for found in read_results(run):
        rows += [f"| {found['task']} | {n} | {v:.3f} |" for n, v in found["numbers"].items() if isinstance(v, float)][
            :12
        ]
    return "\n".join(
        [
            f"# {name}\n",
            f"For: {use}. `workbench serve {NAMED}{name}` asks it.\n",
            f"- Layers: {stack(recipe)}.",
            f"- Data: {data}",
            f"- Recipe: `{recipe.name}`, {recipe.train.max_steps} steps, seed {recipe.seed} (`recipe.yaml`).",
            "- It is small and knows a made-up world only. It is for trying the workbench, not for use.\n",
            *(rows if len(rows) > 2 else ["It was not evaluated."]),
            "",
        ]
    )
