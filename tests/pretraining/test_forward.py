"""What heads see of a micro-batch: other networks, batches made on the device, what other heads made; updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs, ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import Head, LossOutput
from workbench.recipe.spec import Follower, NetworkSpec
from workbench.sequences.batch import Batch, MicroBatch, Stream

SPEC = NetworkSpec(
    {"text": {"embedding": "token", "hidden_size": 8, "dropout": 0.0}},
    [
        {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
        {"layer": "tap", "name": "middle"},
        {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    ],
)
LENGTHS = [4, 2, 3]


def network() -> Network:
    return Network(SPEC, vocab_size=20)


@pytest.fixture
def batch() -> Batch:
    rows = sum(LENGTHS)
    ids = torch.arange(rows) + 1
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    fields = {"input_ids": ids, "position_ids": positions, "token_type_ids": torch.zeros(rows, dtype=torch.long)}
    offsets = torch.tensor([0, 4, 6, 9])
    return Batch({"text": Stream(fields, offsets, LENGTHS)}, {"one": {"rows": torch.tensor([0])}}, ["a", "b", "c"])


class Noting(Head):
    """Does with what it sees what the test says."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def forward(self, inputs: HeadInputs) -> LossOutput:
        made = self.act(inputs)
        return LossOutput(torch.zeros(()), {}, made or {})


def root_of(*acts: Any, networks: tuple[str, ...] = ("main",)) -> PretrainingModel:
    names = ["one", "two", "three"][: len(acts)]
    heads: dict[str, Head] = {name: Noting(act) for name, act in zip(names, acts, strict=True)}
    made = {name: network() for name in networks}
    return PretrainingModel(made, heads, {name: ViewKey(networks[0], "main") for name in names})


def run(root: PretrainingModel, batch: Batch) -> dict[str, Any]:
    return root(MicroBatch("text", {"main": batch}, {}), list(root.heads))


def test_a_network_runs_once_however_many_ask(batch: Batch) -> None:
    reads: list[Any] = []
    root = root_of(lambda seen: reads.append(seen.read()), lambda seen: reads.append(seen.read()))
    run(root, batch)
    assert reads[0] is reads[1]
    assert reads[0].hidden == []


def test_what_no_head_asks_for_is_not_run(batch: Batch) -> None:
    root = root_of(lambda seen: None)
    calls: list[int] = []
    root.network().register_forward_pre_hook(lambda *_: calls.append(1))
    run(root, batch)
    assert calls == []


def test_another_network_is_read_by_name(batch: Batch) -> None:
    found: dict[str, Tensor] = {}

    def act(inputs: HeadInputs) -> None:
        found.update(own=inputs.states["text"], other=inputs.read(network="teacher").states["text"])

    root = root_of(act, networks=("main", "teacher"))
    run(root, batch)
    torch.testing.assert_close(found["other"], root.network("teacher")(batch)["text"])
    assert not torch.allclose(found["own"], found["other"])


@pytest.mark.parametrize("where", ["network", "view"])
def test_a_name_that_is_not_there_is_refused(batch: Batch, where: str) -> None:
    root = root_of(lambda seen: seen.read(**{where: "typo"}))
    with pytest.raises(WorkbenchError, match=f"unknown {where} 'typo'"):
        run(root, batch)


def test_a_batch_made_on_the_device(batch: Batch) -> None:
    found: dict[str, Tensor] = {}
    ids = batch.streams["text"].fields["input_ids"].flip(0)

    def act(inputs: HeadInputs) -> None:
        found["states"] = inputs.run(inputs.batch.replace("text", input_ids=ids)).states["text"]

    root = root_of(act)
    run(root, batch)
    changed = batch.replace("text", input_ids=ids)
    torch.testing.assert_close(found["states"], root.network()(changed)["text"])
    assert batch.streams["text"].fields["input_ids"][0] == 1


def test_layers_behind_a_tap_run_again_on_picked_sequences(batch: Batch) -> None:
    found: dict[str, Tensor] = {}
    chosen = [2, 0, 0]

    def act(inputs: HeadInputs) -> None:
        rows = inputs.batch.streams["text"].rows_of(chosen)
        taps = {"text": inputs.read().taps["middle"]["text"][rows]}
        found["again"] = inputs.run(inputs.batch.pick({"text": chosen}), after="middle", taps=taps).states["text"]

    root = root_of(act)
    run(root, batch)
    picked = batch.pick({"text": chosen})
    assert picked.keys == ["c", "a", "a"]
    assert picked.streams["text"].lengths == [3, 4, 4]
    torch.testing.assert_close(found["again"], root.network()(picked)["text"])


