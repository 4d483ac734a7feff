"""The training step of CLIP next to open_clip's: the same towers, the same batch, one process, one thread.

    pip install open_clip_torch
    python -m benchmarks.clip_step --rounds 5

Both make forward, contrast over the batch, backward and a fused AdamW's update in float32. The texts are of natural
lengths. Ours are jagged; theirs are padded to the context length: to 77, as CLIP is trained, and to the longest text
of the batch, as for a model of short texts. Rounds alternate (`benchmarks.rounds`). That all learn the same is
shown first: the losses of the first step from the same weights.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.rounds import compared
from vision.images.boxes import WHOLE, grid_boxes
from vision.images.transforms import NORMALISATIONS, standardise
from vision.interop.patch_names import ClassToken
from vision.objectives.itc import Itc
from vision.sequences.image_processors.patches import cut
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, Stream

VOCABULARY, CONTEXT = 49408, 77
LR = {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.2, "fused": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=4, help="of each tower")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--patch", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randint(0, 256, (options.batch, 3, options.size, options.size), dtype=torch.uint8)
    lengths = np.clip(np.random.default_rng(0).normal(13, 4, options.batch).round().astype(int), 5, CONTEXT).tolist()
    ids = [
        torch.cat(
            [torch.tensor([VOCABULARY - 2]), torch.randint(0, VOCABULARY - 2, (n - 2,)), torch.tensor([VOCABULARY - 1])]
        )
        for n in lengths
    ]
    theirs = open_clip(options, CONTEXT)
    steps = {"workbench": our_step(workbench(options, theirs), images, ids, options.patch)}
    for context in (max(lengths), CONTEXT):
        model = open_clip(options, context)
        cut = {"positional_embedding": theirs.positional_embedding[:context]}
        model.load_state_dict(theirs.state_dict() | cut)
        steps[f"open_clip, context {context}"] = their_step(model, images, ids, context)
    print("loss of the first step: " + ", ".join(f"{name} {step():.6f}" for name, step in steps.items()))
    seconds = compared(steps, options.rounds)
    for name, each in seconds.items():
        print(f"{name}: {options.batch / each:.2f} images/s, workbench / this {each / seconds['workbench']:.2f}")


def open_clip(options: argparse.Namespace, context: int) -> Any:
    model = importlib.import_module("open_clip.model")
    heads = options.width // 64
    vision = {
        "layers": options.layers,
        "width": options.width,
        "head_width": 64,
        "patch_size": options.patch,
        "image_size": options.size,
    }
    text = {
        "context_length": context,
        "vocab_size": VOCABULARY,
        "width": options.width,
        "heads": heads,
        "layers": options.layers,
    }
    return model.CLIP(options.width, model.CLIPVisionCfg(**vision), model.CLIPTextCfg(**text))


def workbench(options: argparse.Namespace, theirs: Any) -> torch.nn.Module:
    """Our two towers and the common space, with the weights of theirs."""
    block = {"layer": "self", "num_heads": options.width // 64, "norm_place": "pre", "norm_eps": 1e-5, "dropout": 0.0}
    block |= {"attention_dropout": 0.0, "repeat": options.layers}
    grid = options.size // options.patch
    plain = {"bias": False, "type_vector": False, "mask_vector": False, "norm": True, "normalisation": "clip"}
    streams: dict[str, Any] = {
        "text": {
            "embedding": "token",
            "hidden_size": options.width,
            "max_positions": CONTEXT,
            "token_types": 0,
            "norm": None,
        },
        "image": {
            "embedding": "vision.patches",
            "hidden_size": options.width,
            "grid": grid,
            "patch": options.patch,
            **plain,
        },
    }
    streams["text"]["dropout"] = 0.0
    spec = NetworkSpec(streams, [{**block, "stream": "text"}, {**block, "stream": "image"}])
    network = Network(spec, vocab_size=VOCABULARY)
    objective = Itc(options.width, pool_text="last", norm=True, same_image="negative")
    model = torch.nn.ModuleDict({"network": network, "itc": objective.head(network)})
    model.load_state_dict(
        {name: tensor.detach().clone() for name, tensor in converted(theirs.state_dict(), options.layers).items()}
    )
    return model


def converted(state: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Their weights under our names."""
    found = {
        "network.embeddings.text.token.weight": state["token_embedding.weight"],
        "network.embeddings.text.position.weight": state["positional_embedding"],
        "network.embeddings.image.project.weight": state["visual.conv1.weight"].flatten(1),
        "itc.space.projections.text.weight": state["text_projection"].t(),
        "itc.space.projections.image.weight": state["visual.proj"].t(),
        "itc.logit_scale": state["logit_scale"],
    }
    rule = ClassToken(
        ("visual.class_embedding", "visual.positional_embedding"), "network.embeddings.image", leading=False
    )
    found |= rule.read(state)
    norms = {
        "network.embeddings.image.norm": "visual.ln_pre",
        "itc.space.norms.image": "visual.ln_post",
        "itc.space.norms.text": "ln_final",
    }
    found |= {f"{ours}.{p}": state[f"{name}.{p}"] for ours, name in norms.items() for p in ("weight", "bias")}
    maps = {
        "attention.attention.output": "attn.out_proj",
        "attention.residual.norm": "ln_1",
        "feed_forward.residual.norm": "ln_2",
        "feed_forward.network.inner": "mlp.c_fc",
        "feed_forward.network.outer": "mlp.c_proj",
    }
    for first, tower in ((0, "transformer"), (layers, "visual.transformer")):
        for number in range(layers):
            here, there = f"network.layers.{first + number}", f"{tower}.resblocks.{number}"
            for p in ("weight", "bias"):
                found[f"{here}.attention.attention.qkv.{p}"] = state[f"{there}.attn.in_proj_{p}"]
                found |= {f"{here}.{ours}.{p}": state[f"{there}.{name}.{p}"] for ours, name in maps.items()}
    return found


