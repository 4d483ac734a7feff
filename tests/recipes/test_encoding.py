"""`workbench encode`: vectors of lines, of a corpus and of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from tests.loaded_runs import encode_texts
from workbench.cli.encoding import encode
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.encoding import Encoder
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

LINES = ["Oslo lies in Norway.", "They like the river.", "Oslo lies in Norway."]


@pytest.fixture(scope="module")
def runs(world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    once = ["train.max_steps=1", "train.num_workers=0", f"tokenizer={world.tokenizer}"]
    found = {}
    for name, corpus, task in (("tiny-text", world.text, "text"), ("tiny-joint", world.images, "pairs")):
        recipe = load_recipe(name)
        task = next(iter(recipe.tasks))
        overrides = [*once, f"tasks.{task}.corpora=['{corpus}']", f"tasks.{task}.held_out=[]"]
        found[name] = pretrain(load_recipe(name, overrides), folder / name)
    return found


def test_equal_texts_have_equal_vectors_whatever_the_batch(runs: dict[str, Path]) -> None:
    loaded = load(runs["tiny-text"])
    together = encode_texts(loaded, LINES)
    alone = torch.cat([encode_texts(loaded, [line]) for line in LINES])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[0], together[2], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


def test_the_summary_is_the_state_of_cls(runs: dict[str, Path]) -> None:
    loaded = load(runs["tiny-text"])
    encoder = Encoder(loaded, "text", "summary")
    keys, vectors = encoder(iter([[{"key": "a", "draw": (0, 0, 0), "text": LINES[0]}]]), built=False)
    sequences = encoder._texts([{"key": "a", "draw": (0, 0, 0), "text": LINES[0]}], ())
    from workbench.sequences.batch import collate

    states = loaded.model.network()(collate(sequences))
    assert keys == ["a"]
    torch.testing.assert_close(vectors[0], states["text"][0].detach(), atol=1e-5, rtol=1e-5)


def test_a_file_and_the_images_of_a_corpus(runs: dict[str, Path], world: Any, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    encode(runs["tiny-text"], tmp_path / "lines.txt", tmp_path / "text.safetensors")
    with safe_open(tmp_path / "text.safetensors", "pt") as file:
        assert file.get_tensor("vectors").shape[0] == len(LINES)
        assert json.loads(file.metadata()["keys"]) == ["1", "2", "3"]
    encode(runs["tiny-joint"], world.images, tmp_path / "images.safetensors", stream="image", limit=5)
    with safe_open(tmp_path / "images.safetensors", "pt") as file:
        vectors = file.get_tensor("vectors")
    assert len(vectors) == 5
    assert bool(torch.isfinite(vectors).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stream": "imgae"}, "unknown stream 'imgae'"),
        ({"pool": "maen"}, "unknown pooling 'maen'.*'mean'"),
        ({"source": "nowhere"}, "nowhere: .*INPUT is a text file or a corpus"),
    ],
)
def test_wrong_inputs(runs: dict[str, Path], tmp_path: Path, change: dict[str, str], message: str) -> None:
    (tmp_path / "lines.txt").write_text(LINES[0])
    source = tmp_path / change.pop("source", "lines.txt")
    with pytest.raises(WorkbenchError, match=message):
        encode(runs["tiny-text"], source, tmp_path / "out.safetensors", **change)
    assert not (tmp_path / "out.safetensors").exists()


def test_help_has_examples() -> None:
    import typer

    app = typer.Typer()
    app.command()(encode)
    assert "workbench encode runs/bert" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.long
def test_units_on_two_processes_give_the_same_vectors(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(f"{LINES[i % 3]} {i}" for i in range(40)))
    for workers in (1, 2):
        output = tmp_path / f"{workers}.safetensors"
        encode(runs["tiny-text"], tmp_path / "lines.txt", output, batch_size=2, workers=workers)
    with safe_open(tmp_path / "1.safetensors", "pt") as one, safe_open(tmp_path / "2.safetensors", "pt") as two:
        assert one.metadata() == two.metadata()
        assert torch.equal(one.get_tensor("vectors"), two.get_tensor("vectors"))
        assert len(json.loads(two.metadata()["keys"])) == 40
