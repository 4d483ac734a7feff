"""Micro-batches on their way to a device: one copy each, one ahead of the computation, none on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.short_runs import shorter
from workbench.pretraining.transport import packed
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, MicroBatch, Stream
from workbench.sequences.flat import flattened
from workbench.training import losses as micro_pass
from workbench.training.losses import Copies
from workbench.training.pretrain import pretrain

META = torch.device("meta")
CPU = torch.device("cpu")


class Counted(TorchDispatchMode):
    """Counts copies from one device to another."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.copies += function is torch.ops.aten._to_copy.default
        return function(*arguments, **(named or {}))


def micro_batch() -> MicroBatch:
    """Two views of two streams, one of them shared; targets; all dtypes that batches have."""
    image = Stream(
        {"pixels": torch.ones(2, 3, 4, 4, dtype=torch.uint8), "boxes": torch.rand(8, 4)},
        torch.tensor([0, 4, 8]),
        [4, 4],
    )
    views = {}
    for name in ("main", "clean"):
        text = Stream({"input_ids": torch.arange(7), "masked": torch.arange(7) > 3}, torch.tensor([0, 3, 7]), [3, 4])
        views[name] = Batch(
            {"text": text, "image": image}, {"mlm": {"rows": torch.arange(2), "soft": torch.rand(2, 5)}}
        )
    return MicroBatch("pairs", views, {"mlm": 2.0})


def fields(micro: MicroBatch) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    micro.map(lambda tensor: found.setdefault(id(tensor), tensor))
    return list(found.values())


@pytest.mark.parametrize("micro", [micro_batch(), micro_batch().views["main"]], ids=["micro-batch", "batch"])
def test_all_is_copied_to_a_device_at_once(micro: Any) -> None:
    with Counted() as counted:
        moved = micro.to(META)
    assert counted.copies == 1
    main, before = (moved.views["main"], micro.views["main"]) if isinstance(micro, MicroBatch) else (moved, micro)
    for name, stream in before.streams.items():
        for field, values in stream.fields.items():
            there = main.streams[name].fields[field]
            assert there.device == META
            assert (there.shape, there.dtype, there.stride()) == (values.shape, values.dtype, values.stride())
    if isinstance(micro, MicroBatch):
        assert moved.views["main"].streams["image"] is moved.views["clean"].streams["image"]
        with Counted() as counted:
            assert moved.to(META).buffer is moved.buffer
        assert not counted.copies


def test_on_a_cpu_nothing_is_copied() -> None:
    micro = micro_batch()
    with Counted() as counted:
        moved = Copies(CPU).take(micro)
    assert not counted.copies
    assert [t.data_ptr() for t in fields(moved)] == [t.data_ptr() for t in fields(micro)]


def test_values_lie_in_the_buffer_as_they_were() -> None:
    """What is sent and what is copied to a device is laid out alike."""
    micro = micro_batch()
    buffer, held = flattened(fields(micro), pin=False)
    assert all(torch.equal(one, other) for one, other in zip(held, fields(micro), strict=True))
    head, *rest = packed(micro)
    assert b"".join(bytes(part) for part in rest) == bytes(_zeroed_gaps(buffer, held))
    assert len(head) > 16


def _zeroed_gaps(buffer: Tensor, held: list[Tensor]) -> Any:
    clean = torch.zeros_like(buffer)
    for tensor in held:
        first = tensor.data_ptr() - buffer.data_ptr()
        clean[first : first + tensor.nbytes] = buffer[first : first + tensor.nbytes]
    return clean.numpy()


class Device:
    """A model of a device's memory: the micro-batches there, and the number of copies."""

    def __init__(self) -> None:
        self.there: dict[int, MicroBatch] = {}
        self.copies = self.most = self.waited = 0

    def begin(self, micro: MicroBatch) -> None:
        if id(micro) not in self.there:
            self.copies += 1
            self.there[id(micro)] = micro
            self.most = max(self.most, len(self.there))

    def take(self, micro: MicroBatch, *, again: bool = False) -> MicroBatch:
        self.waited += id(micro) not in self.there
        self.begin(micro)
        if not again:
            del self.there[id(micro)]
        return micro

    def forget(self, following: MicroBatch | None = None) -> None:
        assert set(self.there) <= {id(following)}, "a copy was begun and not taken"


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Device]]:
    """The devices of the training and of the held-out passes."""
    made: list[Device] = []

    def device(_: torch.device) -> Device:
        made.append(Device())
        return made[-1]

    monkeypatch.setattr(micro_pass, "Copies", device)
    return made  # type: ignore[return-value]


def contrastive(tree: dict[str, Any]) -> None:
    tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Contrast"})


@pytest.mark.parametrize(("change", "most"), [(None, 2), (contrastive, 4)], ids=["additive", "global-batch"])
def test_each_is_copied_once_and_one_ahead(
    make_recipe: Callable[..., Path], tmp_path: Path, devices: list[Device], change: Any, most: int
) -> None:
    """Of three a step: the one that is computed on, and the next; or all that come twice, and the next."""
    steps, lanes = 6, 3
    recipe = load_recipe(str(make_recipe(change)), trust=True)
    pretrain(shorter(recipe, max_steps=steps, num_workers=2), tmp_path / "run")
    training = max(devices, key=lambda device: device.copies)
    assert training.copies == steps * lanes
    assert training.most <= most
    assert training.waited <= steps  # the first of a step, where it did not come in time; in a step never


def test_held_out_passes_copy_ahead_too(
    make_recipe: Callable[..., Path], world_folder: Path, tmp_path: Path, devices: list[Device]
) -> None:
    recipe = load_recipe(str(make_recipe()))
    task = replace(recipe.tasks["text"], held_out=[str(world_folder / "held-out")])
    recipe = replace(recipe, tasks={"text": task})
    pretrain(shorter(recipe, max_steps=2, evaluate_every=1, num_workers=1), tmp_path / "run")
    training, held_out = sorted(devices, key=lambda device: device.copies)
    assert held_out.copies % 2 == 0
    assert held_out.most <= 2
    assert not held_out.there
    assert training.copies == 6
