"""A recipe's sizes: values that differ, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes.shipped_recipes import sizes
from workbench.core.errors import WorkbenchError
from workbench.optimization.lr_schedules import make_lr_schedule
from workbench.recipe.reading import load_recipe
from workbench.recipe.sizes import splits
from workbench.recipe.spec import Recipe

BASE = """
vars: {data: corpora}
tokenizer: ${vars.data}/tokenizer.json
model:
  streams: {text: {embedding: token, hidden_size: 32, max_positions: 64}}
  layers: [{layer: self, stream: text, num_heads: 2}]
tasks:
  text: {corpora: [a], sequence: {builder: document, max_length: 64}, objectives: [{objective: mlm}]}
train: {max_steps: 10, global_batch_size: 4, micro_batch_size: 4, lr: 1e-3}
"""


def written(folder: Path, sizes: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"{BASE}\n{sizes}")
    return path


def test_a_pattern_changes_all_such_values_in_sizes_and_overrides(tmp_path: Path) -> None:
    written(tmp_path, 'sizes: {wide: {"model.**.num_heads": 4, "model.streams.*.hidden_size": 64}}')
    wide = load_recipe(str(tmp_path / "mine-wide.yaml"), ["model.**.max_positions=80"])
    assert wide.networks["main"].layers == [{"layer": "self", "stream": "text", "num_heads": 4}]
    assert wide.networks["main"].streams["text"] == {"embedding": "token", "hidden_size": 64, "max_positions": 80}
    with pytest.raises(WorkbenchError, match=r"^override 'model\.\*\*\.width=3': model\.\*\*\.width matches no value"):
        load_recipe(str(tmp_path / "mine.yaml"), ["model.**.width=3"])


def test_a_size_is_the_recipe_with_its_values_then_overrides(tmp_path: Path) -> None:
    written(tmp_path, 'sizes: {very-large: {model.streams.text.hidden_size: 64, "model.layers[0].repeat": 3}}')
    large = load_recipe(str(tmp_path / "mine-very-large.yaml"), ["vars.data=elsewhere", "train.lr=1"])
    assert large.name == "mine-very-large"
    assert large.networks["main"].streams["text"]["hidden_size"] == 64
    assert large.networks["main"].layers[0] == {"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3}
    assert (large.tokenizer, large.train.lr) == ("elsewhere/tokenizer.json", 1)
    assert load_recipe(str(tmp_path / "mine.yaml")).networks["main"].streams["text"]["hidden_size"] == 32


def test_overrides_reach_what_a_size_refers_to(tmp_path: Path) -> None:
    sizes = 'sizes: {large: {"tasks.text.corpora": ["${vars.data}/more"], tokenizer: "${vars.data}/large.json"}}'
    written(tmp_path, sizes)
    large = load_recipe(str(tmp_path / "mine-large.yaml"), ["vars.data=elsewhere"])
    assert list(large.tasks["text"].corpora) == ["elsewhere/more"]
    assert large.tokenizer == "elsewhere/large.json"


def test_a_recipe_of_the_very_name_comes_before_a_size(tmp_path: Path) -> None:
    written(tmp_path, "sizes: {large: {train.lr: 7}}")
    (tmp_path / "mine-large.yaml").write_text(BASE)
    assert load_recipe(str(tmp_path / "mine-large.yaml")).train.lr == 1e-3


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            "sizes: {large: 3}",
            r"mine\.yaml: sizes\.large = 3; allowed: a mapping of size names to values by dotted key",
        ),
        ("sizes: [large]", r"sizes = \['large'\]; allowed: a mapping of size names"),
        ("sizes: {'': {}}", r"sizes: the name = ''; allowed: a mapping of size names"),
        ("sizes: {large: {'model.layers[2].repeat': 3}}", r"sizes\.large: there is no model\.layers\[2\]"),
        ("sizes: {large: {train.lr: fast}}", r"train\.lr = 'fast' is of type str"),
        (
            "sizes: {large: {train.lrs: 1}}",
            r"^sizes\.large: .*mine\.yaml: unknown key 'lrs' in train\. Did you mean 'lr'",
        ),
        ("sizes: {small: {}}", r"no recipe file .*mine-large\.yaml.*mine\.yaml has the sizes small"),
    ],
)
def test_what_is_no_size_is_refused(tmp_path: Path, sizes: str, message: str) -> None:
    written(tmp_path, sizes)
    with pytest.raises(WorkbenchError, match=message):
        load_recipe(str(tmp_path / "mine-large.yaml"))


def test_an_unknown_size_of_a_shipped_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(WorkbenchError, match=r"unknown recipe 'bert-tinny'\. Did you mean 'bert-tiny'"):
        load_recipe("bert-tinny")


def test_a_name_may_have_hyphens_on_both_sides() -> None:
    assert list(splits("ernie-thu-very-large")) == [
        ("ernie-thu-very-large", None),
        ("ernie-thu-very", "large"),
        ("ernie-thu", "very-large"),
        ("ernie", "thu-very-large"),
    ]


@pytest.fixture(scope="module")
def every_size() -> dict[str, Recipe]:
    """All sizes of the shipped recipes, the tiny ones with three steps."""
    return {name: load_recipe(name, ["train.max_steps=3"] if name.endswith("-tiny") else []) for name in sizes()}


def test_every_size_of_a_shipped_recipe_is_one(every_size: dict[str, Recipe]) -> None:
    assert [name for name, recipe in every_size.items() if recipe.name != name] == []


def test_every_tiny_size_may_be_shortened(every_size: dict[str, Recipe]) -> None:
    """Without another override: its warm-up is a share of the run."""
    steps = {name: make_lr_schedule(recipe.train).warmup_steps for name, recipe in every_size.items()}
    assert {name for name, warmup in steps.items() if name.endswith("-tiny") and warmup >= 3} == set()
