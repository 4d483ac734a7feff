"""The span boundary objective: which spans and boundaries it takes, and SpanBERT's pretrained head to 1e-5."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.sequences.test_maskings import sequence
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.objectives.sbo import Sbo, SboHead
from workbench.pretraining.forward import ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.sequences.batch import Batch, MicroBatch, Stream, collate
from workbench.sequences.replacement import ReplacementOptions
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "its labels are those of another objective"
DRAWS = Draws(0, "task", "sbo", number=(0,))


def made(**options: Any) -> Sbo:
    part = Sbo(**options)
    part.name = "sbo"
    return part


def masked(tokens: int, rows: list[int]) -> Sequence:
    """[CLS] tokens [SEP], in which mlm has masked these rows; token i stands in row i + 1 and has the id 101 + i."""
    one = sequence(list(range(tokens)))
    labels = one.streams["text"]["input_ids"][rows].copy()
    one.targets["mlm"] = {"rows": Rows("text", np.array(rows, np.int64)), "labels": labels}
    return one


def targets(one: Sequence, **options: Any) -> dict[str, list[int]]:
    made(**options).corrupt([one], DRAWS)
    return {name: np.asarray(found).tolist() for name, found in one.targets["sbo"].items()}


def test_neighbours_are_a_span_between_the_tokens_around_it() -> None:
    found = targets(masked(10, [2, 3, 6]))
    assert found == {"rows": [2, 3, 6], "left": [1, 1, 5], "right": [4, 4, 7], "labels": [102, 103, 106]}


@pytest.mark.parametrize("rows", [[1, 2], [9, 10], [], list(range(1, 11))])
def test_a_span_at_an_edge_has_no_boundary(rows: list[int]) -> None:
    assert targets(masked(10, rows)) == {"rows": [], "left": [], "right": [], "labels": []}


def test_what_a_span_has_beyond_the_limit_is_left_out() -> None:
    found = targets(masked(10, [2, 3, 4, 5]), max_span=2)
    assert (found["rows"], found["right"]) == ([2, 3], [6, 6])


def test_pairs_are_those_of_the_release(shared: Path) -> None:
    """Of every recorded example: boundaries and tokens, which the published code cuts at `max_pair_targets`."""
    compared = 0
    for example in json.loads((shared / "golden/spanbert/masking/examples.json").read_text()):
        if example["settings"]["endpoints"] != "external":
            continue
        ids, size = np.array(example["sentence"]), example["settings"]["max_pair_targets"]
        one = masked(len(ids), [row + 1 for row in example["masked_positions"]])
        one.targets["mlm"]["labels"] = ids[example["masked_positions"]]
        found = targets(one, max_span=size)
        expected: list[tuple[int, int, int]] = []
        for left, right, *tokens in example["pair_targets"]:
            expected += [(left + 1, right + 1, token) for token in tokens if token]
        assert list(zip(found["left"], found["right"], found["labels"], strict=True)) == expected
        compared += len(expected)
    assert compared > 40


def test_an_objective_that_masks_nothing_here_is_refused() -> None:
    one = masked(10, [2])
    for options in ({"of": "other"}, {"stream": "target"}):
        with pytest.raises(WorkbenchError, match=r"sbo predicts the spans of .* masked none in this view"):
            made(**options).corrupt([one], DRAWS)


def test_every_labelled_token_is_counted_and_learned(
    tokenizer: Tokenizer, make_samples: Callable[..., list[Sample]], make_network: Callable[..., Network]
) -> None:
    sequences = build("builder", "document", "", tokenizer=tokenizer, max_length=64)(make_samples(8), DRAWS)
    mlm, sbo = Mlm(tokenizer, rate=0.3, masking="span", replace=ReplacementOptions(per="group")), made()
    originals = [one.streams["text"]["input_ids"].copy() for one in sequences]
    mlm.corrupt(sequences, DRAWS)
    sbo.corrupt(sequences, DRAWS)
    for one, ids in zip(sequences, originals, strict=True):
        rows = np.asarray(one.targets["sbo"]["rows"])
        np.testing.assert_array_equal(one.targets["sbo"]["labels"], ids[rows])
        around = np.concatenate([np.asarray(one.targets["sbo"][side]) for side in ("left", "right")])
        assert not np.isin(around, np.asarray(one.targets["mlm"]["rows"])).any()
    batch, network = collate(sequences), make_network()
    root = PretrainingModel({"main": network}, {"sbo": sbo.head(network)}, {"sbo": ViewKey("main", "main")})
    output = root(MicroBatch("text", {"main": batch}, {}), ["sbo"])["sbo"]
    assert sbo.count(batch) == output.metrics["accuracy"][1] > 20
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in root.heads["sbo"].parameters())


@torch.no_grad()
def test_states_logits_and_losses_are_the_released_ones(shared: Path) -> None:
    folder = shared / "golden/spanbert/model"
    config, checkpoint_family = FamilyConfig(json.loads((folder / "config.json").read_text())), make_family("bert")
    state = {
        checkpoint_family.spelt(name): tensor for name, tensor in load_file(folder / "weights.safetensors").items()
    }
    weights, unused = to_ours(state, checkpoint_family.rules(config))
    assert unused == []
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    network = Network(checkpoint_family.network(config)).eval()
    left = network.load_state_dict({n: t for n, t in weights.items() if n in network.state_dict()}, strict=False)
    assert [name for name in left.missing_keys if not name.startswith("poolers")] == []
    mask = inputs["src_tokens"] != config["pad_id"]
    lengths = mask.sum(1).tolist()
    places = torch.arange(mask.shape[1]).expand(mask.shape)
    fields = {"input_ids": inputs["src_tokens"], "token_type_ids": inputs["segment_labels"], "position_ids": places}
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    batch = Batch({"text": Stream({name: values[mask] for name, values in fields.items()}, offsets, lengths)})
    states = network(batch)["text"]
    last = config["num_hidden_layers"] - 1
    close = {"atol": 1e-5, "rtol": 0.0}
    torch.testing.assert_close(states, outputs[f"hidden.{last}"][mask], **close)

    mlm = MlmHead(network)
    mlm.load_state_dict({n.removeprefix("mlm."): t for n, t in weights.items() if n.startswith("mlm.")})
    logits, labels = mlm.logits(network, states), inputs["lm_target"][mask]
    torch.testing.assert_close(logits, outputs["mlm_logits"][mask], **close)
    loss = mlm.loss(logits, labels.where(labels != config["pad_id"], -100)).loss
    torch.testing.assert_close(loss, outputs["lm_loss_sum"], rtol=1e-6, atol=1e-5)

    said = checkpoint_family.heads(config)["sbo"]
    head = SboHead(network, "text", said["max_span"], said["place_size"])
    head.load_state_dict({n.removeprefix("sbo."): t for n, t in weights.items() if n.startswith("sbo.")})
    tokens = inputs["pair_targets"]
    count = (tokens != config["pad_id"]).sum(-1).flatten()
    pairs = (inputs["pairs"] + offsets[:-1, None, None]).flatten(0, 1).repeat_interleave(count, 0)
    spots = torch.cat([torch.arange(n) for n in count.tolist()])
    wanted = tokens.flatten(0, 1)[torch.arange(len(count)).repeat_interleave(count), spots]
    logits = head.logits(network, states[pairs[:, 0]], states[pairs[:, 1]], spots)
    released = outputs["sbo_logits"][torch.arange(len(count)).repeat_interleave(count), spots]
    torch.testing.assert_close(logits, released, **close)
    torch.testing.assert_close(head.loss(logits, wanted).loss, outputs["sbo_loss_sum"], rtol=1e-6, atol=1e-5)
    assert len(wanted) == outputs["npairs"] - 1  # the published code counts one more