def test_a_tap_that_is_not_there_is_refused(batch: Batch) -> None:
    root = root_of(lambda seen: seen.run(seen.batch, after="nowhere", taps={}))
    with pytest.raises(WorkbenchError, match=r"unknown tap 'nowhere'.*middle"):
        run(root, batch)


def test_hidden_states_and_attention_are_kept_where_a_head_asks(batch: Batch) -> None:
    reads: list[Any] = []
    root = root_of(lambda seen: reads.append(seen.read()))
    root.heads["one"].reads_hidden = root.heads["one"].reads_attention = True
    run(root, batch)
    assert len(reads[0].hidden) == 4
    torch.testing.assert_close(reads[0].hidden[-1]["text"], reads[0].states["text"])
    assert len(reads[0].attention) == 2


def test_what_a_head_made_is_handed_on(batch: Batch) -> None:
    found: list[Tensor] = []
    root = root_of(lambda seen: {"x": torch.ones(3)}, lambda seen: found.append(seen.outputs("one")["x"]))
    run(root, batch)
    assert found[0].tolist() == [1, 1, 1]
    with pytest.raises(WorkbenchError, match="of 'two', but that did not run before"):
        run(root_of(lambda seen: seen.outputs("two")), batch)


def test_targets_and_progress(batch: Batch) -> None:
    found: list[Any] = []
    root = root_of(lambda seen: found.append((seen.targets["rows"].tolist(), seen.progress)))
    run(root, batch)
    root.progress = 0.25
    run(root, batch)
    assert found == [([0], 1.0), ([0], 0.25)]


class Averaging(Noting):
    """A head of which one layer follows."""

    def __init__(self, act: Any) -> None:
        super().__init__(act)
        self.layer, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.layer.after_step = lambda update: self.heard.append(update)  # type: ignore[assignment]
        self.heard: list[Any] = []

    def averaged(self) -> nn.Module:
        return self.layer


def test_what_a_head_says_follows_it_as_its_network_is_followed(batch: Batch) -> None:
    found: list[nn.Module] = []
    heads: dict[str, Head] = {
        "one": Averaging(lambda seen: found.append(seen.averaged("slow"))),
        "two": Noting(lambda seen: None),
    }
    networks = {"main": network(), "slow": network().requires_grad_(False)}
    root = PretrainingModel(
        networks, heads, dict.fromkeys(heads, ViewKey("main", "main")), {"slow": Follower("main", 0.75)}
    )
    run(root.train(), batch)
    average, layer = found[0], heads["one"].layer
    assert not average.training
    assert [name for name in root.state_dict() if name.startswith("averages.")] == [
        "averages.slow.one.weight",
        "averages.slow.one.bias",
    ]
    with torch.no_grad():
        layer.weight.add_(1)
    root.start_followers()
    torch.testing.assert_close(average.weight, layer.weight)
    with torch.no_grad():
        layer.weight.add_(4)
    root.after_step(1, {})
    torch.testing.assert_close(layer.weight.detach() - average.weight, torch.full((2, 2), 3.0))
    assert not average.weight.requires_grad
    assert len(heads["one"].heard) == 1


def test_an_average_that_is_not_there_is_refused(batch: Batch) -> None:
    with pytest.raises(WorkbenchError, match="unknown follower 'slow'"):
        run(root_of(lambda seen: seen.averaged("slow")), batch)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("updates", torch.zeros(()))
        self.heard: list[Any] = []

    def after_step(self, update: Any) -> None:
        self.updates += 1
        self.heard.append(update)


def test_modules_hear_of_updates(batch: Batch) -> None:
    root = root_of(lambda seen: None)
    inner = Counting()
    root.heads["one"].inner = inner
    run(root, batch)
    assert inner.updates == 0
    root.progress = 0.5
    root.after_step(7, {})
    assert (float(inner.updates), inner.heard[0].number, inner.heard[0].progress) == (1, 7, 0.5)
    assert inner.heard[0].outputs == {}
