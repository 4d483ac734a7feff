"""Recipes: overrides, validation, and messages for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import dump_recipe, with_overrides

RECIPE = """
model:
  streams: {text: {embedding: token, hidden_size: 8}}
  layers: [{layer: self, stream: text, num_heads: 2, repeat: 2}]
tasks:
  text:
    corpora: [a, b]
    sequence: {builder: document, max_length: 16}
    objectives: [{objective: mlm, rate: 0.2}]
train: {max_steps: 3, global_batch_size: 8, micro_batch_size: 4, lr: 1e-3}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_and_its_overrides(file: Path) -> None:
    recipe = load_recipe(
        str(file), ["train.lr=2e-4", "tasks.text.corpora={c: 3}", "seed=7", "tasks.text.objectives[0].rate=1e-1"]
    )
    assert recipe.name == "my recipe"
    assert recipe.train.lr == 2e-4
    assert recipe.train.lanes == 2
    assert recipe.tasks["text"].corpora == {"c": 3.0}
    assert recipe.tasks["text"].sequence.builder == {"builder": "document", "max_length": 16}
    assert list(recipe.networks) == ["main"]
    assert recipe.seed == 7
    assert recipe.tasks["text"].objectives[0]["rate"] == 0.1


def test_keys_of_mappings_name_other_values_too(file: Path) -> None:
    places = '{"${vars.data}/a": 3, "${vars.data}/${name}": 1}'
    recipe = load_recipe(str(file), ["vars.data=/data", "name=b", f"tasks.text.corpora={places}"])
    assert recipe.tasks["text"].corpora == {"/data/a": 3.0, "/data/b": 1.0}
    with pytest.raises(WorkbenchError, match=r"\$\{vars\.dat\} in a key: the recipe has no such value"):
        load_recipe(str(file), ['tasks.text.corpora={"${vars.dat}/a": 3}'])
    with pytest.raises(WorkbenchError, match=r"two keys of a mapping are 'x/a'"):
        load_recipe(str(file), ["vars.data=x", 'tasks.text.corpora={"${vars.data}/a": 3, "x/a": 1}'])


def test_what_is_written_reads_back_equal(file: Path) -> None:
    recipe = load_recipe(str(file))
    again = file.with_name("again.yaml")
    again.write_text(dump_recipe(recipe))
    assert load_recipe(str(again)) == recipe


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.max_step=3", r"unknown key 'max_step'.*Did you mean 'max_steps'"),
        ("train.lr=fast", r"train\.lr = 'fast'.*allowed: a number above 0"),
        ("train.max_steps=2.5", r"train\.max_steps = 2\.5.*allowed: a whole number from 1"),
        ("train.lr_schedule=3", r"train\.lr_schedule = 3 .*a mapping of a component's name and options"),
        ("train.groups=[{match: heads, lr_factor: 0}]", r"train\.groups\[0\]\.lr_factor = 0; .*above 0"),
        ("train.groups=[{lr_factor: 2}]", r"train\.groups\[0\]: the key 'match' is missing"),
        ("train.layer_decay=1.5", r"train\.layer_decay = 1\.5; .*at most 1"),
        ("train.micro_batch_size=3", r"not a multiple"),
        ("control=no-kgs", r"unknown control 'no-kgs'.*'no-kg'"),
        ("tasks=3", r"tasks = 3 .*a mapping"),
        ("tasks.text.objectives=mlm", r"objectives = 'mlm'.*a list"),
        ("lr", r"not of the form key=value"),
    ],
)
def test_wrong_values_say_where_and_what_is_allowed(file: Path, override: str, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        load_recipe(str(file), [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr=fast", "override 'train.lr=fast': train.lr = 'fast' is of type str; allowed: "),
        ("train.max_step=3", "override 'train.max_step=3': unknown key 'max_step' in train. Did you mean 'max_steps'"),
        ("train.lr=${nowhere}", "override 'train.lr=${nowhere}': Interpolation key 'nowhere' not found"),
        ("tasks.text.corpora=[]", "override 'tasks.text.corpora=[]': tasks.text.corpora = []; allowed: a list of "),
        (
            "model.layers[3].num_heads=2",
            "override 'model.layers[3].num_heads=2': there is no model.layers[3]: model.layers has 1 element,",
        ),
        ("model.layers.first.num_heads=2", "there is no model.layers[first]: model.layers has 1 element,"),
    ],
)
def test_a_bad_override_is_named_and_not_the_file(file: Path, override: str, message: str) -> None:
    with pytest.raises(WorkbenchError) as refused:
        load_recipe(str(file), ["seed=3", override, "train.log_every=2"])
    assert message in str(refused.value)
    assert str(file) not in str(refused.value)


def test_an_override_that_only_fixes_is_not_named(file: Path) -> None:
    smaller = ["train.global_batch_size=1", "train.micro_batch_size=1"]
    with pytest.raises(WorkbenchError, match=r"^override 'tasks=\{\}': the recipe names no task"):
        load_recipe(str(file), [*smaller, "tasks={}"])


def test_what_the_file_says_is_not_the_overrides_fault(file: Path) -> None:
    file.write_text(RECIPE.replace("max_steps: 3", "max_steps: none"))
    with pytest.raises(WorkbenchError) as refused:
        load_recipe(str(file), ["seed=3"])
    assert str(refused.value).startswith(f"{file}: train.max_steps = 'none' is of type str; allowed: a whole number")


def test_an_override_of_a_runs_own_recipe_is_named(file: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"^override 'train.lr=fast': train\.lr = 'fast'"):
        with_overrides(load_recipe(str(file)), ["train.lr=fast"])


def test_a_missing_key_is_named(file: Path) -> None:
    file.write_text(RECIPE.replace("max_steps: 3, ", ""))
    with pytest.raises(WorkbenchError, match="'max_steps' is missing"):
        load_recipe(str(file))


def test_bad_yaml_and_unknown_recipes(file: Path) -> None:
    file.write_text("model: [")
    with pytest.raises(WorkbenchError, match=r"my recipe\.yaml"):
        load_recipe(str(file))
    with pytest.raises(WorkbenchError, match="unknown recipe 'no such'"):
        load_recipe("no such")
    with pytest.raises(WorkbenchError, match="there is no recipe file"):
        load_recipe("nowhere.yaml")


def test_several_networks(file: Path) -> None:
    text = RECIPE.replace("model:\n  streams: {text", "model:\n  small:\n   streams: {text").replace(
        "  layers:", "   layers:"
    )
    file.write_text(text)
    recipe: Recipe = load_recipe(str(file))
    assert list(recipe.networks) == ["small"]
