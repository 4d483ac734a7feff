"""Checkpoints: atomic, kept, best, refused with clear words."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from tests.saved_checkpoints import saved
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.optimization.factory import make_optimizer
from workbench.recipe.train_spec import TrainSpec
from workbench.runs import checkpoint
from workbench.runs.checkpoint import Content, restore
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.weights import read_weights, save_tensors, save_weights
from workbench.training.held_out import improves

SPEC = TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1)


class Tied(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(5, width)
        self.norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, 5)
        self.decoder.weight = self.table.weight


def trained(width: int = 3) -> tuple[Tied, torch.optim.Optimizer]:
    torch.manual_seed(width)
    model = Tied(width)
    optimizer = make_optimizer(model, SPEC)
    model.decoder(model.norm(model.table.weight)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def state(step: int) -> dict[str, Any]:
    return {"step": step}


def test_weights_and_moments_come_back(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = saved(Checkpoints(tmp_path), model, optimizer, state(4))
    assert "decoder.weight" not in load_file(path / "model.safetensors")
    fresh = Tied()
    again = make_optimizer(fresh, SPEC)
    assert restore(path, fresh, again) == {"step": 4}
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))
    for one, two in zip(model.parameters(), fresh.parameters(), strict=True):
        assert set(optimizer.state[one]) == set(again.state[two]) == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(optimizer.state[one][key], again.state[two][key]) for key in optimizer.state[one])


def test_the_last_are_kept(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = Checkpoints(tmp_path, keep_last=2)
    for step in (2, 10, 4, 12):
        saved(checkpoints, model, optimizer, state(step))
    assert checkpoints.steps() == [10, 12]
    assert checkpoints.latest() == tmp_path / "checkpoints" / "step-12"


def test_a_save_that_fails_leaves_the_earlier_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = trained()
    checkpoints = Checkpoints(tmp_path)
    saved(checkpoints, model, optimizer, state(1))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full)
    with pytest.raises(WorkbenchError, match="No space left on device"):
        saved(checkpoints, model, optimizer, state(2))
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-1"]


def test_what_a_kill_left_is_cleaned(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = Checkpoints(tmp_path)
    saved(checkpoints, model, optimizer, state(1))
    (tmp_path / "checkpoints" / ".step-2.tmp").mkdir()
    checkpoints.save_best(model, state(1))
    (tmp_path / "best").rename(tmp_path / ".best.old")
    checkpoints.clean()
    assert checkpoints.steps() == [1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best", "checkpoints"]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-1"]


def test_best_is_replaced(tmp_path: Path) -> None:
    model, _ = trained()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_best(model, state(1))
    with torch.no_grad():
        model.table.weight.fill_(7.0)
    checkpoints.save_best(model, state(2))
    assert (read_weights(tmp_path / "best" / "model.safetensors")["table.weight"] == 7).all()
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_another_shape_is_named(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = saved(Checkpoints(tmp_path), model, optimizer, state(1))
    wider, other = trained(4)
    with pytest.raises(WorkbenchError, match=r"table\.weight: found \[5, 3\], expected \[5, 4\]"):
        restore(path, wider, other)


def test_another_model_is_named(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = saved(Checkpoints(tmp_path), model, optimizer, state(1))
    model.more = nn.Linear(2, 2)
    with pytest.raises(WorkbenchError, match=r"Missing: more\.bias, more\.weight"):
        restore(path, model, make_optimizer(model, SPEC))


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.pt", "state.json"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    model, optimizer = trained()
    path = saved(Checkpoints(tmp_path), model, optimizer, state(1))
    (path / name).write_bytes((path / name).read_bytes()[:10])
    with pytest.raises(WorkbenchError, match=str(path)):
        restore(path, model, optimizer)


def test_views_of_one_table_are_stored(tmp_path: Path) -> None:
    table = torch.arange(12.0).view(4, 3)
    save_weights(tmp_path / "w.safetensors", {"a": table[:2], "b": table[2:], "c": table[:2], "empty": table[:0]})
    found = read_weights(tmp_path / "w.safetensors")
    assert torch.equal(found["b"], table[2:])
    assert found["a"].data_ptr() == found["c"].data_ptr()


def test_tied_weights_make_equal_bytes_in_any_order(tmp_path: Path) -> None:
    names = [f"layer{i}" for i in range(20)]
    written = set()
    for i, order in enumerate((names, names[::-1])):
        table = torch.arange(12.0)
        tensors = {"first": table, **dict.fromkeys(order, table)}
        save_weights(tmp_path / f"{i}.safetensors", tensors)
        save_weights(tmp_path / "again.safetensors", tensors)
        written |= {(tmp_path / f"{i}.safetensors").read_bytes(), (tmp_path / "again.safetensors").read_bytes()}
    assert len(written) == 1


def test_equal_metadata_make_equal_bytes(tmp_path: Path) -> None:
    """The library orders its keys at random in each call."""
    metadata = {name: f"ä {name}\n" for name in "qwertzuiop"}
    for number in range(4):
        save_tensors(tmp_path / str(number), {"a": torch.arange(3.0)}, dict(metadata))
    assert len({(tmp_path / str(number)).read_bytes() for number in range(4)}) == 1
    with safe_open(tmp_path / "0", "pt") as file:
        assert file.metadata() == metadata
        assert file.get_tensor("a").tolist() == [0, 1, 2]


def test_improves_knows_which_way() -> None:
    assert improves("held_out/mlm/loss", 1.0, 2.0)
    assert not improves("held_out/mlm/accuracy", 1.0, 2.0)
    assert improves("held_out/itm/accuracy", 0.1, None)


def test_what_is_saved_in_the_background_is_the_state_at_the_call(tmp_path: Path) -> None:
    model, optimizer = trained()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moments = {id(p): optimizer.state[p]["exp_avg"].clone() for p in model.parameters()}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.start(model, optimizer, state(1), background=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
            optimizer.state[parameter]["exp_avg"].zero_()
    path = checkpoints.finish()
    assert checkpoints.saving is None
    fresh = Tied()
    again = make_optimizer(fresh, SPEC)
    restore(path, fresh, again)
    assert all(torch.equal(fresh.state_dict()[name], tensor) for name, tensor in weights.items())
    for one, two in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(again.state[two]["exp_avg"], moments[id(one)])


def test_a_background_save_that_fails_is_reported_where_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = trained()
    checkpoints = Checkpoints(tmp_path)
    saved(checkpoints, model, optimizer, state(1))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def bug(*_: Any) -> None:
        raise AttributeError("a bug")

    for failure, kind, words in ((full, WorkbenchError, "earlier checkpoints are whole"), (bug, AttributeError, "bug")):
        monkeypatch.setattr(checkpoint, "save_weights", failure)
        checkpoints.start(model, optimizer, state(2), background=True)
        with pytest.raises(kind, match=words):
            checkpoints.finish()
        assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-1"]


def test_a_background_save_is_completed_when_the_run_ends_with_an_error(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.start(model, optimizer, state(1), background=True)
    checkpoints.abandon()
    assert checkpoints.whole().step == 1
    two = Checkpoints(tmp_path, world=World(0, 2))  # the other rank may be lost
    two.saving = checkpoints._begun(two.path(2), Content(state(2)), consolidated=False, background=True)
    two.abandon()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-1"]
