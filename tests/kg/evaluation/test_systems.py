"""The shipped systems on entity typing and relations, from pretraining to the scores, by the commands."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kg.graph.store import GraphStore
from kg.vectors.vectors import Vectors, save_vectors
from tests.kg.evaluation.conftest import COUNTRIES, TOWNS, WORDINGS, country_of, fact, write
from tests.kg.evaluation.graph_world import write_triples
from workbench.cli.app import app
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TRIPLES = [(f"t{t}", "country", f"c{country_of(t)}") for t in range(len(TOWNS))]
QUICK = ("train.max_steps=2", "train.global_batch_size=8", "train.micro_batch_size=8", "train.verify=false")
SMALL = ("model.streams.text.hidden_size=16", "train.lr_schedule.warmup_steps=0")


def record(town: int, wording: str) -> dict[str, Any]:
    """A sentence of a town and its country, both linked; the one that comes first is typed, and is the head."""
    found = fact(town, wording)
    (start, end, first, _), (other, last, _, _) = found["spans"]
    kind, relation = ("town", "lies in") if first.startswith("t") else ("country", "contains")
    marks = [[start, end, "head"], [other, last, "tail"]]
    told = {"mention": [start, end], "types": ["place", kind], "marks": marks, "labels": {"relation": relation}}
    return {"text": f"{found['text']} It is old. It is large.", "spans": found["spans"], "meta": {}, **told}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the recipes read, in a folder; its linked texts are also the tasks' corpus."""
    folder = tmp_path_factory.mktemp("systems")
    records = [record(town, wording) for town in range(8) for wording in WORDINGS]
    write(folder / "wiki-linked", records)
    write(folder / "text", [{"text": each["text"], "spans": [], "meta": {}} for each in records])
    names = {f"t{i}": (name, "town") for i, name in enumerate(TOWNS)}
    names |= {f"c{i}": (name, "country") for i, name in enumerate(COUNTRIES)}
    told = {e: {"label": n, "description": f"a {kind} called {n}", "types": [kind]} for e, (n, kind) in names.items()}
    GraphStore.build(TRIPLES, folder / "graph" / "graph", entity_texts=told, relation_labels={"country": "lies in"})
    write_triples(folder / "graph", TRIPLES)
    vectors = Vectors([*names], torch.randn(len(names), 32), ["country"], torch.randn(1, 32))
    save_vectors(vectors, folder / "entities.safetensors")
    words = [*TOWNS, *COUNTRIES, *WORDINGS, "a called country it is old large # $ /"] * 3
    Tokenizer(train_tokenizer(words, "wordpiece", 150)).save(folder / "tokenizer.json")
    return folder


def run(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app.run([str(argument) for argument in arguments], "workbench")
    assert ended.value.code == 0


@pytest.mark.parametrize("system", ["ernie-thu", "k-bert", "kepler", "wklm"])
def test_a_system_is_fine_tuned_and_evaluated(system: str, data: Path, tmp_path: Path) -> None:
    corpus = data / "wiki-linked"
    run("pretrain", f"{system}-tiny", f"vars.data={data}", *SMALL, *QUICK, "-o", tmp_path / "run")
    for task, markers in (("entity-typing", ("--marker", "/")), ("relations", ("--head", "#", "--tail", "$"))):
        tuned = tmp_path / task
        run("finetune", task, tmp_path / "run", corpus, "--epochs", "1", *markers, "-o", tuned)
        run("evaluate", task, tuned, corpus)
        (result,) = (json.loads(file.read_text()) for file in (tuned / "evaluations").glob("*.json"))
        assert result["numbers"]
        assert all(math.isfinite(number) for number in result["numbers"].values())
        assert result["baselines"]
