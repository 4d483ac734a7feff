"""What is allocated and what is compiled, on kernels that compute nothing (`unemulated.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_without_gpu.conftest import Run

pytestmark = pytest.mark.simulator

SCRIPT = ("-m", "tests.gpu_without_gpu.unemulated")
CARD_GIB = 80e9 / 2**30


def found(on_device: Run, folder: Path, *words: str, **settings: str) -> dict[str, Any]:
    output = folder / "found.json"
    on_device(*SCRIPT, *words, "--output", str(output), TRITON_CACHE_DIR=str(folder / "triton"), **settings)
    read: dict[str, Any] = json.loads(output.read_text())
    return read


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "modernbert", "modernbert-large", "clip"])
def test_a_recipe_as_it_ships_fits_the_card(name: str, on_device: Run, tmp_path: Path) -> None:
    """Its own micro-batch, sequences of full length, six steps of different rows: the optimizer's state is there."""
    result = found(on_device, tmp_path, "memory", name, PRETEND_SKIP_LARGE_COPIES="1")[name]
    assert "error" not in result, result["error"]
    assert 1 < result["peak GiB"] < CARD_GIB
    assert len(set(result["rows"])) > 1 or name == "bert"  # whose texts are cut to one length
    assert result["reserved GiB"] < min(CARD_GIB, 1.15 * result["peak GiB"])


def test_segments_of_memory_grow(on_device: Run, tmp_path: Path) -> None:
    """`pretrain` sets the allocator before the first allocation, unless the user has set it."""
    script = tmp_path / "grow.py"
    script.write_text(
        "import torch\n"
        "from workbench.core.processes.malloc import grow_segments\n"
        "print(grow_segments(torch.device('cuda', 0)), grow_segments(torch.device('cpu')))\n"
        "kept = [torch.empty(size << 20, dtype=torch.uint8, device='cuda') for size in (30, 70)]\n"
        "print([each['is_expandable'] for each in torch.cuda.memory_snapshot()])\n"
    )
    assert on_device(str(script)).stdout.splitlines() == ["True False", "[True]"]
    said = on_device(str(script), PYTORCH_ALLOC_CONF="expandable_segments:False").stdout.splitlines()
    assert said == ["False False", "[False, False]"]


@pytest.mark.parametrize(("name", "kinds"), [("k-bert", 1), pytest.param("t5", 3, marks=pytest.mark.slow)])
def test_ragged_batches_compile_a_kernel_once(name: str, kinds: int, on_device: Run, tmp_path: Path) -> None:
    """Trees by flex attention; scores with a bias, of an encoder, a decoder and between them: once for each kind."""
    result = found(on_device, tmp_path, "compiles", name)[name]
    assert "error" not in result, result["error"]
    assert result["sizes"] >= 20
    assert result["compiled"], "nothing was compiled: the recipe does not go to flex any more"
    assert max(result["compiled"].values()) <= kinds, result


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kinds", "sizes"), [("bert", 1, 20), ("gpt", 1, 20), ("modernbert", 2, 2)])
def test_ragged_batches_compile_a_layer_once_for_each_kind(
    name: str, kinds: int, sizes: int, on_device: Run, tmp_path: Path
) -> None:
    """`train.compile`. The first layer of ModernBERT has no norm in front; its texts are packed, nearly to one size."""
    result = found(on_device, tmp_path, "compiles", f"{name}:compile")[f"{name}:compile"]
    assert "error" not in result, result["error"]
    assert result["sizes"] >= sizes
    assert result["compiled"]
    assert max(result["compiled"].values()) <= kinds, result


@pytest.mark.slow
def test_flex_attention_compiles_to_machine_code(on_device: Run, tmp_path: Path) -> None:
    """dynamo, inductor, Triton and ptxas as on a GPU: forward and backward for compute capability 9.0."""
    result = found(on_device, tmp_path, "kernel", "k-bert", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"))[
        "k-bert"
    ]
    assert "error" not in result, result["error"]
    made = [json.loads(file.read_text()) for file in (tmp_path / "triton").rglob("*flex_attention*.json")]
    kernels = [about for about in made if "target" in about]
    assert len(kernels) >= 2
    assert {about["target"]["arch"] for about in kernels} == {90}
    assert list((tmp_path / "triton").rglob("*flex_attention*.cubin"))


def test_a_copy_for_a_checkpoint_is_waited_for_once(on_device: Run, tmp_path: Path) -> None:
    """`train.async_save`: all tensors are under way together, and the host has their values afterwards."""
    script = tmp_path / "held.py"
    script.write_text(
        "import torch\n"
        "from tests.gpu_without_gpu.emulation.counting import WAITS, counts\n"
        "from workbench.runs.checkpoint import _on_host\n"
        "values = {name: torch.full((3, size), size) for name, size in zip('abcde', range(5))}\n"
        "there = {name: value.cuda() for name, value in values.items()} | {'tied': None, 'step': 3}\n"
        "there['tied'] = there['e']\n"
        "before = counts()\n"
        "held = _on_host(there)\n"
        "print(sum(counts()[kind] - before[kind] for kind in WAITS))\n"
        "assert held['tied'] is held['e'] and held['step'] == 3\n"
        "assert all(torch.equal(held[name], value) for name, value in values.items())\n"
        "assert held['e'].is_pinned()\n"
    )
    assert on_device(str(script)).stdout.split() == ["1"]


def test_the_loader_pins_what_is_taken_next_alone(on_device: Run, tmp_path: Path) -> None:
    """Of sixteen micro-batches that are made ahead: the one that was taken, and the next two."""
    script = tmp_path / "ahead.py"
    script.write_text(
        "import time, torch\n"
        "from workbench.pretraining.loader import Feed, MicroBatches, MicroBatchId\n"
        "from workbench.sequences.batch import Batch, MicroBatch, Stream\n"
        "class Large(MicroBatches):\n"
        "    def micro_batch(self, place):\n"
        "        rows = torch.full((1000, 1000), place.number, dtype=torch.uint8)\n"
        "        stream = Stream({'rows': rows}, torch.tensor([0, 1000]), [1000])\n"
        "        return MicroBatch('t', {'main': Batch({'image': stream})}, {})\n"
        "source = Large({}, {})\n"
        "with Feed([source], num_workers=4, device=torch.device('cuda', 0)) as feed:\n"
        "    micros = feed.micro_batches(source, (MicroBatchId('t', n, 0) for n in range(100)))\n"
        "    taken = [next(micros) for _ in range(2)][-1]\n"
        "    arrivals, ends = feed.workers.arrivals, time.monotonic() + 60\n"
        "    while time.monotonic() < ends and len(arrivals._plain) + len(arrivals._ready) < 16:\n"
        "        time.sleep(0.05)\n"
        "    print(len(arrivals._plain), len(arrivals._ready))\n"
        "    print(torch.cuda.host_memory_stats()['active_bytes.current'] >> 20, taken.buffer.is_pinned())\n"
        "    rows = [next(micros).views['main'].streams['image'].fields['rows'] for _ in range(9)]\n"
        "    assert [int(each[0, 0]) for each in rows] == [*range(2, 11)]\n"
    )
    ahead, pinned = on_device(str(script)).stdout.splitlines()
    assert ahead == "14 2"
    assert pinned in ("3 True", "4 True")  # MiB; torch may not have freed the first one yet
