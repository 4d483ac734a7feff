"""VOLTA's architectures on small random weights: ours return the same numbers.

What is compared is all that stands in `outputs.safetensors`; a name that nothing here makes fails.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from vision.interop.families.volta import TARGETS, Volta
from vision.interop.volta_sublayers import read
from vision.objectives.itm import ItmHead
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.interop.family import FamilyConfig
from workbench.models.blocks import AttentionBlock, FeedForwardBlock
from workbench.models.network import Network
from workbench.objectives.mlm import MlmHead
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.sequences.batch import Batch

CLOSE = {"atol": 1e-5, "rtol": 0}
CONTROLLED = tuple(f"ctrl_{name}" for name in ("uniter", "visualbert", "lxmert", "vilbert", "vl-bert"))
FOLDERS = (*CONTROLLED, "original_lxmert", "original_vilbert", "original_vl-bert")
BOTH = ("text", "image")
Jagged = Callable[..., Batch]


class Golden:
    """A folder, its weights in our network, and what that makes of its inputs.

    In VL-BERT words get the last row of the padded image. There the rows of padding are rows of ours too, of a
    document of their own (`doc`), so that no other row sees them.
    """

    def __init__(self, folder: Path, jagged: Jagged, as_released: bool = False) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.inputs = load_file(folder / "inputs.safetensors")
        files = find_files(folder)
        assert files is not None
        self.read = read_checkpoint_folder(files)
        assert (self.read.unused, self.read.missing) == ([], [])
        self.network = Network(self.read.network).eval()
        own = self.network.state_dict().keys()
        self.network.load_state_dict({name: tensor for name, tensor in self.read.tensors.items() if name in own})
        self.elements = self.config["image_embeddings"] == "vl-bert"
        self.real = {"text": self.inputs["attention_mask"].bool(), "image": self.inputs["image_attention_mask"].bool()}
        self.given = {**self.real, "image": torch.ones_like(self.real["image"])} if self.elements else self.real
        self.batch = jagged(
            text=(self.given["text"], self._words(as_released)), image=(self.given["image"], self._rows())
        )
        self.forward: ForwardPass
        self.found: dict[str, Tensor] = {}

    def _words(self, as_released: bool) -> dict[str, Tensor]:
        ids = self.inputs["input_ids"]
        places = torch.arange(ids.shape[1]).expand_as(ids)
        if (
            as_released
        ):  # one row of positions for the batch, which continues behind the images from the shortest text on
            shortest, rows = self.real["text"].sum(1).min(), self.inputs["image_feat"].shape[1]
            places = torch.where(places < shortest, places, places + rows)
        return {"input_ids": ids, "token_type_ids": self.inputs["token_type_ids"], "position_ids": places}

    def _rows(self) -> dict[str, Tensor]:
        features = self.inputs["image_feat"]
        fields = {"features": features, "boxes": self.inputs["image_loc"][..., :4]}
        if not self.elements:
            return fields
        last = torch.arange(features.shape[1]) == features.shape[1] - 1
        behind = self.real["text"].sum(1)[:, None] + last
        hidden = (features == 0).all(-1)  # their sign for a hidden region, and of padding
        return {**fields, "masked": hidden, "position_ids": behind, "doc": (~self.real["image"]).long()}

    def rows(self, stream: str, rows: Tensor) -> Tensor:
        """Rows of ours without padding, like `wanted` for padded arrays."""
        padded = rows.new_zeros(*self.given[stream].shape, *rows.shape[1:])
        padded[self.given[stream]] = rows
        return padded[self.real[stream]]

    def head(self, name: str, **options: Any) -> Any:
        if name == "mlm":  # as an objective it hides words, which takes a tokenizer
            assert self.read.heads[name]["head"]["transform"] == {"activation": "gelu", "norm_eps": 1e-12}
            head = MlmHead(self.network).eval()
        else:
            head = build("objective", {**self.read.heads[name], **options}, name).head(self.network).eval()
        head.load_state_dict({n.partition(".")[2]: t for n, t in self.read.tensors.items() if n.startswith(f"{name}.")})
        return head

    def loss(self, name: str, head: Any, **targets: Tensor) -> Tensor:
        """The sum over what is labelled."""
        output = head(HeadInputs(self.forward, ViewKey("main", "main"), targets, name))
        self.forward.outputs[name] = output.outputs
        return output.loss


@pytest.mark.parametrize(("name", "as_released"), [
    *((name, False) for name in FOLDERS),
    ("ctrl_vl-bert", True),
    ("original_vl-bert", True),
])  # fmt: skip
@torch.no_grad()
def test_all_numbers_are_those_of_the_release(name: str, as_released: bool, shared: Path, jagged: Jagged) -> None:
    folder = shared / "golden" / "volta" / name
    golden = Golden(folder, jagged, as_released)
    add_states(golden)
    add_words(golden)
    add_matching(golden)
    add_regions(golden)
    outputs = load_file(folder / ("outputs_as_released.safetensors" if as_released else "outputs.safetensors"))
    assert golden.found.keys() == outputs.keys()
    for key, expected in outputs.items():
        stream = next((s for s, mask in golden.real.items() if expected.shape[:2] == mask.shape), None)
        wanted = expected if stream is None else expected[golden.real[stream]]
        found = golden.found[key] if stream is None else golden.rows(stream, golden.found[key])
        torch.testing.assert_close(found.reshape(wanted.shape), wanted, **CLOSE, msg=lambda m, k=key: f"{k}: {m}")


def add_states(golden: Golden) -> None:
    """The states after each of their numbered sublayers; where a modality has none, those before it."""
    network, made = golden.network, defaultdict(list)
    for number, layer in enumerate(network.layers):
        for block in {id(m): m for m in layer.modules() if isinstance(m, AttentionBlock | FeedForwardBlock)}.values():
            place = (number, isinstance(block, FeedForwardBlock))
            block.register_forward_hook(lambda module, given, rows, place=place: made[place].append(rows))
    golden.forward = ForwardPass({"main": network}, {"main": golden.batch}, keep={"hidden": True})
    hidden = golden.forward.read(ViewKey("main", "main")).hidden
    states = {0: hidden[int(golden.elements)]}
    for number, (sublayer, kind) in enumerate(read(FamilyConfig(golden.config)), int(golden.elements)):
        for inner in (False, True):
            for streams, rows in zip(streams_of(kind), made[number, inner], strict=False):
                parts = rows.split([golden.batch.streams[stream].rows for stream in streams])
                states.setdefault(sublayer + 1 + inner, {}).update(zip(streams, parts, strict=True))
    for after in range(max(states) + 1):
        states[after] = {**states.get(after - 1, {}), **states.get(after, {})}
        golden.found |= {f"{stream}_states.{after}": states[after][stream] for stream in BOTH}


def streams_of(kind: str) -> list[tuple[str, ...]]:
    """The streams that one attention of a layer, or one feed-forward block, treats; co-attention has two of each."""
    return [BOTH] if kind == "joint" else [("text",), ("image",)] if kind == "co" else [(kind,)]


def add_words(golden: Golden) -> None:
    head, labels = golden.head("mlm"), golden.inputs["masked_lm_labels"][golden.given["text"]]
    states = golden.forward.read(ViewKey("main", "main")).states["text"]
    golden.found["mlm_logits"] = head.logits(golden.network, states)
    rows = (labels != -1).nonzero()[:, 0]
    golden.found["loss_mlm"] = golden.loss("mlm", head, rows=rows, labels=labels[rows]) / len(rows)


def add_matching(golden: Golden) -> None:
    """Their classes are numbered the other way round; the poolers are the head's."""
    golden.found["loss_itm"] = torch.zeros(1)
    if "itm" not in golden.read.heads:
        return
    head, caught = golden.head("itm"), {}
    assert isinstance(head, ItmHead)
    for stream, pooler in head.poolers.items():
        pooler.register_forward_hook(
            lambda module, given, made, key=f"pooled_{stream}": caught.update({key: F.relu(made)})
        )
    head.classifier.register_forward_hook(lambda module, given, made: caught.update(pooled_fused=given[0]))
    labels = 1 - golden.inputs["next_sentence_label"]
    golden.found["loss_itm"] = golden.loss("itm", head, labels=labels) / len(labels)
    states = golden.forward.read(ViewKey("main", "main")).states
    golden.found |= {"itm_logits": head.logits(golden.network, states, golden.batch).flip(1), **caught}


