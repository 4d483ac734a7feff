"""Counting operations is a step that leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from workbench.core.processes.distributed import World
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.reading import load_recipe
from workbench.text.tokenizer import Tokenizer
from workbench.training.metrics import Operations, flops_per_row, measured_peak
from workbench.training.parallel import ReplicatedModel
from workbench.training.verify_resume import verify_resume


def counting(tree: dict[str, Any]) -> None:
    tree["model"]["layers"].append({"layer": "toy_components:Counting", "stream": "text"})


def test_buffers_modes_and_generators_stay(make_recipe: Any) -> None:
    recipe = load_recipe(str(make_recipe(counting)), trust=True)
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    tasks = tasks_of(recipe, tokenizer)
    root = make_model(recipe, tasks, tokenizer).train()
    root.network().layers[0].eval()
    samples = [{"key": str(n), "text": "the old river runs " * n, "draw": (0, 0, n)} for n in range(1, 5)]
    micro = tasks["text"].micro_batch(samples, (0, 0, 0))
    before = {name: buffer.clone() for name, buffer in root.named_buffers()}
    tensors, modes = dict(root.named_buffers()), [module.training for module in root.modules()]
    generator = torch.get_rng_state()
    assert flops_per_row(ReplicatedModel(root, World()), [micro], None) > 0
    assert before.keys() == dict(root.named_buffers()).keys()
    for name, buffer in root.named_buffers():
        assert buffer is tensors[name]
        assert torch.equal(buffer, before[name]), name
    assert [module.training for module in root.modules()] == modes
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.grad is None for parameter in root.parameters())


def test_a_model_whose_buffers_move_continues_exactly(make_recipe: Any, tmp_path: Path) -> None:
    recipe = load_recipe(str(make_recipe(counting)), ["train.max_steps=6"], trust=True)
    verdict = verify_resume(recipe, tmp_path, steps=4)
    assert verdict.equal, (verdict.different, verdict.weights)


class Given(torch.nn.Module):
    """Hands a parameter to a module, as torch's own counter forbids where `autograd.grad` runs."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w, self.p = torch.nn.Linear(size, size), torch.nn.Parameter(torch.ones(3, size))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows @ self.w(self.p).T


def test_a_module_that_is_given_a_parameter_is_counted() -> None:
    module, rows = Given(8), torch.randn(5, 8, requires_grad=True)
    with Operations() as counter:
        torch.autograd.grad(module(rows).sum(), [*module.parameters()])
    # of a product of [a, b] and [b, c] 2abc, and in the backward twice as many, but none of the rows' gradient
    assert counter.total == 3 * (2 * 3 * 8 * 8) + 2 * (2 * 5 * 8 * 3)


@pytest.mark.parametrize("causal", [False, True])
def test_operations_are_those_of_torch_and_of_attention_on_a_cpu(causal: bool) -> None:
    """Next to torch's counter, which has no formula for the CPU's attention, and the formula itself."""
    layer = torch.nn.Linear(16, 48)
    rows = torch.randn(2, 10, 16)

    def step() -> None:
        q, k, v = layer(rows).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.nn.functional.conv1d(out.flatten(1, 2), torch.ones(2, 40, 2)).sum().backward()

    with FlopCounterMode(display=False) as theirs:
        step()
    with Operations() as ours:
        step()
    product = 2 * (2 * 4) * 10 * 10 * 4  # batch x heads matrices [10, 4] x [4, 10]
    attention = 2 * product + 5 * product  # the backward makes the scores anew
    assert ours.total == theirs.get_total_flops() + attention


@pytest.mark.parametrize("checkpointing", [False, True])
def test_layers_that_run_again_count_once(make_recipe: Any, checkpointing: bool) -> None:
    root, micro = made(load_recipe(str(make_recipe())))
    plain = flops_per_row(ReplicatedModel(root, World()), [micro], None)
    root.network().checkpointing = checkpointing
    assert flops_per_row(ReplicatedModel(root, World()), [micro], None) == plain


def test_nothing_that_is_trained_is_counted_forward_alone(make_recipe: Any) -> None:
    root, micro = made(load_recipe(str(make_recipe())))
    whole = flops_per_row(ReplicatedModel(root, World()), [micro], None)
    root.requires_grad_(False)
    assert flops_per_row(ReplicatedModel(root, World()), [micro], None) == pytest.approx(whole / 3, rel=0.2)


def test_a_head_that_reads_attention_is_counted(make_recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The padded kernel may have no weights to look at."""
    root, micro = made(load_recipe(str(make_recipe())))
    plain = flops_per_row(ReplicatedModel(root, World()), [micro], None)
    root.heads["mlm"].reads_attention = True
    assert flops_per_row(ReplicatedModel(root, World()), [micro], None) >= plain


def test_measuring_the_machine_draws_no_number_of_the_run() -> None:
    before = torch.get_rng_state()
    assert measured_peak(torch.device("cpu"), None, repeats=1) > 0
    assert torch.equal(torch.get_rng_state(), before)


def made(recipe: Any) -> tuple[Any, Any]:
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    tasks = tasks_of(recipe, tokenizer)
    root = make_model(recipe, tasks, tokenizer).train()
    samples = [{"key": str(n), "text": "the old river runs " * n, "draw": (0, 0, n)} for n in range(1, 5)]
    return root, tasks["text"].micro_batch(samples, (0, 0, 0))
