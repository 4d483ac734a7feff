"""The components, the cases in their test files, and the missing ones."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from pipelines.readers.formats import formats
from tests.contracts.cases import KINDS, Case
from tests.contracts.material import tokenizer
from workbench.components.building import build, short_names
from workbench.components.kinds import KINDS as COMPONENTS
from workbench.corpora.schema.schema import KINDS as CORPORA
from workbench.evaluation.task_modules import task_modules

ROOT = Path(__file__).resolve().parents[2]


class Found(NamedTuple):
    """A case, and the component that it is of."""

    part: str
    case: Any


def components_of(kind: str) -> dict[str, str]:
    """The components of a kind that come with the workbench: name -> module, as if each had a file of its own."""
    if kind == "reader":
        return {f"{k} {n}": r.__module__ for k in CORPORA for n, r in formats(k).items()}
    if kind == "evaluation":
        return task_modules()
    packages = {name: name.rpartition(".")[0] or "workbench" for name in short_names(kind)}
    return {name: f"{package}.{COMPONENTS[kind].place}.{name.rpartition('.')[2]}" for name, package in packages.items()}


def file_of_tests(module: str) -> Path:
    """Where the tests of a module are: the folders of tests are those of the packages, the core's at the top.

    Of a component in a file with others, these are a file of its own, or else the file of tests of the whole kind.
    """
    *folders, name = module.removeprefix("workbench.").split(".")
    own, shared = Path("tests", *folders, f"test_{name}.py"), Path("tests", *folders[:-1], f"test_{folders[-1]}.py")
    in_one_file = (ROOT / Path(*module.split(".")[:-1])).with_suffix(".py").is_file()
    return shared if in_one_file and not (ROOT / own).is_file() else own


def stated(kind: str, name: str) -> dict[str, Case] | str:
    """The cases of a component by the name of each variant, or why it is excused from all contracts.

    Raises:
        LookupError: the file where they belong does not state them; says which file should hold what.
    """
    module = components_of(kind)[name]
    path, wanted, own = file_of_tests(module), KINDS[kind].__name__, module.rpartition(".")[2]
    shared = path.stem != f"test_{own}"
    ask = f"{path} should hold CASE = {wanted}(...) or CASES = {{...}} (see tests/contracts/cases.py), or EXCUSED = why"
    if shared:
        ask = f"{path} should hold CASES = {{{own!r}: {wanted}(...), ...}} (see tests/contracts/cases.py)"
    if not (ROOT / path).is_file():
        raise LookupError(f"{kind} {name} has no case: {ask}")
    tests = importlib.import_module(".".join(path.with_suffix("").parts))
    found = [getattr(tests, key) for key in ("CASE", "CASES", "EXCUSED") if hasattr(tests, key)]
    if shared:
        found = [each[own] for each in found if own in each]
    if len(found) != 1:
        raise LookupError(f"{kind} {name} has {len(found)} of CASE, CASES and EXCUSED: {ask}")
    cases = {"": found[0]} if isinstance(found[0], Case) else found[0]
    if isinstance(cases, str) and len(cases.split()) > 2:
        return cases
    if not isinstance(cases, dict) or not cases or not all(isinstance(case, KINDS[kind]) for case in cases.values()):
        raise LookupError(f"what is stated of {kind} {name} is of another kind: {ask}")
    return cases


@cache
def cases_of(kind: str) -> dict[str, Found]:
    """The cases of a kind by an id; a component without one is left out here and fails in `test_components.py`."""
    found = {}
    for name in components_of(kind):
        try:
            cases = stated(kind, name)
        except LookupError:
            continue
        if isinstance(cases, dict):
            found |= {f"{name} {variant}".strip(): Found(name, case) for variant, case in cases.items()}
    return found


def over(kind: str, *contracts: str) -> pytest.MarkDecorator:
    """The test is for every case of the kind that is excused from none of the contracts."""
    assert set(contracts) <= KINDS[kind].contracts
    kept = [name for name, found in cases_of(kind).items() if not {*contracts} & {*found.case.excused}]
    return pytest.mark.parametrize("name", kept)


def case_of(kind: str, name: str) -> Any:
    """The case of an id."""
    return cases_of(kind)[name].case


def make(kind: str, name: str, given: dict[str, Any] | None = None, **options: Any) -> Any:
    """The component of a case; objectives are named `it`."""
    part, case = cases_of(kind)[name]
    torch.manual_seed(0)
    offered = {"tokenizer": tokenizer(), "vocab_size": tokenizer().vocab_size, **(given or {})}
    made = build(kind, {kind: part, **case.options, **options}, "", **offered)
    if kind == "objective":
        made.name = "it"
    return made
