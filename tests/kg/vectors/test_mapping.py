"""Entity vectors mapped into the space of a model's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.vectors.mapping import TABLE, fit, whole_words, words_of
from kg.vectors.options import ImportOptions
from kg.vectors.pretrained_vectors import import_vectors
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from tests.interop.worlds import WORDS, recipe_file, text_task, texts, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.interop.run_or_checkpoint import load
from workbench.interop.weight_sources import read_weight_source
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import InitFrom
from workbench.training.pretrain import pretrain

SIZE, WIDTH = 3, 8
RNG = np.random.default_rng(0)
MAP = RNG.normal(size=(WIDTH, SIZE))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "intermediate_size": 12}
    text = {"embedding": "token", "hidden_size": WIDTH, "max_positions": 20}
    tree = {"streams": {"text": text}, "layers": [layer]}
    words = str(tokenizer(folder / "tokenizer.json"))
    recipe = recipe_file(folder / "own.yaml", tree, text_task(texts(folder / "texts"), "mlm"), tokenizer=words)
    return pretrain(load_recipe(str(recipe)), folder / "run")


def vectors(folder: Path, model: Path, noise: float = 0.0) -> tuple[Path, np.ndarray, np.ndarray]:
    """A word2vec file: words whose vectors are a linear map of the model's, and two entities; x and y of the words."""
    source = read_weight_source(InitFrom(str(model)))
    assert source.vocabulary is not None
    y = source.tensors[TABLE].numpy()[[source.vocabulary[word] for word in WORDS]].astype(np.float64)
    x = (y @ MAP + noise * np.random.default_rng(1).normal(size=(len(WORDS), SIZE))).astype(np.float32)
    rows = [*zip(WORDS, x, strict=True), ("[MASK]", np.ones(SIZE)), ("unheard", np.ones(SIZE))]
    rows += [("ENTITY/Q1", np.array([1, 0, 2], np.float32)), ("ENTITY/Small_town", np.array([0, 1, 0], np.float32))]
    lines = [f"{len(rows)} {SIZE}", *(f"{key} {' '.join(map(str, vector.tolist()))}" for key, vector in rows)]
    (folder / "vectors.txt").write_text("\n".join(lines) + "\n")
    return folder / "vectors.txt", x.astype(np.float64), y


def test_the_map_is_that_of_the_normal_equations(tmp_path: Path, model: Path) -> None:
    """W = (X'X)^-1 X'Y over the words that both know, and an entity becomes x W."""
    place, x, y = vectors(tmp_path, model, noise=0.01)
    texts = [{"id": "Q2", "label": "Small town"}]
    store = GraphStore.build([("Q1", "P1", "Q2")], tmp_path / "graph", entity_texts=texts)
    made = import_vectors(store, place, tmp_path / "mapped.safetensors", ImportOptions(map_to=model))
    weight = np.linalg.inv(x.T @ x) @ x.T @ y
    found = load_vectors(tmp_path / "mapped.safetensors")
    assert list(found.ids) == ["Q1", "Q2"]
    wanted = torch.from_numpy(np.array([[1.0, 0, 2], [0, 1, 0]]) @ weight).float()
    torch.testing.assert_close(found.vectors, wanted, atol=1e-5, rtol=1e-5)
    assert found.relations.shape == (0, WIDTH)
    reported = made.provenance["mapped"]
    assert reported["words"] == len(WORDS)
    residual = 1 - np.square(x @ weight - y).sum() / np.square(y - y.mean(0)).sum()
    assert reported["explained"] == pytest.approx(residual)
    assert str(model) in str(reported["to"])


def test_too_few_words_in_common_are_refused(tmp_path: Path, model: Path) -> None:
    rows: list[Any] = [("The", np.ones(2)), ("river", np.ones(2)), ("##er", np.ones(2))]
    with pytest.raises(WorkbenchError, match=r"have 1 words in common, where vectors of 2 numbers need as many"):
        fit(rows, words_of(model), tmp_path / "vectors.txt")


def test_words_are_spelt_whole_whatever_the_tokenizer() -> None:
    pieces = {"[CLS]": 0, "town": 1, "##s": 2, "[": 3, "<s>": 4}
    assert whole_words(pieces) == {"town": 1, "[": 3}
    assert whole_words({"<s>": 0, "town": 1, "\u0120town": 2, "\u0120a": 3}) == {"town": 2, "a": 3}
    assert whole_words({"\u2581town": 0, "s": 1}) == {"town": 0}


def test_a_model_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="there is no such file or folder"):
        words_of(tmp_path / "nothing")


def test_a_run_takes_the_vectors_of_its_start_alone(tmp_path: Path, model: Path) -> None:
    """Mapped for the weights that it starts from, or trained on from these; unmapped ones for fresh weights alone."""
    place, _, _ = vectors(tmp_path, model)
    store = GraphStore.build([("Q1", "P1", "Q2")], tmp_path / "graph")
    mapped, bare = tmp_path / "mapped.safetensors", tmp_path / "bare.safetensors"
    import_vectors(store, place, mapped, ImportOptions(map_to=model))
    save_vectors(GraphVectors(["Q1"], torch.zeros(1, WIDTH), ["P1"], torch.zeros(1, WIDTH)), bare)

    def trained(name: str, file: Path, start: Path | None) -> Path:
        text = {"embedding": "kg.word_or_entity", "path": str(file), "hidden_size": WIDTH, "max_positions": 20}
        layer = {"layer": "self", "stream": "text", "num_heads": 2, "intermediate_size": 12}
        tree: dict[str, Any] = {"streams": {"text": text}, "layers": [layer]}
        tree |= {"init_from": str(start)} if start else {"init_range": 0.1}
        words = str(tokenizer(tmp_path / "tokenizer.json"))
        task = text_task(texts(tmp_path / "texts"), "mlm")
        return pretrain(
            load_recipe(str(recipe_file(tmp_path / "e.yaml", tree, task, tokenizer=words))), tmp_path / name
        )

    first = trained("first", mapped, model)
    trained("second", mapped, first)
    load(first)
    trained("fresh", bare, None)
    for name, file, start, reported in (
        ("a", mapped, None, "made for the weights run .* those here are fresh ones"),
        ("b", bare, model, "made for no model's weights, and those here are .*run"),
        ("c", mapped, tmp_path / "fresh", "made for the weights run"),
    ):
        with pytest.raises(WorkbenchError, match=reported):
            trained(name, file, start)
        assert not (tmp_path / name).exists()
    changes = ["model.streams.text.embedding=kg.word_or_entity", f"model.streams.text.path={mapped}"]
    load(model, changes)
    changes[1] = f"model.streams.text.path={bare}"
    with pytest.raises(WorkbenchError, match="made for no model's weights"):
        load(model, changes)
