"""The pretend device itself: what a GPU refuses is refused, what it computes is right, what it waits for is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.simulator

CHECKS = Path(__file__).parent / "emulation_checks.py"


@pytest.fixture(scope="module")
def found(device: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All checks of `emulation_checks.py`, in one process."""
    import subprocess
    import sys

    from tests.gpu_without_gpu.building import ROOT, environment

    output = tmp_path_factory.mktemp("checks") / "found.json"
    command = [sys.executable, "-m", "tests.gpu_without_gpu.emulation_checks", str(output)]
    done = subprocess.run(command, env=environment(device), cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-6000:]
    read: dict[str, Any] = json.loads(output.read_text())
    return read


def test_the_device_says_what_it_is(found: dict[str, Any]) -> None:
    assert found["device"] == ["Pretend GPU", [9, 0], 1]


@pytest.mark.parametrize(
    "operator",
    [
        "flash",
        "flash causal",
        "flash window",
        "flash causal, keys of a cache",
        "flash, heads share keys",
        "varlen",
        "sdpa flash",
        "sdpa efficient with a mask",
        "sdpa cudnn causal",
        "flex with a full block",
        "convolution",
        "GRU",
        "LSTM",
        "masked_scatter",
        "index by a mask",
        "softmax of halves in float32",
        "rms_norm",
        "log_sigmoid",
        "AdamW fused",
        "AdamW foreach",
    ],
)
def test_values_and_gradients_are_those_of_the_cpu(found: dict[str, Any], operator: str) -> None:
    """`found` is the largest difference, relative to the largest value; 16-bit inputs where the kernel wants them."""
    assert found["differences"][operator] < found["tolerances"][operator]


def test_random_numbers_are_those_of_the_cpu_and_come_again(found: dict[str, Any]) -> None:
    assert found["draws"] == {"rand": True, "multinomial": True, "dropout by checkpoint": True, "continues": True}


def test_dropped_weights_are_a_share_and_the_same_in_the_backward(found: dict[str, Any]) -> None:
    assert found["dropout"]["share"] == pytest.approx(0.25, abs=0.03)
    assert found["dropout"]["gradient"] < 2e-2


def test_tensors_of_two_devices_are_refused(found: dict[str, Any]) -> None:
    assert found["refused"] == dict.fromkeys(("add", "matmul", "masked_select", "convolution"), True)


def test_memory_that_nobody_wrote_is_recognised(found: dict[str, Any]) -> None:
    assert found["unwritten"] == {"float": True, "index": True}


@pytest.mark.parametrize(
    ("what", "waits"),
    [
        ("item", 1),
        ("from a list", 1),
        ("from pinned memory", 0),
        ("nonzero", 1),
        ("index by a mask", 1),
        ("masked fill", 0),
        ("repeat_interleave", 1),
        ("repeat_interleave, size given", 0),
        ("multinomial", 0),
        ("matmul", 0),
    ],
)
def test_waits_are_counted_and_named(found: dict[str, Any], what: str, waits: int) -> None:
    assert found["waits"][what] == waits


def test_a_wait_of_the_backward_is_charged_to_the_line_of_the_forward(found: dict[str, Any]) -> None:
    assert any("index_put" in site and "(backward)" in site for site in found["backward sites"])


def test_the_emulation_itself_is_not_counted(found: dict[str, Any]) -> None:
    assert found["flex launches"] == {"forward": 1, "backward": 2}


def test_memory_ends_where_the_card_does(found: dict[str, Any]) -> None:
    assert found["memory"] == {"out of memory": True, "peak GiB": 2.0}
