"""Every command with `--engine ray` writes the bytes that it writes with `--engine local`."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kg.graph.store import GraphStore
from pipelines.commands.knowledge.entity_vectors import UNIT, entity_vectors
from pipelines.preparing.engines import ray_cluster
from tests.contracts.material import tokenizer
from tests.evaluation.conftest import make_texts, pretrain_on
from tests.kg.objectives.test_entity_vectors import SEEN, recipe, write_corpus
from tests.pipelines.faulty_server import serving
from tests.pipelines.test_commands import GRID
from tests.pipelines.test_commands import prepare as command
from tests.pipelines.test_near_duplicates import encoded, photo
from tests.videos import video
from workbench.cli.encoding import encode
from workbench.core.options.command import call_from_python
from workbench.training.pretrain import pretrain

pytestmark = pytest.mark.scale
LIMIT = 90
"""Seconds for a test."""
PAIRS = [
    ("a dog runs on the beach near the sea", "two women at a market"),
    ("A dog runs on the beach, near the sea!", "a boat"),
    ("a town by the river", "the old town at night"),
]
NAMES = ("Ann", "Bob", "Springfield", "Rome")
TEXTS = ["Ann met Robert in Springfield.", "New York City is large; Bob saw New York City.", "the New York City mayor"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of two cores, which all commands use. One thread computes here and in a worker, as it decides the
    rounding."""
    ray = pytest.importorskip("ray")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ray_cluster.ENVIRONMENT, "OMP_NUM_THREADS": "1"}.items():
            patch.setenv(name, value)
        ray_cluster.silence(ray)
        ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, **quiet)
        yield
        ray.shutdown()
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """A command that hangs fails; the end of the cluster then ends its workers."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small inputs of all commands; a server of images runs meanwhile."""
    folder = tmp_path_factory.mktemp("world")
    _write_inputs(folder)
    for kind in ("image-text", "video-text", "text"):
        media = () if kind == "text" else (f"--{kind.partition('-')[0]}s", folder / "media")
        command(kind, folder / f"{kind}.jsonl", *media, "-o", folder / kind, "--workers", 1)
    GraphStore.build(
        [("e1", "lives in", "e3"), ("e2", "lives in", "e3"), ("e2", "lives in", "e4")],
        folder / "graph",
        entity_texts={f"e{number}": {"label": name} for number, name in enumerate(NAMES, 1)},
        relation_labels={"lives in": "lives in"},
    )
    write_corpus(folder / "seen", SEEN)
    described = {f"Q{n}": {"description": f"old song {n}"} for n in range(UNIT + 10)}
    GraphStore.build([("Q0", "P1", "Q1"), ("Q1", "P2", "Q2")], folder / "many", entity_texts=described)
    tokenizer().save(folder / "tokenizer.json")
    pretrain(recipe(folder), folder / "kepler")
    (folder / "bert").mkdir()
    pretrain_on(make_texts(folder / "bert"))
    files = {f"i{n}.jpg": (folder / "media" / f"i{n}.jpg").read_bytes() for n in range(6)}
    with serving(files) as (address, _):
        rows = [f"caption {n}\t{address}/{'ok' if n % 4 else 'missing'}/i{n}.jpg\n" for n in range(6)]
        (folder / "list.tsv").write_text("".join(rows))
        yield folder


def _write_inputs(folder: Path) -> None:
    (folder / "media").mkdir()
    for n in range(6):
        (folder / "media" / f"i{n}.jpg").write_bytes(encoded(photo(n // 2), quality=90 - n))
        (folder / "media" / f"v{n}.mp4").write_bytes(video(n))
    images = [{"image": f"i{n}.jpg", "captions": list(PAIRS[n % 3])} for n in range(6)]
    videos = [{"video": f"v{n}.mp4", "caption": "x"} for n in range(6)]
    texts = [{"text": text, "id": f"{n}"} for n, text in enumerate(TEXTS * 4)]
    for file, rows in {"image-text": images, "video-text": videos, "text": texts}.items():
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "templates.tsv").write_text("lives in\t[X] lives in [Y] .\n")
    (folder / "lines.txt").write_text("\n".join(TEXTS * 20))


DETECTOR = "fasterrcnn_mobilenet_v3_large_320_fpn"
NEAR = ("--dedupe", "--near-images", 4, "--near-captions", 0.8)
PREPARED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "region features": ("regions image-text", ("--backbone", DETECTOR, "--max-regions", 3)),
    "grid features": ("regions image-text", GRID),
    "clips": ("clips video-text", ("--backbone", "resnet10t", "--size", 32, "--rate", 4)),
    "links": ("link text --graph graph", ()),
    "phrases": ("phrases text", ("--min-count", 2, "--threshold", 0.5)),
    "facts": ("facts graph --templates templates.tsv", ()),
    "near duplicates": ("corpus image-text", NEAR),
    "fetched images": ("image-text list.tsv", ("--fetch", "--private-hosts", "--resize", 32)),
}


def files(folder: Path) -> dict[str, bytes]:
    """Every file in the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def compare(write: Callable[[str, Path], object], folder: Path) -> dict[str, bytes]:
    """What both engines write, after the comparison."""
    for engine in ("local", "ray"):
        (folder / engine).mkdir()
        write(engine, folder / engine / "out")
    local, ray = (files(folder / engine) for engine in ("local", "ray"))
    assert local.keys() == ray.keys()
    assert [name for name in local if local[name] != ray[name]] == []
    return local


@pytest.mark.parametrize("name", PREPARED)
def test_a_corpus_has_the_same_bytes(name: str, world: Path, tmp_path: Path, cluster: None, monkeypatch: Any) -> None:
    monkeypatch.chdir(world)
    words, options = PREPARED[name]

    def write(engine: str, output: Path) -> None:
        workers = 2 if engine == "ray" else 1
        command(*words.split(), *options, "-o", output, "--shard-size", 2, "--engine", engine, "--workers", workers)

    assert len([name for name in compare(write, tmp_path) if name.endswith(".tar")]) > 1


@pytest.mark.parametrize("source", ["lines.txt", "text"])
def test_encoded_vectors_have_the_same_bytes(
    source: str, world: Path, tmp_path: Path, cluster: None, monkeypatch: Any
) -> None:
    monkeypatch.chdir(world)

    def write(engine: str, output: Path) -> None:
        options = {"engine": engine, "workers": 2 if engine == "ray" else 1, "batch_size": 2}
        call_from_python(encode, run="bert/runs/one", source=source, output=f"{output}.safetensors", **options)

    compare(write, tmp_path)


def test_entity_vectors_have_the_same_bytes(world: Path, tmp_path: Path, cluster: None, monkeypatch: Any) -> None:
    monkeypatch.chdir(world)

    def write(engine: str, output: Path) -> None:
        options = {"engine": engine, "workers": 2 if engine == "ray" else 1, "batch_size": 1}
        call_from_python(entity_vectors, run="kepler", graph="many", output=f"{output}.safetensors", **options)

    compare(write, tmp_path)
