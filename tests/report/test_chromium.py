"""The page in a real browser, without a network: it renders, in both colour schemes, wide and narrow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.report.page import write_report
from workbench.report.run import load_run

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=2000",
)  # fmt: skip


def screenshot(page: Path, target: Path, profile: Path, width: int, height: int, *more: str) -> np.ndarray:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium: the report was not looked at in a browser; apt-get install chromium")
    command = [browser, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", *more]
    done = subprocess.run(
        [*command, f"--screenshot={target}", page.as_uri()], capture_output=True, text=True, timeout=600, check=False
    )
    assert target.is_file(), done.stderr[-2000:]
    with Image.open(target) as image:
        return np.asarray(image.convert("RGB")).astype(int)


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (500, False)])
def test_screenshot(runs: list[Path], tmp_path: Path, width: int, dark: bool) -> None:
    page = tmp_path / "report.html"
    write_report([load_run(folder) for folder in runs], page, "Demo")
    more = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    pixels = screenshot(page, tmp_path / "page.png", tmp_path / "profile", width, 2600, *more)
    assert pixels.shape == (2600, width, 3)
    ground = pixels[5, 5].mean()
    assert ground < 60 if dark else ground > 230
    line = (0x86, 0xB4, 0xE0) if dark else (0x2F, 0x5D, 0x8A)
    assert (np.abs(pixels - line).sum(2) < 24).sum() > 500, "no loss curve is drawn"
    assert (np.abs(pixels - ground).sum(2) > 60).mean() > 0.02, "the page is all but empty"
    edge = pixels[:, -6:]
    assert (np.abs(edge - pixels[5, 5]).sum(2) > 30).mean() < 0.01, "something runs over the edge of the page"


def test_the_page_allows_its_own_script(runs: list[Path], tmp_path: Path) -> None:
    """It marks the heads that sort and the charts that zoom."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium: the script of the report did not run; apt-get install chromium")
    page = tmp_path / "report.html"
    write_report([load_run(folder) for folder in runs], page, "Demo")
    command = [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False).stdout
    assert 'class="sorts"' in found or 'class="words sorts"' in found
    assert found.count('class="zooms"') == found.count("data-frame=") > 0