def add_regions(golden: Golden) -> None:
    """What is predicted of regions, the answers, and all losses of these; the image as a whole is no region."""
    inputs, config, parts = golden.inputs, golden.config, {}
    wanted = inputs["image_label"] == 1
    whole = torch.zeros(len(wanted), inputs["image_feat"].shape[1] - wanted.shape[1], dtype=torch.bool)
    placed = torch.cat([wanted, whole] if config.get("add_global_imgfeat") == "last" else [whole, wanted], 1)
    rows = placed[golden.given["image"]].nonzero()[:, 0]
    every = torch.arange(golden.batch.streams["image"].rows)
    goals = {
        "0": lambda: {"scores": inputs["image_cls"][wanted]},
        "3": lambda: {"labels": inputs["obj_labels"][wanted], "weights": inputs["obj_confs"][wanted]},
        "4": lambda: {"labels": inputs["attr_labels"][wanted], "weights": inputs["attr_confs"][wanted]},
        "5": lambda: {"features": inputs["image_feat"][wanted]},
        "6": lambda: {"labels": inputs["obj_labels"][wanted]},
    }
    for number in sorted(config["visual_target_weights"], reverse=True):  # 5 before 3 and 4, which read its head
        name = TARGETS[number]
        size = len(golden.read.tensors["mrfr.bias" if number == "5" else f"{name}.output.bias"])
        head = golden.head(name, **({"loss": "smooth_l1"} if number == "5" else {"num_classes": size}))
        golden.found[f"region_logits.{number}"] = region_logits(golden, number, head, every)
        loss = golden.loss(name, head, rows=rows, **goals[number]()) / len(rows)
        parts[number] = loss * config["visual_target_weights"][number]
    if "qa_num_answers" in config:
        parts["qa"] = answered(golden)
    golden.found |= {f"loss_region_part.{number}": loss for number, loss in parts.items()}
    golden.found["loss_region"] = sum(parts.values(), torch.zeros(()))


