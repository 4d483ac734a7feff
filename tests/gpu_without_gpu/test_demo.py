"""`make demo` on the pretend device: all of its jobs, with few steps for each training."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.demo.plan import WRITE, DemoJob, plan
from pipelines.demo.raw import write_raw_split
from tests.gpu_without_gpu.conftest import Run

pytestmark = pytest.mark.simulator

FEW = ("train.max_steps=3", "train.lr_schedule.warmup_steps=1")
TIMEOUT_S = 1800


def shortened(job: DemoJob) -> list[str]:
    """The job's words; three steps of pretraining, one epoch or three steps of fine-tuning."""
    words = list(job.command)
    if "--epochs" in words and words[0] == "finetune":
        words[words.index("--epochs") + 1] = "1"
    elif words[0] in ("pretrain", "finetune"):
        words += FEW
    return words


@pytest.mark.slow
def test_every_job_of_the_demo_runs(on_device: Run, tmp_path: Path) -> None:
    jobs = plan()
    (tmp_path / "corpora").mkdir()
    for job in jobs:
        if job.command[0] == WRITE:
            write_raw_split(job.command[1], tmp_path / "raw")
    words: list[str] = []
    for job in jobs:
        if job.command[0] != WRITE:
            words += ["++", *shortened(job)]
    on_device("-m", "tests.gpu_without_gpu.emulated", *words[1:], timeout=TIMEOUT_S)
    trained = [job for job in jobs if job.command[0] in ("pretrain", "finetune")]
    assert len(trained) >= 10
    for job in jobs:
        assert (tmp_path / job.output).exists(), job.name
    for job in trained:
        assert list((tmp_path / job.output / "checkpoints").glob("step-*/model.safetensors")), job.name
