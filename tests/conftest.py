"""Fixtures that every test may use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processor_time import ProcessorTime

ROOT = Path(__file__).resolve().parent.parent

# under nohup, or in the background of a script, these are ignored, and processes that tests start inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, default=0.0, help="seconds of processor time that a case may take")
    parser.addoption("--share", type=int, default=1, help="run every so many-th case, from the first on")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTime(config.getoption("budget")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the share, of the cases that marks and names have chosen."""
    if (share := config.getoption("--share")) > 1:
        config.hook.pytest_deselected(items=[case for n, case in enumerate(items) if n % share])
        items[:] = items[::share]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing goes into the user's cache, and nothing comes from there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real corpora and golden numbers: $WORKBENCH_SHARED, or `shared/` next to the checkout."""
    place = Path(os.environ.get("WORKBENCH_SHARED", ROOT.parent / "shared"))
    if not (place / "golden").is_dir():
        pytest.skip(f"no golden numbers at {place}: set WORKBENCH_SHARED to the folder that holds data/ and golden/")
    return place
