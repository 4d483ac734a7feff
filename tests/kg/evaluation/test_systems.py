"""The shipped systems on entity typing and relations, from pretraining to the scores, by the commands."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import workbench
from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.kg.evaluation.conftest import COUNTRIES, TOWNS, WORDINGS, country_of, fact, write
from tests.kg.evaluation.graph_world import write_triples
from tests.recipes.shipped_recipes import marked
from workbench.cli.app import app
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TRIPLES = [(f"t{t}", "country", f"c{country_of(t)}") for t in range(len(TOWNS))]
QUICK = ("train.max_steps=2", "train.global_batch_size=8", "train.micro_batch_size=8", "train.verify=false")
SMALL = ("model.streams.text.hidden_size=16", "train.lr_schedule.warmup_steps=0")
SIGNS = {"entity-typing": ("--marker", "/"), "relations": ("--head", "#", "--tail", "$")}
WORDNET = (
    "00000001 15 n 03 town 0 home 0 country 0 000 | where people live\n"
    "00000002 15 n 01 norway 0 001 @ 00000001 n 0000 | a country\n"
)


def record(town: int, wording: str) -> dict[str, Any]:
    """A sentence of a town and its country, both linked; the one that comes first is typed, and is the head."""
    found = fact(town, wording)
    (start, end, first, _), (other, last, _, _) = found["spans"]
    kind, relation = ("town", "lies in") if first.startswith("t") else ("country", "contains")
    marks = [[start, end, "head"], [other, last, "tail"]]
    reported = {"mention": [start, end], "types": ["place", kind], "marks": marks, "labels": {"relation": relation}}
    return {"text": f"{found['text']} It is old. It is large.", "spans": found["spans"], "meta": {}, **reported}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the recipes read, in a folder; its linked texts are also the tasks' corpus."""
    folder = tmp_path_factory.mktemp("systems")
    records = [record(town, wording) for town in range(8) for wording in WORDINGS]
    write(folder / "wiki-linked", records)
    write(folder / "text", [{"text": each["text"], "spans": [], "meta": {}} for each in records])
    names = {f"t{i}": (name, "town") for i, name in enumerate(TOWNS)}
    names |= {f"c{i}": (name, "country") for i, name in enumerate(COUNTRIES)}
    reported = {
        e: {"label": n, "description": f"a {kind} called {n}", "types": [kind]} for e, (n, kind) in names.items()
    }
    GraphStore.build(TRIPLES, folder / "graph" / "graph", entity_texts=reported, relation_labels={"country": "lies in"})
    write_triples(folder / "graph", TRIPLES)
    vectors = GraphVectors([*names], torch.randn(len(names), 32), ["country"], torch.randn(1, 32))
    save_vectors(vectors, folder / "entities.safetensors")
    words = [*TOWNS, *COUNTRIES, *WORDINGS, "a called country it is old large # $ /"] * 3
    Tokenizer(train_tokenizer(words, "wordpiece", 150)).save(folder / "tokenizer.json")
    return folder


