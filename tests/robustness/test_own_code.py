"""Code next to a recipe belongs to the run: recorded, taken along, and not confused with what is installed."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import workbench as product
from workbench.components.building import find
from workbench.components.trust import allow
from workbench.core.errors import BUG, WorkbenchError

LAYER = "model.layers=[{layer: own_layer:Own}]"
FILES = {
    "own_layer.py": """
from torch import nn

from own_helper import BIAS
from own_package.inner import FACTOR


class Own(nn.Module):
    def forward(self, hidden, context):
        from own_late import changed

        return {name: changed(rows) * FACTOR + BIAS for name, rows in hidden.items()}
""",
    "own_helper.py": "BIAS = 0.0\n",
    "own_late.py": "def changed(rows):\n    return rows\n",
    "own_package/__init__.py": "",
    "own_package/inner.py": "from . import deeper\n\nFACTOR = deeper.FACTOR\n",
    "own_package/deeper.py": "FACTOR = 1.0\n",
    "own_package/unused.py": "",
}
USED = sorted(set(FILES) - {"own_package/unused.py"})


def forget() -> None:
    """As in a new process."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


@pytest.fixture
def alongside(world: Path) -> Path:
    for name, text in FILES.items():
        (world / name).parent.mkdir(exist_ok=True)
        (world / name).write_text(text)
    return world


def start(workbench: Callable[..., Any], *more: str) -> Any:
    forget()
    return workbench("pretrain", "recipe.yaml", LAYER, "--run", "run", "--trust", *more)


def test_a_run_has_the_code_of_its_parts_and_what_it_imports(alongside: Path, workbench: Any) -> None:
    assert start(workbench).code == 0
    assert sorted(str(path.relative_to("run/code")) for path in Path("run").rglob("*.py")) == USED
    shutil.move("run", "sent")
    for name in FILES:
        (alongside / name).unlink()
    forget()
    sys.path[:] = [place for place in sys.path if place != str(alongside)]
    done = workbench("encode", "sent", "notes.txt", "--output", "vectors.safetensors", "--trust")
    assert done.code == 0, done.err


@pytest.mark.parametrize("taken", ["best", "checkpoints", "evaluations"])
def test_a_package_may_be_called_like_a_part_of_a_run(alongside: Path, workbench: Any, taken: str) -> None:
    layer = f"model.layers=[{{layer: {taken}.own:Own}}]"
    (alongside / taken).mkdir()
    (alongside / taken / "__init__.py").write_text("")
    (alongside / taken / "own.py").write_text(FILES["own_layer.py"])
    begun = workbench("pretrain", "recipe.yaml", layer, "--run", "run", "--trust", "train.save_every=1")
    assert begun.code == 0, begun.err
    assert not list(Path("run", taken).glob("*.py"))
    shutil.rmtree(alongside / taken)
    forget()
    sys.path[:] = [place for place in sys.path if place != str(alongside)]
    for name in [name for name in sys.modules if name.partition(".")[0] == taken]:
        del sys.modules[name]
    shutil.move("run", "sent")
    done = workbench("encode", "sent", "notes.txt", "--output", "vectors.safetensors", "--trust")
    assert done.code == 0, done.err


@pytest.mark.parametrize("name", USED)
def test_a_run_does_not_continue_with_edited_code(alongside: Path, workbench: Any, refused: Any, name: str) -> None:
    assert start(workbench).code == 0
    (alongside / name).write_text(FILES[name] + "# edited\n")
    forget()
    message = refused("pretrain", "recipe.yaml", LAYER, "--run", "run", "--trust")
    assert f"run was trained with other code:\n  part {name}: other content" in message
    assert "Restore it" in message
    assert "another run folder" in message
    assert Path("run/code", name).read_text() == FILES[name]
    (alongside / name).write_text(FILES[name])
    assert start(workbench).code == 0


def test_edited_code_is_taken_knowingly(alongside: Path, workbench: Any) -> None:
    assert start(workbench).code == 0
    (alongside / "own_helper.py").write_text("BIAS = 1.0\n")
    assert start(workbench, "--accept-changes").code == 0
    [accepted] = json.loads(Path("run/data.json").read_text())["accepted"]
    assert accepted["changes"] == ["part own_helper.py: other content"]
    assert sorted(accepted["before"]["part"]) == USED
    assert start(workbench).code == 0
    assert len(json.loads(Path("run/data.json").read_text())["accepted"]) == 1
    assert Path("run/code/own_helper.py").read_text() == "BIAS = 1.0\n"


