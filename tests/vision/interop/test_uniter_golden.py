"""UNITER's original code on small random weights: ours returns the same numbers.

What is compared is all that stands in `outputs.safetensors`; a name that nothing here makes fails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from vision.objectives.answers import Answers
from vision.objectives.itm import Itm
from vision.objectives.mrc import Mrc
from vision.objectives.mrc_kl import MrcKl
from vision.objectives.mrfr import Mrfr
from vision.objectives.wra import Wra
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.models.network import Network
from workbench.objectives.mlm import MlmHead
from workbench.pretraining.forward import HeadInputs, NetworkOutput, read
from workbench.sequences.batch import Batch

CLOSE = {"atol": 1e-5, "rtol": 0}
SUMMED = ("ot_pos", "ot_neg")
"""The distances of pairs, which ours returns as sums."""
Jagged = Callable[..., Batch]


class Golden:
    """The folder, its weights in our network, and what that makes of its inputs."""

    def __init__(self, folder: Path, jagged: Jagged) -> None:
        files = find_files(folder)
        assert files is not None
        self.inputs, self.read = load_file(folder / "inputs.safetensors"), read_checkpoint_folder(files)
        assert (self.read.unused, self.read.missing) == ([], [])
        self.network = Network(self.read.network).eval()
        own = self.network.state_dict().keys()
        self.network.load_state_dict({name: tensor for name, tensor in self.read.tensors.items() if name in own})
        self.jagged = jagged
        self.text, self.image = ~self.inputs["txt_pad"], ~self.inputs["img_pad"]
        self.found: dict[str, Tensor] = {}

    def states(self, masked_text: bool = False, masked_regions: bool = False) -> NetworkOutput:
        """What the network makes of the inputs, with words or regions hidden."""
        inputs = self.inputs
        ids, hidden = inputs["input_ids_masked" if masked_text else "input_ids"], inputs["img_masks"]
        image = {"features": inputs["img_feat"], "boxes": inputs["img_pos_feat"][..., :4]}
        if masked_regions:
            image |= {"features": inputs["img_feat"].masked_fill(hidden[..., None], 0), "masked": hidden}
        places = inputs["position_ids"].expand_as(ids)
        words = {"input_ids": ids, "position_ids": places, "token_type_ids": torch.zeros_like(ids)}
        return read(self.network, self.jagged(text=(self.text, words), image=(self.image, image)), keep_hidden=True)

    def split(self, joint: Tensor) -> Tensor:
        """Joint rows [batch, length, ...] (regions right after the real text) -> text rows, then image rows."""
        lengths = list(zip(self.text.sum(1).tolist(), self.image.sum(1).tolist(), strict=True))
        words = [row[:n] for row, (n, _) in zip(joint, lengths, strict=True)]
        return torch.cat([*words, *(row[n : n + m] for row, (n, m) in zip(joint, lengths, strict=True))])

    def head(self, name: str, head: Any) -> Any:
        head.load_state_dict({n.partition(".")[2]: t for n, t in self.read.tensors.items() if n.startswith(f"{name}.")})
        return head.eval()

    def size(self, name: str) -> int:
        return len(self.read.tensors[name])


@pytest.fixture
def golden(shared: Path, jagged: Jagged) -> Golden:
    return Golden(shared / "golden" / "uniter", jagged)


@torch.no_grad()
def test_all_numbers_are_those_of_the_release(golden: Golden, shared: Path) -> None:
    for part in (add_states, add_words, add_features, add_classes, add_matching, add_answers):
        part(golden)
    outputs = load_file(shared / "golden" / "uniter" / "outputs.safetensors")
    assert golden.found.keys() == outputs.keys()
    for name, expected in outputs.items():
        joint = name == "embedding" or name.startswith("hidden.")
        wanted = golden.split(expected) if joint else expected.sum() if name in SUMMED else expected
        torch.testing.assert_close(golden.found[name], wanted, **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def add_states(golden: Golden) -> None:
    clean = golden.states()
    joint = [torch.cat([states["text"], states["image"]]) for states in clean.hidden]
    golden.found |= {"embedding": joint[0], **{f"hidden.{i}": rows for i, rows in enumerate(joint[1:])}}
    golden.found["pooled"] = golden.network.pool(clean.states, clean.batch)


def add_words(golden: Golden) -> None:
    head, masked = golden.head("mlm", MlmHead(golden.network)), golden.states(masked_text=True)
    labels = golden.inputs["txt_labels"][golden.text]
    rows = (labels != -1).nonzero()[:, 0]
    logits = head.logits(golden.network, masked.states["text"][rows])
    each = F.cross_entropy(logits, labels[rows], reduction="none")
    loss = head(HeadInputs.of_read(masked, {"rows": rows, "labels": labels[rows]})).loss / len(rows)
    golden.found |= {"mlm_logits": logits, "mlm_loss": each, "train_loss_mlm": loss}


def add_features(golden: Golden) -> None:
    head, masked = golden.head("mrfr", Mrfr().head(golden.network)), golden.states(masked_regions=True)
    rows = masked.batch.streams["image"].fields["masked"].nonzero()[:, 0]
    goal = golden.inputs["img_feat"][golden.inputs["img_masks"]]
    predicted = head.predict(golden.network, head.transform(masked.states["image"][rows]))
    loss = head(HeadInputs.of_read(masked, {"rows": rows, "features": goal})).loss / len(rows)
    golden.found |= {"mrfr_pred": predicted, "mrfr_loss": (predicted - goal).square(), "train_loss_mrfr": loss}


def add_classes(golden: Golden) -> None:
    masked, count = golden.states(masked_regions=True), golden.size("mrc.output.bias")
    rows = masked.batch.streams["image"].fields["masked"].nonzero()[:, 0]
    scores = golden.inputs["img_soft_labels"][golden.inputs["img_masks"]]
    labels = scores[:, 1:].argmax(-1) + 1  # the background is never a target
    kl = golden.head("mrc_kl", MrcKl(count).head(golden.network))
    hard = golden.head("mrc", Mrc(count).head(golden.network))
    logits = kl.logits(masked.states["image"][rows])
    divergence = kl(HeadInputs.of_read(masked, {"rows": rows, "scores": scores})).loss
    loss = hard(HeadInputs.of_read(masked, {"rows": rows, "labels": labels})).loss
    golden.found |= {
        "mrc_logits": logits,
        "mrckl_loss": F.kl_div(logits.log_softmax(-1), scores, reduction="none"),
        "mrc_loss": F.cross_entropy(logits, labels, reduction="none"),
        "train_loss_mrckl": divergence / scores.numel(),
        "train_loss_mrc": loss / len(rows),
    }


def add_matching(golden: Golden) -> None:
    """Matching, and the alignment that is added to its loss."""
    head, clean, labels = golden.head("itm", Itm().head(golden.network)), golden.states(), golden.inputs["itm_targets"]
    logits = head.logits(golden.network, clean.states, clean.batch)
    loss = head(HeadInputs.of_read(clean, {"labels": labels})).loss / len(labels)
    streams = clean.batch.streams
    counts = {f"num_{name}s": torch.tensor(streams[s].lengths) for name, s in (("word", "text"), ("region", "image"))}
    rows = {"words": torch.arange(streams["text"].rows), "regions": torch.arange(streams["image"].rows)}
    aligned = Wra().head(golden.network)(HeadInputs.of_read(clean, {"labels": labels, **rows, **counts}))
    distance = aligned.loss / len(labels)
    golden.found |= {
        "itm_logits": logits,
        "itm_loss": F.cross_entropy(logits, labels, reduction="none"),
        "train_loss_itm": loss,
        "train_loss_itm_ot": loss + 0.1 * distance,
        "ot_loss": distance,
        "ot_pos": aligned.metrics["matched"][0],
        "ot_neg": aligned.metrics["exchanged"][0],
    }


def add_answers(golden: Golden) -> None:
    known = [str(n) for n in range(golden.size("answers.outer.bias"))]
    head, clean, scores = (
        golden.head("answers", Answers(known).head(golden.network)),
        golden.states(),
        golden.inputs["vqa_targets"],
    )
    logits = head.logits(golden.network, clean.states, clean.batch)
    asked = torch.ones(len(scores), dtype=torch.bool)
    loss = head(HeadInputs.of_read(clean, {"scores": scores, "asked": asked})).loss
    each = F.binary_cross_entropy_with_logits(logits, scores, reduction="none")
    golden.found |= {"vqa_logits": logits, "vqa_loss": each, "train_loss_vqa": loss / len(scores)}