def their_step(model: Any, images: Tensor, ids: list[Tensor], context: int) -> Callable[[], float]:
    loss_of = importlib.import_module("open_clip.loss").ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), **LR)
    mean, std = (torch.tensor(values) for values in NORMALISATIONS["clip"])
    texts = torch.zeros(len(ids), context, dtype=torch.long)
    for row, one in zip(texts, ids, strict=True):
        row[: len(one)] = one

    def step() -> float:
        image, text, scale = model(standardise(images, mean, std), texts)
        return stepped(loss_of(image, text, scale), optimizer)

    return step


def our_step(model: Any, images: Tensor, ids: list[Tensor], patch: int) -> Callable[[], float]:
    optimizer = torch.optim.AdamW(model.parameters(), **LR)
    cells = [cut(image, patch) for image in images]
    boxes = torch.cat([torch.tensor([WHOLE]), torch.from_numpy(grid_boxes(images.shape[-1] // patch))])
    patches = torch.cat([torch.cat([torch.zeros_like(rows[:1]), rows]) for rows in cells])
    lengths = [len(one) for one in ids]
    places = torch.cat([torch.arange(n) for n in lengths])
    streams = {
        "text": stream({"input_ids": torch.cat(ids), "position_ids": places, "rank": places}, lengths),
        "image": stream({"patches": patches, "boxes": boxes.repeat(len(images), 1)}, [len(boxes)] * len(images)),
    }

    def step() -> float:
        batch = Batch(streams)
        seen = HeadInputs.of(model["network"], batch, {"image": torch.arange(len(ids))})
        loss = model["itc"].loss(model["itc"].embed(seen), slice(None)).loss / len(ids)
        return stepped(loss, optimizer)

    return step


def stream(fields: dict[str, Tensor], lengths: list[int]) -> Stream:
    return Stream(fields, torch.tensor([0, *np.cumsum(lengths).tolist()]), lengths)


def stepped(loss: Tensor, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


if __name__ == "__main__":
    main()