def region_logits(golden: Golden, number: str, head: nn.Module, every: Tensor) -> Tensor:
    states = golden.forward.read(ViewKey("main", "main")).states["image"][every]
    if number == "5":
        return head.predict(golden.network, head.transform(states))
    if number in ("3", "4"):
        return head.output(golden.head("mrfr", loss="smooth_l1").transform(states))
    return head.logits(states)


def answered(golden: Golden) -> Tensor:
    count = golden.config["qa_num_answers"]
    head = golden.head("answers", answers=[str(n) for n in range(count)], loss="drawn")
    states = golden.forward.read(ViewKey("main", "main")).states
    golden.found["qa_logits"] = head.logits(golden.network, states, golden.batch)
    labels = golden.inputs["answers"]
    asked = labels != -1
    scores = F.one_hot(labels.clamp(min=0), count).float() * asked[:, None]
    loss = golden.loss("answers", head, labels=labels.masked_fill(~asked, -100), scores=scores, asked=asked)
    return loss / asked.sum()


def test_a_stack_we_do_not_have_is_refused(shared: Path) -> None:
    config = json.loads((shared / "golden" / "volta" / "ctrl_lxmert" / "config.json").read_text())
    config["tv_attn_sublayers"] = [*config["tv_attn_sublayers"], 2]
    with pytest.raises(WorkbenchError, match="sublayer 2 attends"):
        Volta().network(FamilyConfig(config))
