"""ViLT both ways: its library's states and heads on images of several shapes, from its weights and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.interop.worlds import model_of, photographs, recipe_file, tokenizer
from tests.vision.interop.test_vit_parity import shaken
from vision.images.boxes import WHOLE, cell_boxes
from vision.images.transforms import NORMALISATIONS, standardise
from vision.sequences.image_processors.patches import cut
from workbench.cli.export import export
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import PretrainedWeights, read_checkpoint_folder
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, Stream
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

CLOSE = {"atol": 1e-5, "rtol": 0.0}
PATCH, GRID = 8, 3
CONFIG = {
    "vocab_size": 30,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
    "image_size": GRID * PATCH,
    "patch_size": PATCH,
    "max_image_length": -1,
}
ANSWERS = [f"answer {number}" for number in range(5)]
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViltForMaskedLM": ("mlm", {"objective": "mlm", "head": {"transform": {"norm_eps": 1e-12}}}),
    "ViltForImageAndTextRetrieval": ("itm", {"objective": "vision.itm", "outputs": 1}),
    "ViltForQuestionAnswering": (
        "answers",
        {"objective": "vision.answers", "answers": ANSWERS, "norm_place": "before", "norm_eps": 1e-5},
    ),
}
LENGTHS, SHAPES = [9, 5, 7], [(3, 4), (2, 3), (3, 3)]
SUMMED = {"vilt.embeddings.cls_token", "vilt.embeddings.position_embeddings"}


class Both(NamedTuple):
    ours: Batch
    theirs: dict[str, Tensor]
    images: Tensor  # [sequences, rows], which of their rows are an image's
    texts: Tensor


@pytest.fixture(scope="module")
def given() -> Both:
    """Texts and images of several lengths and shapes, jagged and padded."""
    torch.manual_seed(3)
    ids = [torch.randint(5, 30, (length,)) for length in LENGTHS]
    cells = [torch.randint(0, 256, (3, PATCH * h, PATCH * w), dtype=torch.uint8) for h, w in SHAPES]
    high, wide = (PATCH * max(side) for side in zip(*SHAPES, strict=True))
    mean, std = (torch.tensor(values) for values in NORMALISATIONS["half"])
    pixels, mask = torch.zeros(3, 3, high, wide), torch.zeros(3, high, wide, dtype=torch.long)
    for i, image in enumerate(cells):
        pixels[i, :, : image.shape[1], : image.shape[2]] = standardise(image, mean, std)
        mask[i, : image.shape[1], : image.shape[2]] = 1
    padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    texts = nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
    patches = [torch.cat([torch.zeros(1, 3 * PATCH**2, dtype=torch.uint8), cut(image, PATCH)]) for image in cells]
    boxes = [torch.cat([torch.tensor([WHOLE]), torch.from_numpy(cell_boxes(*shape))]) for shape in SHAPES]
    text = {
        "input_ids": torch.cat(ids),
        "position_ids": torch.cat([torch.arange(length) for length in LENGTHS]),
        "token_type_ids": torch.zeros(sum(LENGTHS), dtype=torch.long),
    }
    streams = {
        "text": stream(text, LENGTHS),
        "image": stream({"patches": torch.cat(patches), "boxes": torch.cat(boxes)}, [len(rows) for rows in boxes]),
    }
    images = nn.utils.rnn.pad_sequence([torch.ones(len(rows)) for rows in boxes], batch_first=True).bool()
    theirs = {"input_ids": padded, "attention_mask": texts, "pixel_values": pixels, "pixel_mask": mask}
    return Both(Batch(streams), theirs, images, texts.bool())


def stream(fields: dict[str, Tensor], lengths: list[int]) -> Stream:
    return Stream(fields, torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()]), lengths)


def hugging_face(kind: str, folder: Path) -> Any:
    options = {"num_labels": len(ANSWERS)} if kind.endswith("Answering") else {}
    model = shaken(getattr(transformers, kind)(transformers.ViltConfig(**CONFIG, **options)))
    model.save_pretrained(folder)
    return model


def opened(folder: Path) -> tuple[PretrainedWeights, Network]:
    files = find_files(folder)
    assert files is not None
    read = read_checkpoint_folder(files)
    network = Network(read.network).eval()
    network.load_state_dict({name: read.tensors[name] for name in network.state_dict()})
    return read, network


@torch.no_grad()
def test_states_of_images_that_keep_their_shape(given: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code draws which rows of padding it keeps, and the order of the largest image's patches."""

    def in_order(weights: Tensor, count: int, replacement: bool = False) -> Tensor:
        return torch.arange(count) % len(weights)

    monkeypatch.setattr(torch, "multinomial", in_order)
    theirs = hugging_face("ViltModel", tmp_path)
    read, network = opened(tmp_path)
    assert read.unused == []
    wanted = theirs(**given.theirs)
    states = network(given.ours)
    length = given.texts.shape[1]
    torch.testing.assert_close(states["text"], wanted.last_hidden_state[:, :length][given.texts], **CLOSE)
    torch.testing.assert_close(states["image"], wanted.last_hidden_state[:, length:][given.images], **CLOSE)
    torch.testing.assert_close(network.pool(states, given.ours), wanted.pooler_output, **CLOSE)


