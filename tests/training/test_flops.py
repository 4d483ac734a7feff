"""Counting operations is a step that leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from workbench.recipe.reading import load_recipe
from workbench.tasks.building import make_root, tasks_of
from workbench.text.tokenizer import Tokenizer
from workbench.training.flops import flops_per_row
from workbench.training.verify import verify_resume


def counting(tree: dict[str, Any]) -> None:
    tree["model"]["layers"].append({"layer": "toy_parts:Counting", "stream": "text"})


def test_buffers_modes_and_generators_stay(make_recipe: Any) -> None:
    recipe = load_recipe(str(make_recipe(counting)), trust=True)
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    tasks = tasks_of(recipe, tokenizer)
    root = make_root(recipe, tasks, tokenizer).train()
    root.network().layers[0].eval()
    samples = [{"key": str(n), "text": "the old river runs " * n, "draw": (0, 0, n)} for n in range(1, 5)]
    micro = tasks["text"].micro_batch(samples, (0, 0, 0))
    before = {name: buffer.clone() for name, buffer in root.named_buffers()}
    tensors, modes = dict(root.named_buffers()), [module.training for module in root.modules()]
    generator = torch.get_rng_state()
    assert flops_per_row(root, [micro], None) > 0
    assert before.keys() == dict(root.named_buffers()).keys()
    for name, buffer in root.named_buffers():
        assert buffer is tensors[name]
        assert torch.equal(buffer, before[name]), name
    assert [module.training for module in root.modules()] == modes
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.grad is None for parameter in root.parameters())


def test_a_model_whose_buffers_move_goes_on_exactly(make_recipe: Any, tmp_path: Path) -> None:
    recipe = load_recipe(str(make_recipe(counting)), ["train.max_steps=6"], trust=True)
    verdict = verify_resume(recipe, tmp_path, steps=4)
    assert verdict.equal, (verdict.different, verdict.weights)
