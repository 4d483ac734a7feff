"""A corpus and a run on a real S3 server of this machine, by the command line: killed, and equal to a local run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench
from tests.object_store import forget_servers
from workbench.core.files.stores import Store
from workbench.runs.stored_run import read_snapshot

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
TEXTS = [f"The river {n % 7} runs past the town {n}, where people buy old bread and long tales." for n in range(300)]
TRAIN = ["train.max_steps=40", "train.save_every=4", "train.log_every=1", "train.num_workers=1"]
LONGEST = 240.0
"""Seconds of a command."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An S3 server with a bucket, which the environment names; the current folder has the texts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.chdir(tmp_path)
    variables = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    variables |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "OMP_NUM_THREADS": "1"}
    variables |= {"WORKBENCH_CACHE": str(tmp_path / "cache"), "WORKBENCH_SCRATCH": str(tmp_path / "scratch")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "notes.txt").write_text("\n".join(TEXTS) + "\n")
    with open(tmp_path / "server.log", "w") as log:
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
        import s3fs

        forget_servers()
        s3fs.S3FileSystem().mkdir("bucket")
        yield
    finally:
        process.kill()
        process.wait()


def started(*words: str) -> subprocess.Popen[bytes]:
    with open("log.txt", "ab") as log:
        return subprocess.Popen([sys.executable, "-m", "workbench", *words], stdout=log, stderr=log)


def run(*words: str) -> None:
    process = started(*words)
    try:
        code = process.wait(LONGEST)
    finally:
        process.kill()
    assert code == 0, Path("log.txt").read_text()[-3000:]


def saved(url: str) -> int:
    """The last step in the store."""
    names = read_snapshot(Store(url)) or {}
    return max((int(name.split("/")[1][5:]) for name in names if name.startswith("checkpoints/")), default=0)


def train_until(url: str, step: int, words: list[str]) -> None:
    """Train in a process that is killed once a step is in the store; then the machine is empty."""
    process = started(*words)
    deadline = time.monotonic() + LONGEST
    try:
        while saved(url) < step and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL, Path("log.txt").read_text()[-3000:]
    for folder in ("scratch", "cache"):
        shutil.rmtree(folder)


@pytest.mark.scale
def test_all_of_it_on_an_object_store(server: None, tmp_path: Path) -> None:
    """What the command line does on the store, compared with the same in Python in folders."""
    lines = ["--option", "document=line", "--shard-size", "60", "--workers", "2"]
    run("prepare", "text", "notes.txt", "--output", "s3://bucket/text", *lines)
    for place in ("local", "s3://bucket"):
        if place == "local":
            workbench.prepare_text("notes.txt", "local/text", option={"document": "line"}, shard_size=60)
        workbench.prepare("tokenizer", corpora=f"{place}/text", output=f"{place}/tokens.json", vocab_size=120)
    trained = ["tasks.text.corpora=[local/text]", "tokenizer=local/tokens.json", *TRAIN]
    local = workbench.pretrain("tiny-text", "local/run", trained)
    url = "s3://bucket/runs/x"
    on_store = ["pretrain", "tiny-text", *(word.replace("local/", "s3://bucket/") for word in trained), "--output", url]
    train_until(url, 4, on_store)
    run(*on_store)
    stored = workbench.open_run(url)
    assert len(local.metrics) == 40
    assert [(line["step"], line["mlm/loss"], line["grad_norm"]) for line in stored.metrics] == [
        (line["step"], line["mlm/loss"], line["grad_norm"]) for line in local.metrics
    ]
    run("evaluate", "pseudo-perplexity", url, "s3://bucket/text", "--limit", "20")
    here = workbench.evaluate("local/run", "pseudo-perplexity", "local/text", limit=20)
    (there,) = workbench.open_run(url).evaluations
    assert there["numbers"] == here.numbers
    run("report", url, "--output", "s3://bucket/report.html")
    assert len(Store("s3://bucket").read("report.html") or b"") > 10_000
    assert not [name for name in os.listdir() if name.startswith("s3")]