def run(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app.run([str(argument) for argument in arguments], "workbench")
    assert ended.value.code == 0


def map_vectors(data: Path) -> list[str]:
    """e-bert's: vectors of words and towns in one space, mapped for the weights that it starts from."""
    entities = [f"t{i}" for i in range(len(TOWNS))] + [f"c{i}" for i in range(len(COUNTRIES))]
    names = [*entities, *COUNTRIES, "is", "it", "old", "large", "the", "town", "of", "in"]
    numbers = torch.randn(len(names), 3, generator=torch.Generator().manual_seed(0)).tolist()
    rows = [f"{name} {' '.join(map(str, of))}\n" for name, of in zip(names, numbers, strict=True)]
    (data / "joint.txt").write_text(f"{len(rows)} 3\n{''.join(rows)}")
    base = data / "base"
    run("pretrain", "wklm-tiny", f"vars.data={data}", *SMALL, *QUICK, "-o", base)
    mapped = data / "mapped.safetensors"
    run("prepare", "vectors", data / "graph", "--from", data / "joint.txt", "--map-to", base, "-o", mapped)
    return [f"model.init_from={base}"]


def write_wordnet(data: Path) -> Path:
    if not (data / "wordnet").exists():
        (data / "dict").mkdir()
        (data / "dict/data.noun").write_text(WORDNET)
        run("prepare", "triples", data / "dict", "-o", data / "wordnet")
    return data / "wordnet"


def find_senses(data: Path) -> list[str]:
    reported = ("--tokenizer", data / "tokenizer.json", "-o", data / "supersenses.json")
    run("prepare", "supersenses", write_wordnet(data), *reported)
    return []


def find_pairs(data: Path) -> list[str]:
    graph = write_wordnet(data)
    run("prepare", "word-pairs", graph, "--texts", data / "text", "--dim", "4", "-o", data / "word-pairs")
    return []


def image_towns(data: Path) -> list[str]:
    """joint-entity's captions, linked to the graph."""
    photos = data / "photos"
    photos.mkdir()
    rows = []
    for town, name in enumerate(TOWNS[:8]):
        Image.new("RGB", (32, 32), (town * 30, 90, 200)).save(photos / f"{town}.png")
        rows.append({"image": f"{town}.png", "captions": [f"{name} is old", f"the town of {name} is large"]})
    (data / "captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run("prepare", "image-text", data / "captions.jsonl", "--images", photos, "-o", data / "captions")
    run("prepare", "link", data / "captions", "--graph", data / "graph", "-o", data / "captions-linked")
    return ["model.streams.image.hidden_size=16"]


OWN = {"e-bert": map_vectors, "sensebert": find_senses, "libert": find_pairs, "joint-entity": image_towns}
"""What a system reads next to the graph, linked texts and vectors. Returns changes to its recipe."""
TUNED = {"joint-entity": ("--without", "image")}
SYSTEMS = ["ernie-thu", "k-bert", "kepler", "wklm", "e-bert", "sensebert", "libert", "kg-bert", "joint-entity"]


@pytest.mark.parametrize("system", marked(SYSTEMS, ["k-bert", "wklm"]))
def test_a_system_is_fine_tuned_and_evaluated(system: str, data: Path, tmp_path: Path) -> None:
    corpus = data / "wiki-linked"
    own = OWN[system](data) if system in OWN else []
    run("pretrain", f"{system}-tiny", f"vars.data={data}", *SMALL, *QUICK, *own, "-o", tmp_path / "run")
    for task, markers in SIGNS.items():
        tuned = tmp_path / task
        options = ("--epochs", "1", *markers, *TUNED.get(system, ()), "-o", tuned)
        run("finetune", task, tmp_path / "run", corpus, *options)
        run("evaluate", task, tuned, corpus)
        (result,) = (json.loads(file.read_text()) for file in (tuned / "evaluations").glob("*.json"))
        assert result["numbers"]
        assert all(math.isfinite(number) for number in result["numbers"].values())
        assert result["baselines"]


@pytest.mark.parametrize("task", ["entity-typing", "relations"])
def test_the_papers_marks_are_new_tokens(task: str, data: Path, tmp_path: Path) -> None:
    """[ENT], and [HD] and [TL]: in the vocabulary of the fine-tuned run alone, each one token on both sides."""
    marks = {"entity-typing": {"--marker": "[ENT]"}, "relations": {"--head": "[HD]", "--tail": "[TL]"}}[task]
    reported = [word for pair in marks.items() for word in pair]
    run("pretrain", "wklm-tiny", f"vars.data={data}", *SMALL, *QUICK, "-o", tmp_path / "run")
    marked, tuned = tmp_path / "marked.json", tmp_path / "tuned"
    added = [word for mark in marks.values() for word in ("--add", mark)]
    run("prepare", "tokenizer", "--start", data / "tokenizer.json", *added, "-o", marked)
    corpus = data / "wiki-linked"
    run("finetune", task, tmp_path / "run", corpus, "--epochs", "1", *reported, f"tokenizer={marked}", "-o", tuned)
    run("evaluate", task, tuned, corpus)
    before, after = workbench.load(tmp_path / "run"), workbench.load(tuned)
    assert after.tokenizer.vocab_size == before.tokenizer.vocab_size + len(marks)
    sample = {**record(0, WORDINGS[0]), "key": "a", "corpus": "c", "draw": (0,)}
    (transform,) = after.tasks.values()
    batch = transform.evaluating().micro_batch([sample], (0,)).views["main"]
    ids = batch.streams["text"].fields["input_ids"].tolist()
    for mark in marks.values():
        assert ids.count(after.tokenizer.vocabulary[mark]) == 2
