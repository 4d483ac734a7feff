"""What components return is checked in the first micro-batches of a task, and where a later one fails."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workbench.components import calls
from workbench.components.build_context import mark
from workbench.components.calls import CHECKED, FirstMicroBatches, Returns, call
from workbench.core.errors import WorkbenchError

NUMBER = Returns("a number", lambda found, *_: isinstance(found, int))
ALWAYS = NUMBER._replace(always=True)


class Hook:
    """Returns what it was given last; counts its calls."""

    def __init__(self, returned: Any) -> None:
        self.returned, self.calls = returned, 0

    def __call__(self, *_: Any) -> Any:
        self.calls += 1
        return self.returned


def add(hook: Hook, returns: Returns = NUMBER) -> int:
    """The work on a micro-batch: what the hook returns is needed as a number."""
    return call(hook, "", returns) + 1


def run(first: FirstMicroBatches, hook: Hook, returns: Returns = NUMBER, task: str = "text") -> int:
    with first.checked(task, lambda: add(hook, returns)):
        return add(hook, returns)


@pytest.fixture
def trusted() -> tuple[FirstMicroBatches, Hook]:
    """A hook whose first micro-batches were right."""
    first, hook = FirstMicroBatches(), mark(Hook(1), "tasks.text.objectives[0]: objective 'mine'")
    for _ in range(CHECKED):
        assert run(first, hook) == 2
    return first, hook


def test_every_call_outside_of_a_run_is_checked() -> None:
    for _ in range(3 * CHECKED):
        with pytest.raises(WorkbenchError, match="Hook returned 'text', or something"):
            call(Hook("text"), "", NUMBER._replace(describe=lambda found, *_: f"{found!r}, or something"))


def test_the_first_micro_batches_are_checked_at_once() -> None:
    first, hook = FirstMicroBatches(), Hook(True)  # a number of a kind, which nothing further on refuses
    strict = Returns("no flag", lambda found, *_: found is not True)
    for _ in range(CHECKED):
        with pytest.raises(WorkbenchError, match="Hook returned True; allowed: no flag"):
            run(first, hook, strict)
    assert run(first, hook, strict) == 2


def test_each_task_has_first_micro_batches(trusted: tuple[FirstMicroBatches, Hook]) -> None:
    first, hook = trusted
    hook.returned = True
    strict = Returns("no flag", lambda found, *_: found is not True)
    assert run(first, hook, strict) == 2
    with pytest.raises(WorkbenchError, match="allowed: no flag"):
        run(first, hook, strict, task="other")


def test_a_hook_that_is_wrong_later_is_named(trusted: tuple[FirstMicroBatches, Hook]) -> None:
    first, hook = trusted
    hook.returned = None
    message = "tasks.text.objectives[0]: objective 'mine' returned None (is a `return` missing?); allowed: a number"
    with pytest.raises(WorkbenchError, match=re.escape(message)) as raised:
        run(first, hook)
    assert isinstance(raised.value.__cause__, TypeError)
    assert calls._checking


def test_what_goes_to_another_process_is_always_checked(trusted: tuple[FirstMicroBatches, Hook]) -> None:
    first, hook = trusted
    hook.returned, before = None, hook.calls
    with pytest.raises(WorkbenchError, match="returned None"), first.checked("text", lambda: None):
        call(hook, "", ALWAYS)
    assert hook.calls == before + 1


@pytest.mark.parametrize("error", [RuntimeError("boom"), WorkbenchError("wrong input"), MemoryError()])
def test_an_error_that_no_return_explains_stays_what_it_is(
    trusted: tuple[FirstMicroBatches, Hook], error: Exception
) -> None:
    first, hook = trusted
    before = hook.calls
    with pytest.raises(type(error)) as raised, first.checked("text", lambda: add(hook)):
        raise error
    assert raised.value is error
    assert hook.calls == before + isinstance(error, RuntimeError)  # the others say themselves what is wrong
    assert calls._checking


class Late(nn.Module):
    """A module like a score bias inside of compiled code."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_compiled_code_does_not_depend_on_what_is_checked() -> None:
    tensor = Returns("a tensor", lambda found, *_: isinstance(found, Tensor))
    compiled = torch.compile(lambda late, x: call(late, "", tensor, x), backend="eager", fullgraph=True)
    late, first = Late(), FirstMicroBatches()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(CHECKED + 2):
            with first.checked("text", lambda: None):
                assert compiled(late, torch.zeros(2)).tolist() == [1, 1]


class Counting(nn.Module):
    """A layer with a buffer, which its forward pass changes, replaces or leaves alone."""

    def __init__(self, way: str, saved: bool = True) -> None:
        super().__init__()
        self.way = way
        self.register_buffer("seen", torch.zeros(1), persistent=saved)

    def forward(self, value: Tensor) -> Tensor:
        if self.way == "in place":
            self.seen += 1
        elif self.way == "replaced":
            self.seen = self.seen + 1
        elif self.way == "data":
            self.seen.data = self.seen + 1
        return value + self.seen


@pytest.mark.parametrize("way", ["in place", "replaced", "data"])
def test_a_buffer_that_changes_in_a_forward_pass_is_named_once(way: str, caplog: pytest.LogCaptureFixture) -> None:
    layer = mark(nn.Sequential(Counting(way)), "model.layers[1]: layer 'mine'")
    first = FirstMicroBatches(nn.Sequential(layer))
    for _ in range(2):
        with first.checked("text", lambda: None):
            layer(torch.ones(1))
    (said,) = caplog.messages
    assert said.startswith("model.layers[1]: layer 'mine': the buffer 'seen' of Counting was changed in a forward pass")


def test_buffers_that_are_not_saved_or_stay_are_allowed(caplog: pytest.LogCaptureFixture) -> None:
    layers = nn.Sequential(Counting("in place", saved=False), Counting("left alone"))
    with FirstMicroBatches(layers).checked("text", lambda: None):
        layers(torch.ones(1))
    assert not caplog.messages