def test_a_run_with_edited_code_is_not_used(alongside: Path, workbench: Any) -> None:
    assert start(workbench).code == 0
    Path("run/code/own_late.py").write_text("def changed(rows):\n    return rows * 2\n")
    shutil.move("run", "sent")
    for name in FILES:
        (alongside / name).unlink()
    forget()
    sys.path[:] = [place for place in sys.path if place != str(alongside)]
    with pytest.raises(
        WorkbenchError, match=r"part at own_late\.py is not the one that sent was trained with"
    ) as reported:
        product.load("sent", trust=True)
    advice = str(reported.value).rpartition("workbench ")[2].split()
    done = workbench(*advice, "--trust")
    assert done.code == 0, done.err
    product.load("sent", trust=True)
    assert "part own_late.py: other content" in Path("sent/data.json").read_text()


def test_new_weights_may_continue_with_other_code(alongside: Path, workbench: Any) -> None:
    assert start(workbench).code == 0
    (alongside / "own_helper.py").write_text("BIAS = 1.0\n")
    forget()
    done = workbench("pretrain", "recipe.yaml", LAYER, "model.init_from=run", "--run", "next", "--trust")
    assert done.code == 0, done.err


def test_a_part_of_the_current_folder_can_be_named_for_a_recipe_elsewhere(
    alongside: Path, workbench: Any, refused: Any
) -> None:
    (alongside / "recipes").mkdir()
    (alongside / "recipe.yaml").rename(alongside / "recipes" / "recipe.yaml")
    command = ("pretrain", "recipes/recipe.yaml", LAYER, "--run", "run")
    message = refused(*command)
    assert "Nothing was run" in message
    assert str(alongside / "own_layer.py") in message
    done = workbench(*command, "--trust")
    assert done.code == 0, done.err
    assert sorted(str(path.relative_to("run/code")) for path in Path("run").rglob("*.py")) == USED
    assert sorted(json.loads(Path("run/data.json").read_text())["read"]["part"]) == USED
    (alongside / "own_helper.py").write_text("BIAS = 1.0\n")
    forget()
    assert "part own_helper.py: other content" in refused(*command, "--trust")