@pytest.mark.parametrize("kind", HEADS)
@torch.no_grad()
def test_heads_both_ways(kind: str, given: Both, tmp_path: Path) -> None:
    name, spec = HEADS[kind]
    theirs = hugging_face(kind, tmp_path / "theirs")
    read, network = opened(tmp_path / "theirs")
    assert set(read.heads) == {name}
    assert read.unused == []
    words = Tokenizer.load(tokenizer(tmp_path / "tokenizer.json"))
    head: Any = build("objective", spec, "here", tokenizer=words).head(network).eval()
    own = {n.removeprefix(f"{name}."): tensor for n, tensor in read.tensors.items() if n.startswith(f"{name}.")}
    head.load_state_dict(own)
    states, wanted = network(given.ours), theirs(**given.theirs).logits
    if name == "mlm":
        wanted = wanted[given.texts]
        found = head.logits(network, states["text"])
    else:
        found = head.logits(network, states, given.ours)
        found = found[:, 1:] - found[:, :1] if name == "itm" else found
    torch.testing.assert_close(found, wanted, **CLOSE)
    made = exported_weights("vision.vilt", network, read.network, nn.ModuleDict({name: head}), {name: spec})
    assert made.config["architectures"] == [kind]
    assert made.left == []
    write_checkpoint_folder(tmp_path / "out", made)
    again = getattr(transformers, kind).from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(again(**given.theirs).logits, theirs(**given.theirs).logits, **CLOSE)


def test_by_a_recipe_into_a_run_and_by_the_command_back(tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    hugging_face("ViltForMaskedLM", tmp_path / "theirs")
    image = {"image_processor": "vision.aspect_patches", "shorter": 24, "longer": 40, "patch": PATCH, "class_row": True}
    task = {
        "corpora": [str(photographs(tmp_path / "photographs", 4, photo(0)))],
        "sequence": {"builder": "image_caption", "max_length": 16, "image_processor": image},
        "objectives": [{"objective": "mlm", "masking": "whole_word"}, {"objective": "vision.itm", "exchange": "image"}],
    }
    model = {**model_of("vision.vilt", CONFIG), "init_from": str(tmp_path / "theirs")}
    words = str(tokenizer(tmp_path / "tokenizer.json"))
    run = pretrain(load_recipe(str(recipe_file(tmp_path / "r.yaml", model, task, tokenizer=words))), tmp_path / "run")
    with pytest.raises(WorkbenchError, match="outputs = 2 here, 1 there"):
        export(run, tmp_path / "out", "vision.vilt")
    task["objectives"] = task["objectives"][:1]
    run = pretrain(load_recipe(str(recipe_file(tmp_path / "r.yaml", model, task, tokenizer=words))), tmp_path / "words")
    export(run, tmp_path / "out", "vision.vilt")
    written, original = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "theirs"))
    assert all(torch.equal(written[name], original[name]) for name in original.keys() - SUMMED)
