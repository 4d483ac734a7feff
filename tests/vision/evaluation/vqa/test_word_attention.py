"""Where a word looks: the rows of the right streams and the right sequence, normalised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vision.evaluation.vqa.word_attention import _lit, attention_to_regions, draw_attention
from vision.images.boxes import grid_boxes
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields

SIZE = 8


def sequence(words: int, regions: int, seed: int) -> Sequence:
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(size=(regions, 4)).astype(np.float32)
    patches = rng.integers(0, 256, (regions, 12), dtype=np.uint8)
    streams = {"text": text_fields(rng.integers(0, 20, words)), "image": {"patches": patches, "boxes": boxes}}
    return Sequence(streams, draw=(seed,))


def network(*layers: dict[str, object]) -> Network:
    torch.manual_seed(0)
    return Network(spec(*layers))


def spec(*layers: dict[str, object]) -> NetworkSpec:
    text = {"embedding": "token", "vocab_size": 20, "hidden_size": SIZE, "max_positions": 16}
    image = {
        "embedding": "vision.patches",
        "hidden_size": SIZE,
        "grid": 4,
        "patch": 2,
    }
    return NetworkSpec({"text": text, "image": image}, [dict(layer) for layer in layers])


JOINT = {"layer": "joint", "streams": ["text", "image"], "num_heads": 2}


def test_attention_of_a_sequence_in_a_batch_equals_that_of_the_sequence_alone() -> None:
    model = network(JOINT, JOINT).train()
    sequences = [sequence(3, 5, 0), sequence(6, 4, 1), sequence(2, 9, 2)]
    batch = collate(sequences)
    for number, one in enumerate(sequences):
        found = attention_to_regions(model, batch, number)
        assert found.shape == (one.length("text"), one.length("image"))
        np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(found, attention_to_regions(model, collate([one]), 0), atol=1e-6)
    assert model.training


def test_the_last_layers_alone() -> None:
    model = network(JOINT, JOINT)
    batch = collate([sequence(3, 5, 0)])
    every, last = attention_to_regions(model, batch, 0), attention_to_regions(model, batch, 0, layers=1)
    assert not np.allclose(every, last)


def test_a_network_that_never_mixes_is_refused() -> None:
    model = network({"layer": "self", "stream": "text", "num_heads": 2})
    with pytest.raises(WorkbenchError, match="lets text attend to the image: it attends to itself alone"):
        attention_to_regions(model, collate([sequence(3, 5, 0)]), 0)


QUERIES = {"captioning": {"embedding": "queries", "hidden_size": SIZE, "count": 4}}
CROSS = {"layer": "cross", "stream": "text", "to": "captioning", "num_heads": 2}
POOL = {"layer": "vision.attention_pool", "stream": "captioning", "to": "image", "num_heads": 2}


def pooled(*lengths: tuple[int, int]) -> list[Sequence]:
    made = [sequence(words, regions, seed) for seed, (words, regions) in enumerate(lengths)]
    for one in made:
        one.streams["captioning"] = {"input_ids": np.arange(4)}
    return made


def test_text_that_reads_what_has_not_read_the_image_is_reported_so() -> None:
    """As in CoCa, which has a cross layer, over another stream than the image's."""
    model = Network(NetworkSpec({**spec().streams, **QUERIES}, [CROSS, POOL]))
    with pytest.raises(WorkbenchError, match="to captioning, whose rows have not read the image"):
        attention_to_regions(model, collate(pooled((3, 5))), 0)


@torch.no_grad()
def test_attention_goes_through_what_was_pooled_of_the_image() -> None:
    """CoCa: what the words read of the queries, times what the queries have read of the image."""
    model = Network(NetworkSpec({**spec().streams, **QUERIES}, [POOL, CROSS, CROSS])).eval()
    batch = collate(pooled((3, 5), (2, 4)))
    context = Context(batch, keep_attention=True)
    model(batch, context)
    pool, *texts = (call.weights[1].mean(0).numpy() for call in context.attention if call.keys[0] != "text")
    found, last = (attention_to_regions(model, batch, 1, layers=layers) for layers in (None, 1))
    wanted = [np.zeros((2, 4)), np.zeros((2, 4))]
    for number, weights in enumerate(texts):
        for word, query, patch in np.ndindex(2, 4, 4):
            wanted[number][word, patch] += weights[word, query] * pool[query, patch]
    np.testing.assert_allclose(found, (wanted[0] + wanted[1]) / 2, atol=1e-6)
    np.testing.assert_allclose(last, wanted[1], atol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [3, 0]])
@torch.no_grad()
def test_a_projected_row_stands_for_its_own(rows: list[int]) -> None:
    """BLIP-2: queries that have read the image are projected. LLaVA: rows of the image are."""
    streams = {**spec().streams, **QUERIES, "projected": {"embedding": "vision.projected", "hidden_size": SIZE}}
    cross = {**CROSS, "to": "projected"}
    for of, reads in (("captioning", [POOL]), ("image", [])):
        project = {"layer": "vision.projector", "stream": "projected", "to": of}
        model = Network(NetworkSpec(streams, [*reads, project, cross])).eval()
        sequences = pooled((3, 5), (2, 4))
        for one in sequences:
            one.streams["projected"] = {"input_ids": np.arange(len(rows)), "of": Rows(of, np.array(rows), bound=True)}
        batch = collate(sequences)
        context = Context(batch, keep_attention=True)
        model(batch, context)
        *pools, _, words = (call.weights[1].mean(0).numpy() for call in context.attention)
        read = pools[0] if reads else np.eye(4)
        np.testing.assert_allclose(attention_to_regions(model, batch, 1), words @ read[rows], atol=1e-6)


def test_the_image_shows_the_image_under_every_word(tmp_path: Path) -> None:
    boxes = np.asarray([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], np.float32)
    red = Image.new("RGB", (16, 16), "red")
    path = draw_attention(tmp_path, "attention", red, boxes, ["one", "two"], np.asarray([[1.0, 0.0], [0.0, 1.0]]))
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    lit = (pixels[..., 0] > 180) & (pixels[..., 1] < 110) & (pixels[..., 1] > 20)
    third = pixels.shape[1] // 3  # the image itself stands first
    assert not lit[:, : third - 10].any()
    assert lit[:, third : 2 * third].mean() > 0.1
    assert lit[:, 2 * third :].mean() > 0.1


def test_cells_that_do_not_divide_the_image_share_no_pixel() -> None:
    white = np.full((64, 64, 3), 255, np.uint8)
    even = _lit(white, grid_boxes(3), np.full(9, 1 / 9))
    assert (even == even[0, 0]).all()
    one = _lit(white, grid_boxes(3), np.eye(9)[4])
    assert (one[21:43, 21:43] != even[0, 0]).any(-1).all()
    assert (one != even).any(-1).sum() == 22 * 22
