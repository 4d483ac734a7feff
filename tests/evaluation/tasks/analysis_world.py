"""Tiny runs for the tests of analyses: of random weights, with layers that mix words, and what they are scored on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.contracts.cases import World
from tests.evaluation.conftest import make_texts, network, prepare, recipe_tree
from workbench.corpora.corpus import Corpus
from workbench.pretraining.forward import read
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

COLOURS, THINGS, STATES = ("red", "green", "blue"), ("house", "boat"), ("old", "new", "lost")


def rows() -> list[dict[str, Any]]:
    """Texts whose words are tagged; `is` has the colour that stands before it, so that its tag is in its context."""
    made = []
    for state in STATES:
        for colour in COLOURS:
            for thing in THINGS:
                text = f"the {colour} {thing} is {state} ."
                verb = text.index(" is ") + 1
                tags = [[4, 4 + len(colour), "colour"], [verb, verb + 2, f"verb-{colour}"]]
                arcs = [
                    [4, 4 + len(colour), 1 + len(colour), "amod"],
                    [5 + len(colour), verb - 1, verb - 5 - len(colour), "nsubj"],
                    [verb, verb + 2, 0, "root"],
                    [verb + 3, verb + 3 + len(state), -3, "acomp"],
                ]
                made.append({"text": text, "tags": tags, "dependencies": arcs})
    return made


def mixing_run(texts: Path, output: Path, layers: int = 2, scale: float = 0.3, seed: int = 0) -> Path:
    """A run of random weights of this scale, on what `make_texts` wrote."""
    model = network(16)
    model["layers"][0] |= {"repeat": layers}
    tree = recipe_tree(texts, {**model, "init_range": scale}, [{"objective": "mlm"}])
    return pretrain(recipe_from_dict({**tree, "seed": seed}), output)


def analysis_world(folder: Path, **options: Any) -> World:
    """A run and a corpus with tags; a place without a run."""
    run = mixing_run(make_texts(folder), folder / "run")
    return World(run, prepare(folder, "tagged", rows()), folder / "absent", options)


def words_by_layer(run: Path, corpus: Corpus) -> dict[tuple[str, str], np.ndarray]:
    """The states [layers + 1, hidden_size] of each word of each record, read alone. The words are single tokens here,
    and no text has one twice."""
    loaded, found = load(run), {}
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    for number, sample in enumerate(corpus):
        batch = collate(loaded.tasks["text"].sequences([{**sample, "draw": (0, number)}]))
        hidden = read(loaded.model.network(), batch, keep_hidden=True).hidden
        tokens = tokenizer.tokens(batch.streams["text"].fields["input_ids"].tolist())
        for row, token in enumerate(tokens):
            found[str(sample["key"]), token] = np.stack([states["text"][row].detach().numpy() for states in hidden])
    return found
