"""A tiny text corpus, its tokenizer, and recipes on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.training.command_processes import Forked
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.text.tokenizer import Tokenizer, train_tokenizer

HERE = Path(__file__).resolve().parent
MakeRecipe = Callable[..., Path]
WORDS = "the old river runs past a small town where people buy bread and tell long stories"


def _texts(count: int, seed: int) -> list[str]:
    """Texts of 1 to 40 words, so that micro-batches have unequal numbers of labels."""
    rng = random.Random(seed)
    words = WORDS.split()
    return [" ".join(rng.choice(words) for _ in range(rng.randint(1, 40))) + "." for _ in range(count)]


def _write(folder: Path, texts: list[str]) -> None:
    infos = []
    for first in range(0, len(texts), 50):
        with ShardWriter(folder / f"part-{first:06d}.tar", kind="text") as writer:
            for i, text in enumerate(texts[first : first + 50], first):
                writer.add(f"r{i}", {"text": text, "spans": [], "meta": {}})
        assert writer.info is not None
        infos.append(writer.info)
    finish_corpus(folder, kind="text", shards=infos, provenance={"command": "test", "inputs": []})


@pytest.fixture(scope="session")
def world_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `train`, `other` and `held-out` corpora and `tokenizer.json`."""
    folder = tmp_path_factory.mktemp("world")
    for seed, (name, count) in enumerate({"train": 120, "other": 80, "held-out": 21}.items()):
        _write(folder / name, _texts(count, seed))
    Tokenizer(train_tokenizer(_texts(200, 0), "wordpiece", 90)).save(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Several processes share the cores, and sums are the same everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tree(world_folder: Path) -> dict[str, Any]:
    """A recipe with everything that could depend on ranks: dropout, accumulation, unequal counts."""
    return {
        "tokenizer": str(world_folder / "tokenizer.json"),
        "seed": 3,
        "model": {
            "streams": {"text": {"embedding": "token", "hidden_size": 16, "max_positions": 32}},
            "layers": [{"layer": "self", "stream": "text", "num_heads": 2, "repeat": 2}],
        },
        "tasks": {
            "text": {
                "corpora": [str(world_folder / "train")],
                "sequence": {"builder": "document", "max_length": 24},
                "objectives": [{"objective": "mlm", "rate": 0.2}],
            }
        },
        "train": {
            "max_steps": 20,
            "global_batch_size": 12,
            "micro_batch_size": 4,
            "lr": 0.01,
            "lr_schedule": {"lr_schedule": "linear", "warmup_steps": 3},
            "log_every": 1,
            "save_every": 5,
            "num_workers": 0,
        },
    }


@pytest.fixture
def make_recipe(world_folder: Path, tmp_path: Path) -> MakeRecipe:
    """Writes a recipe file: `make_recipe(lambda t: t["train"].update(lr=0.1))`; its folder holds the toy components."""

    def make(change: Callable[[dict[str, Any]], Any] | None = None, name: str = "tiny") -> Path:
        plain = tree(world_folder)
        if change is not None:
            change(plain)
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plain))
        for module in ("toy_components.py", "broken_components.py", "hostile_components.py", "strange_components.py"):
            if not (tmp_path / module).exists():
                (tmp_path / module).symlink_to(HERE / module)
        return path

    return make


@pytest.fixture
def recipe(make_recipe: MakeRecipe) -> Recipe:
    return load_recipe(str(make_recipe()))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Forked]]:
    """Starts `workbench pretrain RECIPE ... --run RUN` as rank `rank` of `size`; kills remaining processes at the
    end."""
    started: list[Forked] = []

    def start(
        path: Path, run: Path, *overrides: str, rank: int = 0, size: int = 1, port: int = 0, **also: str
    ) -> Forked:
        environment = also
        if size > 1:
            environment = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                **also,
            }
        output = tmp_path / f"output-{len(started)}.txt"
        started.append(Forked(["pretrain", str(path), *overrides, "--run", str(run), "--trust"], environment, output))
        return started[-1]

    yield start
    for forked in started:
        if forked.running:
            forked.process.kill()


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equality bit for bit is promised on a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
