"""The knowledge recipes read what the commands of the documentation write, where these write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.demo.small_files import write_graph, write_texts
from tests.preparing import app
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.reading import load_recipe
from workbench.training.data import first_batches

COMMANDS = (
    "triples graph.tsv --entities entities.jsonl --relations relations.jsonl --output corpora/graph --workers 1",
    "text notes.txt --output corpora/notes --workers 1",
    "link corpora/notes --graph corpora/graph --output corpora/wiki-linked --workers 1",
    "tokenizer corpora/notes corpora/graph --output corpora/tokenizer.json --vocab-size 400",
    "vectors corpora/graph --output corpora/entities.safetensors --epochs 1",
    "vectors corpora/graph --shuffled --output corpora/entities-shuffled.safetensors --epochs 1",
)
SMALL = ["train.global_batch_size=4", "train.micro_batch_size=4", "train.num_workers=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpora that the commands write, from the small raw files."""
    pytest.importorskip("pykeen")
    folder = tmp_path_factory.mktemp("layout")
    write_texts(folder)
    write_graph(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS:
            done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
            assert done.exit_code == 0, f"{command}: {done.output}"
    return folder


@pytest.mark.parametrize("name", ["k-bert", "ernie-thu", "tiny-knowledge"])
@pytest.mark.parametrize("control", [[], ["control=shuffled-kg"]], ids=["plain", "shuffled"])
def test_a_recipe_opens_what_the_commands_write(
    name: str, control: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    recipe = load_recipe(name, [*SMALL, *control])
    tokenizer, _, batches = first_batches(recipe)
    assert all(batch.counts["mlm"] for batch in batches.values())
    streams = [view.streams for batch in batches.values() for view in batch.views.values()]
    linked = [
        view["entity"].fields["entity_ids"] if "entity" in view else view["text"].fields["branch"] for view in streams
    ]
    assert all(rows.any() for rows in linked), "no knowledge came in"
    for spec in recipe.networks.values():
        del spec.layers[1:]
    make_model(recipe, tasks_of(recipe, tokenizer), tokenizer)
