"""Components of a kind are in a folder, one a file, or in one file: both are found, listed and refused alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.components.building import build, find, short_names
from workbench.components.component_listing import component_entries
from workbench.components.kinds import KINDS, import_paths
from workbench.core.errors import WorkbenchError

HEAD = """from abc import ABC, abstractmethod
from typing import NamedTuple
from workbench.sequences.protocols import Noise
"""
NOISE = '''
class {title}(Noise):
    """{title} of a noise."""
    def __init__(self, rate: float = 0.5) -> None:
        self.rate = rate
    def __call__(self, sequence, stream, rng) -> None: ...
'''
SWAP, SWAP_TWO = NOISE.format(title="SwapNoise"), NOISE.format(title="SwapTwoNoise")
OTHERS = """
class HalfNoise(Noise, ABC):
    @abstractmethod
    def half(self): ...

class DrawNoise(NamedTuple):
    rows: int

class _HiddenNoise(SwapNoise): ...

class Swapping(SwapNoise): ...
"""


@pytest.fixture(params=["folder", "file"])
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with two noises: one that ships, as far as lists go."""
    place = tmp_path / "strange_noises" / "sequences" / "noises"
    place.parent.mkdir(parents=True)
    if request.param == "folder":
        place.mkdir()
        for name, code in {"__init__": "", "swap": SWAP, "swap_two": SWAP_TWO, "_half": f"{SWAP}{OTHERS}"}.items():
            (place / f"{name}.py").write_text(f"{HEAD}{code}")
    else:
        place.with_suffix(".py").write_text(f"{HEAD}{SWAP_TWO}{SWAP}{OTHERS}")
    monkeypatch.setattr("workbench.components.building.SHIPPED", ("workbench", "strange_noises"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield place
    for name in [name for name in sys.modules if name.startswith("strange_noises")]:
        del sys.modules[name]


def test_both_are_found_and_called_by_their_short_names(package: Path) -> None:
    for name, title in {"strange_noises.swap": "SwapNoise", "strange_noises.swap_two": "SwapTwoNoise"}.items():
        found = find("noise", name)
        assert (found.__name__, KINDS["noise"].name(found)) == (title, name)
        assert find("noise", KINDS["noise"].path(name)) is found
        assert import_paths({"noise": name}) == [KINDS["noise"].path(name)]
    assert build("noise", {"noise": "strange_noises.swap", "rate": 0.25}).rate == 0.25


def test_both_are_listed_without_what_is_private_abstract_or_no_component(package: Path) -> None:
    names = ["strange_noises.swap", "strange_noises.swap_two"]
    assert [name for name in short_names("noise") if "." in name] == names
    assert [entry.line for entry in component_entries("noise", names)] == [
        "SwapNoise of a noise.",
        "SwapTwoNoise of a noise.",
    ]


@pytest.mark.parametrize("name", ["swop", "_hidden", "Swap", "SWAP", "swap.two", "swaptwo", "swapping", "swap_noise"])
def test_an_unknown_name_is_refused_alike_before_anything_is_imported(package: Path, name: str) -> None:
    with pytest.raises(WorkbenchError, match=rf"unknown noise 'strange_noises\.{name}'.* strange_noises\.swap\b"):
        find("noise", f"strange_noises.{name}")


def test_a_class_of_a_file_that_is_no_component_is_refused(package: Path) -> None:
    if not package.is_dir():
        with pytest.raises(
            WorkbenchError, match=r"'strange_noises\.draw' is not of the kind noise; allowed: a class derived from"
        ):
            find("noise", "strange_noises.draw")
        with pytest.raises(WorkbenchError, match=r"'strange_noises\.half' lacks half, which every noise must define"):
            find("noise", "strange_noises.half")


def test_a_folder_and_a_file_of_one_kind_are_refused(package: Path) -> None:
    if package.is_dir():
        package.with_suffix(".py").touch()
    else:
        package.mkdir()
        assert find("noise", "strange_noises.swap")  # without Python files in it, it is no folder of components
        (package / "swap.py").touch()
    with pytest.raises(WorkbenchError, match=rf"in a folder or in a file, and {package} is both"):
        find("noise", "strange_noises.swap")


def test_a_class_that_a_file_defines_twice_is_refused(package: Path) -> None:
    if not package.is_dir():
        package.with_suffix(".py").write_text(f"{HEAD}{SWAP}{SWAP_TWO}{SWAP}")
        for ask in (lambda: find("noise", "strange_noises.swap"), lambda: short_names("noise")):
            with pytest.raises(WorkbenchError, match=r"defines the class SwapNoise twice; rename or remove one"):
                ask()