def test_code_next_to_the_recipe_comes_before_the_current_folder(
    alongside: Path, workbench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (alongside / "recipes").mkdir()
    for name in ("recipe.yaml", *USED):
        (alongside / "recipes" / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(alongside / name, alongside / "recipes" / name)
    command = ("pretrain", "recipes/recipe.yaml", LAYER, "--trust", "--run")
    same = workbench(*command, "run")
    assert same.code == 0, same.err
    assert "is not used" not in caplog.text
    (alongside / "own_layer.py").write_text("raise AssertionError\n")
    forget()
    other = workbench(*command, "other")
    assert other.code == 0, other.err
    used, passed_over = alongside / "recipes" / "own_layer.py", alongside / "own_layer.py"
    reason = "because the folder of the other comes first, and they differ: move the one that is used"
    assert f"'own_layer' is {used}; {passed_over} is not used, {reason}" in caplog.text


def test_a_run_is_used_where_its_code_came_from(
    alongside: Path, workbench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Be the current folder imported from for something else (the task of an evaluation) or not."""
    assert start(workbench).code == 0
    for named in ([], ["own_task:Own"]):
        (alongside / "own_task.py").write_text("")
        for text in (FILES["own_layer.py"], "raise AssertionError"):
            forget()
            sys.path[:] = [
                place for place in sys.path if place not in (str(alongside), str(alongside / "run" / "code"))
            ]
            (alongside / "own_layer.py").write_text(text)
            allow(named, alongside, "own_task:Own", trust=True)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                product.load("run", trust=True)
            kept, own = alongside / "run" / "code" / "own_layer.py", alongside / "own_layer.py"
            used = f"'own_layer' is {kept}; {own} is not used"
            assert ("is not used" in caplog.text) == (used in caplog.text) == (text != FILES["own_layer.py"])


def test_a_module_that_is_nowhere_is_reported_with_all_places(world: Path, refused: Any) -> None:
    message = refused("pretrain", "recipe.yaml", LAYER, "--run", "run", "--trust")
    assert (
        "next to the recipe's YAML, in a run's code or in the current folder can also be named, with --trust" in message
    )


def test_a_folder_of_data_with_an_installed_name_is_no_code(world: Path, caplog: pytest.LogCaptureFixture) -> None:
    (world / "kg").mkdir()
    (world / "kg" / "triples.tsv").write_text("")
    allow(["kg.objectives.dea:Dea"], world, "recipe.yaml", trust=True)
    assert not caplog.text


@pytest.mark.parametrize("installed", ["torch", "own_installed"])
def test_a_file_with_an_installed_name_is_reported(
    world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, installed: str
) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "own_installed.py").write_text("")
    sys.path.append(str(site))
    (world / f"{installed}.py").write_text(FILES["own_layer.py"])
    with caplog.at_level(logging.WARNING):
        allow([f"{installed}:Own"], world, "recipe.yaml", trust=True)
    with pytest.raises(WorkbenchError) as refusal:
        find("layer", f"{installed}:Own")
    for said in (caplog.text, str(refusal.value)):
        assert f"{world / f'{installed}.py'} is not used, because installed code comes first" in said
        assert (
            f"'{installed}' is {site / 'own_installed.py' if installed == 'own_installed' else torch.__file__}" in said
        )


def test_a_helper_with_an_installed_name_is_reported(alongside: Path, workbench: Any) -> None:
    (alongside / "yaml.py").write_text("def changed(rows):\n    return rows\n")
    (alongside / "own_helper.py").write_text("import yaml\n\nBIAS = yaml.BIAS\n")
    ended = start(workbench)
    assert ended.code == BUG
    assert f"'yaml' is {yaml.__file__}; {alongside / 'yaml.py'} is not used" in ended.err
    assert "AttributeError: module 'yaml' has no attribute 'BIAS'" in ended.err
    assert ended.err.rstrip().endswith("raised in model.layers[0]: layer 'own_layer:Own'")


def test_a_helper_that_is_missing_is_reported(alongside: Path, refused: Any) -> None:
    (alongside / "own_helper.py").unlink()
    message = refused("pretrain", "recipe.yaml", LAYER, "--run", "run", "--trust")
    assert "model.layers[0]: layer 'own_layer:Own' needs the package 'own_helper'" in message
    assert "neither installed nor next to 'own_layer'" in message
    assert not Path("run").exists()


TASK = """
from dataclasses import dataclass

from own_helper import BIAS
from workbench.evaluation.options import Scoring
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.pretraining.objective import Objective


@dataclass(frozen=True, kw_only=True)
class OwnScoring(Scoring):
    \"\"\"Tells a number of the code next to it.\"\"\"

    measured: int = 1


class Own(DownstreamTask):
    scoring, objective = OwnScoring, Objective

    def score(self, run, corpus, scoring):
        return Result(self.name, {"bias": BIAS}, {"texts": scoring.measured, "of corpora": 1})
"""


def test_what_an_own_task_imports_comes_from_the_run_first(
    alongside: Path, workbench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert start(workbench).code == 0
    (alongside / "own_task.py").write_text(TASK)
    (alongside / "own_helper.py").write_text("BIAS = 7.0\n")
    forget()
    sys.path[:] = [place for place in sys.path if place not in (str(alongside), str(alongside / "run" / "code"))]
    done = workbench("evaluate", "own_task:Own", "run", "corpora/text", "--trust")
    assert done.code == 0, done.err
    (result,) = Path("run/evaluations").glob("own*.json")
    assert json.loads(result.read_text())["numbers"] == {"bias": 0.0}
    assert f"'own_helper' is {alongside / 'run' / 'code' / 'own_helper.py'}" in caplog.text


def test_an_own_task_that_measures_nothing_is_refused(alongside: Path, workbench: Any, refused: Any) -> None:
    assert start(workbench).code == 0
    (alongside / "own_task.py").write_text(TASK)
    forget()
    message = refused("evaluate", "own_task:Own", "run", "corpora/text", "--measured", 0, "--trust")
    assert "own has measured nothing of " in message
    assert "corpora/text; its counts: 0 texts, 1 of corpora. Evaluate on records" in message
    assert not list(Path("run").glob("evaluations/*.json"))


def test_own_parts_of_a_recipe_are_listed(alongside: Path, workbench: Any, refused: Any) -> None:
    recipe = (alongside / "recipe.yaml").read_text()
    (alongside / "recipe.yaml").write_text(recipe.replace("layer: self,", "layer: 'own_layer:Own',"))
    assert "own_layer.py" in refused("components", "--recipe", "recipe.yaml")
    (alongside / "own_layer.py").write_text(OPTIONS)
    forget()
    shown = workbench("components", "layer", "--recipe", "recipe.yaml", "--trust").out
    assert all(text in shown for text in ("own_layer:Own", "What passes.", "factor", "a number from 0, at most 1"))
    assert "cross" not in shown
    assert "names no transform by import path (found: layer)" in refused(
        "components", "transform", "--recipe", "recipe.yaml", "--trust"
    )


OPTIONS = """
from torch import nn

from workbench.core.options.bounds import Share


class Own(nn.Module):
    \"\"\"What passes.\"\"\"

    def __init__(self, stream, num_heads, intermediate_size, factor: Share = 0.5):
        super().__init__()

    def forward(self, hidden, context):
        return hidden
"""
