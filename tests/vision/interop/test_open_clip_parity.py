"""open_clip's CoCa both ways: its features, logits and losses, from its weights by a recipe, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.interop.worlds import model_of, photographs, recipe_file
from tests.text.test_clip_tokenizer import clip_tokenizer
from tests.vision.interop.test_clip_parity import batch_of, pixels
from vision.interop.families.open_clip_coca import OpenClipCoca
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_writer import exported_weights
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import differences, model_description
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.pretraining.forward import HeadInputs, read
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

CLOSE = {"atol": 1e-5, "rtol": 0.0}
GRID, PATCH, LENGTH, QUERIES, WIDTH = 3, 8, 21, 5, 24
open_clip = pytest.importorskip("open_clip", reason="pip install open_clip_torch")


class World(NamedTuple):
    run: Path
    theirs: Any
    folder: Path


def config_of(words: int, width: int) -> dict[str, Any]:
    context = {"context_length": LENGTH, "vocab_size": words, "width": WIDTH, "heads": 3, "layers": 2}
    vision = {"image_size": GRID * PATCH, "patch_size": PATCH, "width": width, "layers": 3, "head_width": 8}
    pool = {"attentional_pool": True, "attn_pooler_heads": 2, "attn_pooler_queries": QUERIES, "output_tokens": True}
    text = {**context, "embed_cls": True, "output_tokens": True}
    return {"embed_dim": WIDTH, "vision_cfg": {**vision, **pool}, "text_cfg": text, "multimodal_cfg": context}


def released(folder: Path, width: int) -> Any:
    """A model with random weights, none of them at its usual start, as open_clip writes it."""
    clip_tokenizer(folder)
    config = config_of(len(json.loads((folder / "vocab.json").read_text("utf-8"))), width)
    torch.manual_seed(0)
    model = open_clip.CoCa(**config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    save_file({n: t.contiguous() for n, t in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    written = {"model_cfg": {**config, "custom_text": True}, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(written))
    return model


@pytest.fixture(scope="module", params=[32, WIDTH], ids=["wider images", "one width"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, photo: Callable[[int], bytes]
) -> World:
    folder = tmp_path_factory.mktemp("coca")
    theirs = released(folder / "theirs", request.param)
    config = json.loads((folder / "theirs" / "open_clip_config.json").read_text())
    image = {"image_processor": "vision.patches", "size": GRID * PATCH, "patch": PATCH, "class_row": True}
    transforms = [
        {"transform": "vision.text_class", "length": LENGTH},
        {"transform": "queries", "stream": "captioning", "count": QUERIES, "unread": 1},
    ]
    ends = {"begin": "bos", "end": "eos", "visibility": "causal"}
    heads = OpenClipCoca().heads(FamilyConfig(config))
    task = {
        "corpora": [str(photographs(folder / "photographs", 4, photo(0)))],
        "sequence": {
            "builder": "image_caption",
            "max_length": LENGTH,
            "image_processor": image,
            "transforms": transforms,
            **ends,
        },
        "objectives": [heads["clm"], {**heads["itc"], "same_image": "negative"}],
    }
    model = {**model_of("vision.open_clip_coca", config), "init_from": str(folder / "theirs")}
    recipe = recipe_file(folder / "recipe.yaml", model, task, tokenizer=str(folder / "theirs"))
    return World(pretrain(load_recipe(str(recipe)), folder / "run"), theirs, folder)


def padded(rows: Tensor, offsets: Tensor) -> Tensor:
    """Ids of texts, filled up with 0 to the context."""
    texts = [rows[a:b] for a, b in pairwise(offsets.tolist())]
    filled = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    for row, text in zip(filled, texts, strict=True):
        row[: len(text)] = text
    return filled


@torch.no_grad()
def test_features_logits_and_losses(world: World) -> None:
    loaded = load(world.run)
    batch, network, heads = batch_of(loaded), loaded.model.network(), loaded.model.heads
    text = batch.streams["text"]
    lengths = set(text.offsets.diff().tolist())
    assert LENGTH in lengths, "a text that fills the context, whose class token sees itself"
    assert len(lengths) > 1, "and shorter ones, whose class token sees a row of padding"
    ids = padded(text.fields["input_ids"], text.offsets)
    images = pixels(batch.streams["image"].fields["patches"], batch.size)
    theirs = world.theirs(images, ids)
    made = read(network, batch)
    embedded = heads["itc"].embed(HeadInputs.of_read(made, batch.targets["itc"]))
    torch.testing.assert_close(embedded["image"], theirs["image_features"], **CLOSE)
    torch.testing.assert_close(embedded["text"], theirs["text_features"], **CLOSE)
    clm = batch.targets["clm"]
    logits = heads["clm"].logits(network, made.states["text"][clm["rows"]])
    counted = theirs["labels"] != 0
    torch.testing.assert_close(logits, theirs["logits"][counted], **CLOSE)
    assert torch.equal(clm["labels"], theirs["labels"][counted])
    loss = open_clip.CoCaLoss(caption_loss_weight=2.0, clip_loss_weight=1.0)
    contrast, caption = loss(**theirs)
    ours = heads["itc"].loss(embedded, slice(None)).loss / batch.size
    torch.testing.assert_close(ours, contrast, **CLOSE)
    words = heads["clm"](HeadInputs.of_read(made, clm)).loss / len(clm["rows"])
    torch.testing.assert_close(2 * words, caption, **CLOSE)


@torch.no_grad()
def test_it_goes_out_and_computes_the_same_there(world: World) -> None:
    export(world.run, world.folder / "out", "vision.open_clip_coca")
    written, original = load_file(world.folder / "out" / "model.safetensors"), world.theirs.state_dict()
    assert written.keys() == original.keys()
    summed = {"visual.class_embedding", "visual.positional_embedding", "text.cls_emb", "text.positional_embedding"}
    assert all(torch.equal(written[name], original[name]) for name in written.keys() - summed)
    config = json.loads((world.folder / "out" / "config.json").read_text())["model_cfg"]
    again = open_clip.CoCa(**{name: value for name, value in config.items() if name != "custom_text"}).eval()
    again.load_state_dict(written)
    batch = batch_of(load(world.run))
    ids = padded(batch.streams["text"].fields["input_ids"], batch.streams["text"].offsets)
    images = pixels(batch.streams["image"].fields["patches"], batch.size)
    one, other = (model(images, ids) for model in (world.theirs, again))
    for name in ("image_features", "text_features", "logits"):
        torch.testing.assert_close(other[name], one[name], **CLOSE)


@pytest.mark.parametrize(("name", "message"), [("coca", "it lacks joint layers"), ("clip", "it lacks 'captioning'")])
def test_another_stack_is_not_exported(name: str, message: str) -> None:
    spec = load_recipe(name).networks["main"]
    with torch.device("meta"):
        network = Network(spec, vocab_size=40)
    with pytest.raises(WorkbenchError, match=message):
        exported_weights("vision.open_clip_coca", network, spec, torch.nn.ModuleDict(), {}, vocab_size=40)


def test_the_recipe_is_the_published_configuration() -> None:
    """Of the network and of both heads, and as many parameters."""
    place = Path(open_clip.__file__).parent / "model_configs" / "coca_ViT-B-32.json"
    config = FamilyConfig(json.loads(place.read_text()))
    recipe, family = load_recipe("coca-open-clip"), OpenClipCoca()
    heads = {spec["objective"].rpartition(".")[2]: spec for spec in recipe.tasks["pairs"].objectives}
    ours = model_description(recipe.networks["main"], heads, vocab_size=config["text_cfg"]["vocab_size"])
    theirs = model_description(family.network(config), family.heads(config))
    assert ours.heads.keys() == theirs.heads.keys()
    assert differences(ours, theirs, family.free) == []
    with torch.device("meta"):
        model = open_clip.CoCa(**{name: value for name, value in config.items() if name != "custom_text"})
        [network] = build_networks(recipe, vocab_size=config["text_cfg"]["vocab_size"]).values()
    of_heads = [
        name for rule in family.rules(config) if rule.ours[0].startswith(("itc.", "clm.")) for name in rule.theirs
    ]
    shapes = dict(model.named_parameters())
    body = sum(p.numel() for n, p in shapes.items() if n not in of_heads)
    positions = shapes["visual.class_embedding"].numel() + shapes["text.cls_emb"].numel()  # one with a vector here
    assert body - positions == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("vision_cfg", {"attentional_pool": False}, r"vision_cfg.attentional_pool = False; allowed: True"),
        ("text_cfg", {"hf_model_name": "roberta-base"}, r"text_cfg.hf_model_name = 'roberta-base'"),
        ("multimodal_cfg", {"width": 48}, "must be equal widths"),
    ],
)
def test_what_ours_does_not_have_is_refused(part: str, changes: dict[str, Any], message: str) -> None:
    config = config_of(40, 32)
    with pytest.raises(WorkbenchError, match=message):
        OpenClipCoca().network(FamilyConfig({**config, part: {**config[part], **changes}}))
