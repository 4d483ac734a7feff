"""Every component has a short name, a case next to its own tests, and excuses that name contracts."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.contracts import cases as declared
from tests.contracts.case_finder import cases_of, components_of, file_of_tests, stated
from workbench.components.building import SHIPPED, short_names
from workbench.components.kinds import KINDS
from workbench.pretraining.objective import Objective


@cache
def classes_of(room: str) -> list[type]:
    """The classes that a package defines."""
    package = importlib.import_module(room)
    names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{room}.") if "__main__" not in info.name]
    modules = {name: importlib.import_module(name) for name in names}
    return [c for name, m in modules.items() for c in vars(m).values() if inspect.isclass(c) and c.__module__ == name]


def is_a(kind: str, part: type) -> bool:
    """Whether a class is a component of this kind, by its base or by the arguments of its method."""
    path = f"{part.__module__}:{part.__name__}"
    private = "._" in part.__module__ or part.__name__.startswith("_")
    if path == KINDS[kind].base or private or inspect.isabstract(part):
        return False
    if kind == "objective":
        return issubclass(part, Objective) and part.head is not Objective.head
    if not KINDS[kind].arguments:  # of a library's base
        return issubclass(part, KINDS[kind].base_class())
    found = vars(part).get(KINDS[kind].method)
    return inspect.isfunction(found) and list(inspect.signature(found).parameters) == ["self", *KINDS[kind].arguments]


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"lr_schedule"}))  # a schedule's method takes a step, as others do
def test_every_component_lies_where_its_short_name_says(kind: str) -> None:
    classes = [f"{c.__module__}:{c.__name__}" for room in SHIPPED for c in classes_of(room) if is_a(kind, c)]
    assert set(classes) <= {KINDS[kind].path(name) for name in short_names(kind)}


def test_every_kind_has_contracts() -> None:
    missing = set(KINDS) - set(declared.KINDS)
    assert not missing, f"{missing} need a Case in tests/contracts/cases.py and contracts next to it"
    plural = {
        kind: f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
        for kind in declared.KINDS
    }
    assert [kind for kind, name in plural.items() if not Path(__file__).with_name(f"test_{name}.py").is_file()] == []


@pytest.mark.parametrize("kind", sorted(declared.KINDS))
def test_every_component_has_a_case(kind: str) -> None:
    missing = []
    for name in components_of(kind):
        try:
            assert stated(kind, name)
        except LookupError as error:
            missing.append(str(error))
    assert missing == []


def test_a_missing_case_is_reported_with_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contracts.case_finder.short_names", lambda kind: ["kg.new"])
    with pytest.raises(LookupError, match=r"kg\.new has no case: tests/kg/objectives/test_new\.py .*ObjectiveCase\("):
        stated("objective", "kg.new")
    assert str(file_of_tests("workbench.models.layers.self")) == "tests/models/layers/test_self.py"


def test_components_of_one_file_may_share_a_file_of_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here `kg/sequences/noises.py`; a component with a file of tests of its own keeps it."""
    (tmp_path / "kg/sequences").mkdir(parents=True)
    (tmp_path / "kg/sequences/noises.py").touch()
    (tmp_path / "tests/kg/sequences/noises").mkdir(parents=True)
    (tmp_path / "tests/kg/sequences/noises/test_own.py").touch()
    (tmp_path / "tests/kg/sequences/test_noises.py").touch()
    monkeypatch.setattr("tests.contracts.case_finder.ROOT", tmp_path)
    monkeypatch.setattr("tests.contracts.case_finder.short_names", lambda kind: ["kg.swap", "kg.own", "kg.new"])
    several = {"swap": {"": declared.NoiseCase(), "wide": declared.NoiseCase({"rate": 0.5})}}
    modules = {"tests.kg.sequences.test_noises": SimpleNamespace(CASES=several)}
    modules["tests.kg.sequences.noises.test_own"] = SimpleNamespace(CASE=declared.NoiseCase())
    monkeypatch.setattr("tests.contracts.case_finder.importlib", SimpleNamespace(import_module=modules.__getitem__))
    assert stated("noise", "kg.swap") == several["swap"]
    assert list(stated("noise", "kg.own")) == [""]
    with pytest.raises(LookupError, match=r"kg\.new .*tests/kg/sequences/test_noises\.py should hold CASES = {'new': "):
        stated("noise", "kg.new")


@pytest.mark.parametrize("kind", sorted(declared.KINDS))
def test_excuses_are_from_contracts_and_have_reasons(kind: str) -> None:
    for name, (_, case) in cases_of(kind).items():
        assert set(case.excused) <= case.contracts, name
        assert all(len(reason.split()) > 2 for reason in case.excused.values()), name
