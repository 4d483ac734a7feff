"""A recipe, or a run that somebody sent, runs nothing: neither what it names nor the code that comes with it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as product
from tests.robustness.hostile import PARTS
from workbench.components.building import find
from workbench.components.kinds import KINDS
from workbench.components.trust import import_named
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.recipe.spec import Recipe, SequenceSpec

Refused = Callable[..., str]
PLANTED = """
from pathlib import Path

from torch import nn

Path("EXECUTED").touch()


class Planted(nn.Module):
    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()

    def forward(self, hidden, context):
        return hidden


def panel(run):
    return "<p>planted</p>"
"""
LAYER = "model.layers=[{layer: planted:Planted}]"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test had imported is imported anew by the next one."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("planted", "around", "shipped_by_pip"):
            del sys.modules[name]


@pytest.fixture
def planted(world: Path) -> Path:
    """`planted.py` next to the recipe: it leaves a file when it is run."""
    (world / "planted.py").write_text(PLANTED)
    return world


def executed(folder: Path) -> bool:
    return (folder / "EXECUTED").exists()


@pytest.fixture
def brought(planted: Path, workbench: Callable[..., Any]) -> Path:
    """A run with a component of its own, as it is sent to another person."""
    assert workbench("pretrain", "recipe.yaml", LAYER, "--run", "theirs/run", "--trust").code == 0
    (planted / "planted.py").unlink()
    (planted / "EXECUTED").unlink()
    sys.modules.pop("planted")
    return planted / "theirs" / "run"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_classes_of_the_kind_are_parts(planted: Path, kind: str) -> None:
    taken = []
    for name in PARTS:
        with contextlib.suppress(WorkbenchError):
            find(kind, name)
            taken.append(name)
        taken += [f"{name} was executed"] if executed(planted) else []
    assert taken == (["torch.nn:Linear"] if kind == "embedding" else [])


@pytest.mark.parametrize("name", PARTS)
def test_a_recipe_that_names_something_else_is_refused(planted: Path, refused: Refused, name: str) -> None:
    before = sorted(planted.iterdir())
    builder = f"tasks.text.sequence={{builder: {json.dumps(name)}, args: [touch, EXECUTED]}}"
    message = refused("show", "recipe.yaml", builder, "--batch", *(["--trust"] if "planted" in name else []))
    assert "builder" in message
    assert sorted(planted.iterdir()) == before


def test_an_embedding_without_a_size_is_reported(world: Path, refused: Refused) -> None:
    stream = "model.streams.text={embedding: torch.nn:Linear, in_features: 2, out_features: 2}"
    assert "the embedding Linear has no hidden_size" in refused("pretrain", "recipe.yaml", stream, "--run", "run")


@pytest.mark.parametrize("command", [["show", "--batch"], ["pretrain"], ["verify-resume", "--steps", "2"]])
def test_code_next_to_a_recipe_is_run_when_trusted(
    planted: Path, refused: Refused, workbench: Callable[..., Any], command: list[str]
) -> None:
    before = sorted(planted.iterdir())
    message = refused(command[0], "recipe.yaml", LAYER, *command[1:])
    assert str(planted / "planted.py") in message
    assert "--trust" in message
    assert "Nothing was run" in message
    assert sorted(planted.iterdir()) == before
    reported = workbench(command[0], "recipe.yaml", LAYER, *command[1:], "--trust")
    assert reported.code == 0, reported.err
    assert executed(planted) or command[0] == "show"  # of a batch no layer is built


@pytest.mark.parametrize(
    "command",
    [
        "show theirs/run/recipe.yaml --batch",
        "pretrain theirs/run/recipe.yaml --run again",
        "encode theirs/run notes.txt --output vectors.safetensors",
        "export theirs/run --as bert --output exported",
        "evaluate entity-typing theirs/run corpora/text",
        "evaluate vqa theirs/run corpora/text",
        "evaluate retrieval theirs/run corpora/text",
    ],
)
def test_code_in_a_run_is_run_when_trusted(brought: Path, refused: Refused, command: str) -> None:
    here = Path.cwd()
    before = sorted(here.iterdir())
    assert str(brought / "code" / "planted.py") in refused(*command.split())
    assert sorted(here.iterdir()) == before
    assert "planted" not in sys.modules


class OnMlm(DownstreamTask[Tuning, Scoring]):
    tuning, scoring = Tuning, Scoring

    def setup(self, tuning: Tuning, base: Recipe) -> Setup:
        return Setup(SequenceSpec({"builder": "document", "max_length": 64}), {"objective": "mlm"})


def test_code_in_a_run_is_fine_tuned_when_trusted(brought: Path) -> None:
    for overrides in (None, [LAYER]):
        with pytest.raises(WorkbenchError, match=r"planted\.py"):
            fine_tune(OnMlm(), Tuning(run=brought, corpus="corpora/text", overrides=overrides))
    tuning = Tuning(run=brought, corpus="corpora/text", trust=True, epochs=0.1)
    assert fine_tune(OnMlm(), tuning).name == "run-onmlm"


def test_code_in_the_current_folder_is_named_when_trusted(planted: Path, workbench: Callable[..., Any]) -> None:
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0
    more = "model.layers=[{layer: self, stream: text, num_heads: 2, intermediate_size: 32}, {layer: planted:Planted}]"
    options: dict[str, Any] = {"run": Path("run"), "corpus": "corpora/text", "epochs": 0.1, "overrides": [more]}
    with pytest.raises(WorkbenchError, match=r"planted\.py"):
        fine_tune(OnMlm(), Tuning(**options))
    assert not executed(planted)
    tuned = fine_tune(OnMlm(), Tuning(**options, trust=True))
    assert executed(planted)
    assert (tuned / "code" / "planted.py").read_text() == PLANTED
    assert list(json.loads((tuned / "data.json").read_text())["read"]["part"]) == ["planted.py"]


def test_loading_a_run_with_code_is_reported_each_time(brought: Path) -> None:
    for _ in range(2):
        with pytest.raises(WorkbenchError, match="trust=True"):
            product.load(brought)
        assert len(product.load(brought, trust=True).torch.network().layers) == 1


def test_a_run_of_shipped_parts_needs_no_trust(world: Path, workbench: Callable[..., Any]) -> None:
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0
    (world / "run" / "kg.py").write_text(PLANTED)
    (world / "run" / "planted.py").write_text(PLANTED)
    assert product.load(world / "run").recipe.name == "recipe"
    assert workbench("encode", "run", "notes.txt", "--output", "vectors.safetensors").code == 0
    assert not executed(world)


def test_reading_the_weights_of_a_run_runs_nothing(brought: Path, workbench: Callable[..., Any]) -> None:
    assert workbench("pretrain", "recipe.yaml", "model.init_from=theirs/run", "--run", "mine").code == 0
    assert workbench("report", "theirs/run", "--output", "report.html").code == 0
    assert not executed(Path.cwd())


@pytest.mark.parametrize("module", ["kg", "torch", "typer", "workbench", "yaml"])
def test_a_file_with_an_installed_name_is_never_run(world: Path, workbench: Callable[..., Any], module: str) -> None:
    (world / f"{module}.py").write_text(PLANTED)
    assert workbench("show", "recipe.yaml", "--batch", "--trust").code == 0
    with pytest.raises(WorkbenchError):
        find("layer", f"{module}:Planted")
    assert not executed(world)


def test_the_current_folder_is_not_where_installed_modules_come_from(planted: Path) -> None:
    """`python -m` puts the current folder first; a real process, as it is Python that would import from there."""
    for name in ("typer", "rich", "omegaconf"):
        (planted / f"{name}.py").write_text(PLANTED)
    command = [sys.executable, "-m", "workbench", "show", "recipe.yaml", "--batch", LAYER]
    path = os.pathsep.join(filter(None, [str(Path(product.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, cwd=planted, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "planted.py" in done.stderr
    assert "Traceback" not in done.stderr
    assert not executed(planted)


def test_the_current_folder_is_not_trusted_where_python_imports_from_it(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(WorkbenchError, match=r"planted\.py"):
        import_named("layer", "planted:Planted")
    assert not executed(planted)


@pytest.mark.parametrize("missing", [False, True])
def test_packages_around_a_module_are_code_too(planted: Path, refused: Refused, missing: bool) -> None:
    (planted / "around").mkdir()
    (planted / "around" / "__init__.py").write_text(PLANTED)
    if not missing:
        (planted / "planted.py").rename(planted / "around" / "inner.py")
    message = refused("show", "recipe.yaml", "--batch", "model.layers=[{layer: around.inner:Planted}]")
    assert str(planted / "around" / "__init__.py") in message
    assert (str(planted / "around" / "inner.py") in message) is not missing
    assert not executed(planted)


def test_a_folder_without_init_and_a_linked_folder_are_code_too(
    planted: Path, refused: Refused, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (planted / "planted.py").rename(elsewhere / "inner.py")
    (planted / "around").symlink_to(elsewhere)
    message = refused("show", "recipe.yaml", "--batch", "model.layers=[{layer: around.inner:Planted}]")
    assert str(planted / "around" / "inner.py") in message
    assert not executed(planted)


def test_an_installed_part_needs_no_trust(
    world: Path,
    workbench: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = tmp_path_factory.mktemp("site-packages")
    (site / "shipped_by_pip.py").write_text(PLANTED)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    layers = "model.layers=[{layer: shipped_by_pip:Planted}]"
    assert workbench("pretrain", "recipe.yaml", layers, "--run", "run").code == 0
    assert executed(world)
    with pytest.raises(WorkbenchError, match="is of type function"):
        find("layer", "shipped_by_pip:panel")


@pytest.mark.parametrize(
    "name", ["planted:panel", "os:system", "workbench.report.panels:panel_names", "kg.graph.store:x"]
)
def test_panels_of_a_run_are_functions_that_are_trusted(
    world: Path, workbench: Callable[..., Any], refused: Refused, name: str
) -> None:
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0
    (world / "run" / "planted.py").write_text(PLANTED)
    (world / "run" / "evaluations").mkdir()
    (world / "run" / "evaluations" / "a.json").write_text(json.dumps({"task": "a", "numbers": {}, "panels": [name]}))
    message = refused("report", "run")
    assert name.partition(":")[0] in message
    assert not executed(world)
    assert not (world / "run" / "report.html").exists()
    if name == "planted:panel":
        assert workbench("report", "run", "--trust").code == 0
        assert "<p>planted</p>" in (world / "run" / "report.html").read_text()
