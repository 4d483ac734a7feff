"""Both sides of the benchmark of whole runs are given the same work."""

from __future__ import annotations

import random

import pytest
import torch

from benchmarks.padded_batches import Documents
from benchmarks.padded_loops import PEERS
from benchmarks.whole_run_inputs import RECIPES, prepare
from workbench.corpora.corpus import Corpus
from workbench.pretraining.task import build_tasks
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer

LENGTH = 40


@pytest.mark.parametrize("name", RECIPES)
def test_a_peer_has_as_many_real_tokens_as_the_recipe(name, tmp_path):
    words = ["river", "stone", "harbour", "light", "winter", "garden", "letter", "market"]
    rng = random.Random(0)
    lines = [" ".join(rng.choice(words) + str(rng.randrange(90)) for _ in range(rng.randint(8, 60))) for _ in range(80)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(lines), encoding="utf-8")
    folder = tmp_path / "inputs"
    folder.mkdir()
    train = {"max_steps": 1, "global_batch_size": 8, "micro_batch_size": 8, "lr": 1e-3}
    recipe = load_recipe(str(prepare(name, folder, text, LENGTH, train)), [])

    documents = Documents(folder)
    make_collator, make_model = PEERS[name]
    collator = make_collator(folder, LENGTH, "longest")
    batch = collator([documents[i] for i in range(8)])
    loss, _ = make_model(folder, collator.tokenizer, "all").train()(batch)
    assert torch.isfinite(loss)

    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    resources = {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size, "control": None}
    task = build_tasks(recipe.tasks, seed=0, resources=resources)["text"]
    corpus = Corpus.open(folder / "corpus")
    samples = [{**corpus.read(0, i), "draw": (0, 0, i)} for i in range(8)]
    streams = task.micro_batch(samples, (0, 0, 0)).views["main"].streams
    rows = {stream: fields.rows for stream, fields in streams.items()}
    counted = batch["rows"].sum() if name == "k-bert" else batch["attention_mask"].sum()
    assert int(counted) == rows["text"] + rows.get("image", 0)
    if name == "k-bert":
        assert int(streams["text"].fields["branch"].gt(0).sum()) > 0
    if name == "ernie-thu":
        assert int(batch["entity_labels"].ge(0).sum()) > 0
