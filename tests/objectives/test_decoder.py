"""What a decoder is given and asks: published logits and losses, pairs without noise, a text alone as in company."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.contracts.material import text_samples, tokenizer
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.objectives._decoder import DecoderObjective
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

DRAWS = Draws(0, "task", "it", number=(0,))
FRAME = {"builder": "document", "begin": None, "end": "eos"}
NOISES = [{"noise": "permute", "rate": 1}, {"noise": "infill", "rate": 0.3}]
OBJECTIVES: dict[str, dict[str, Any]] = {
    "span_corruption": {"sentinels": 20},
    "masked_span": {},
    "denoising": {"noises": NOISES},
}


def made(name: str, **options: Any) -> DecoderObjective:
    spec = {"objective": name, **OBJECTIVES[name], **options}
    objective: DecoderObjective = build("objective", spec, "", tokenizer=tokenizer())
    objective.name = "it"
    return objective


def documents(count: int = 6, builder: str = "document") -> list[Sequence]:
    spec = {**FRAME, "builder": builder}
    found: list[Sequence] = build("builder", spec, "", tokenizer=tokenizer(), max_length=80)(text_samples(count), DRAWS)
    return found


def network() -> Network:
    """An encoder and a decoder with rows for some sentinels."""
    config = FamilyConfig(BART | {"vocab_size": tokenizer().vocab_size + 20})
    torch.manual_seed(0)
    return Network(make_family("bart").network(config)).eval()


BART = {"model_type": "bart", "d_model": 16, "max_position_embeddings": 80} | {
    f"{stack}_{size}": 2 for stack in ("encoder", "decoder") for size in ("layers", "attention_heads", "ffn_dim")
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_together_is_the_sum_of_each_alone(name: str) -> None:
    objective, sequences, model = made(name), documents(), network()
    objective.corrupt(sequences, DRAWS)
    losses, counts = [], []
    for group in (sequences, *([sequence] for sequence in sequences)):
        batch = collate(group)
        losses.append(objective.head(model)(HeadInputs.of(model, batch, batch.targets["it"])).loss)
        counts.append(objective.count(batch))
    torch.testing.assert_close(losses[0], torch.stack(losses[1:]).sum(), rtol=1e-5, atol=1e-4)
    assert counts[0] == sum(counts[1:]) > 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_is_to_be_written_stands_in_the_decoder_moved_by_one(name: str) -> None:
    objective, sequences = made(name), documents()
    objective.corrupt(sequences, DRAWS)
    for sequence in sequences:
        target, labels = sequence.streams["target"], sequence.targets["it"]["labels"]
        assert target["input_ids"].tolist() == [objective.start, *labels[:-1].tolist()]
        assert target["rank"].tolist() == sequence.targets["it"]["rows"].index.tolist() == list(range(len(labels)))
        assert target["taken"].all()
        assert sequence.streams["text"]["position_ids"].tolist() == list(range(sequence.length("text")))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_pair_gets_no_noise(name: str) -> None:
    objective, sequences = made(name), documents()
    texts = [sequence.streams["text"]["input_ids"].tolist() for sequence in sequences]
    for sequence in sequences:
        sequence.streams["target"] = text_fields(np.array([7, 8, 9]))
    objective.corrupt(sequences, DRAWS)
    for sequence, text in zip(sequences, texts, strict=True):
        assert sequence.streams["text"]["input_ids"].tolist() == text
        assert sequence.streams["target"]["input_ids"].tolist() == [objective.start, 7, 8]
        assert sequence.targets["it"]["labels"].tolist() == [7, 8, 9]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_packed_documents_are_refused(name: str) -> None:
    with pytest.raises(WorkbenchError, match="builder document"):
        made(name).corrupt(documents(builder="packed"), DRAWS)


@pytest.mark.parametrize(
    ("folder", "family", "name"),
    [("t5", "t5", "span_corruption"), ("t5_v1_1", "t5", "span_corruption"), ("bart", "bart", "denoising")],
)
@torch.no_grad()
def test_logits_and_loss_are_the_published_ones(shared: Path, folder: str, family: str, name: str) -> None:
    """Of pairs: the decoder's input is that which the objective makes of the labels."""
    place, checkpoint_family = shared / "golden/hf" / folder, make_family(family)
    plain = json.loads((place / "config.json").read_text())["config"]
    weights, inputs, wanted = (load_file(place / f"{kind}.safetensors") for kind in ("weights", "inputs", "outputs"))
    config = checkpoint_family.completed(FamilyConfig({"model_type": family, **plain}), weights)
    spec = checkpoint_family.network(config)
    model = Network(spec).eval()
    for ours, other in spec.tie.items():
        stream, module = ours.split(".")
        setattr(model.embeddings[stream], module, model.embeddings.get_submodule(other))
    tensors = to_ours(weights, checkpoint_family.rules(config))[0]
    missing = model.load_state_dict({n: t for n, t in tensors.items() if not n.startswith(name)}, strict=False)
    assert not missing.unexpected_keys
    stated = checkpoint_family.heads(config)[name]
    objective = made(name, **{key: value for key, value in stated.items() if key != "objective"})
    objective.start = plain.get("decoder_start_token_id", 0)
    if name == "span_corruption":
        objective.tokens, objective.sentinels = 0, np.arange(2)  # type: ignore[attr-defined]
    head = objective.head(model)
    head.load_state_dict({n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(name)})

    real, kept = inputs["attention_mask"].bool(), inputs["labels"] != -100
    sequences = [
        Sequence({"text": text_fields(ids[mask].numpy()), "target": text_fields(labels[asked].numpy())}, (i,))
        for i, (ids, mask, labels, asked) in enumerate(
            zip(inputs["input_ids"], real, inputs["labels"], kept, strict=True)
        )
    ]
    objective.corrupt(sequences, DRAWS)
    batch = collate(sequences)
    states = model(batch)
    torch.testing.assert_close(states["text"], wanted["encoder_last"][real], atol=1e-5, rtol=1e-5)
    logits = head.logits(model, states["target"])  # type: ignore[operator]
    torch.testing.assert_close(logits, wanted["logits"][kept], atol=1e-5, rtol=1e-5)
    loss = head(HeadInputs.of(model, batch, batch.targets["it"], states)).loss / objective.count(batch)
    torch.testing.assert_close(loss, wanted["loss"], atol=1e-5, rtol=1e-5)
