"""URLs from a recipe, a run or a corpus of others: which are opened; their secrets reach no file and no message."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

import workbench as package
from kg.graph.store import GraphStore
from tests.robustness.conftest import RECIPE, Ended, Run
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store, fetched_folder, path_at
from workbench.core.files.transfers import opened
from workbench.core.files.urls import PROTOCOLS
from workbench.core.url_secrets import without_secrets
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.opened_manifests import manifest_at
from workbench.corpora.stored_corpus import opened_corpus
from workbench.recipe.reading import load_recipe
from workbench.runs.stored_run import fetched_run, read_snapshot
from workbench.text.tokenizer import Tokenizer

SECRETS = ("PASSW0RD", "S1GNATURE", "BARET0KEN")
DOORS: list[Callable[[str], Any]] = [
    opened,
    path_at,
    fetched_run,
    package.load,
    package.open_corpus,
    Corpus.open,
    GraphStore.open,
    Tokenizer.load,
    lambda url: Store(url).files(),
    lambda url: opened_corpus(url).__enter__(),
    lambda url: load_recipe("tiny-text", [f"tokenizer={url}", "model.init_from=" + url]) and path_at(Path(url)),
]


@pytest.mark.parametrize("protocol", sorted({*known_implementations} - {*PROTOCOLS, "file"}))
def test_no_other_protocol_of_fsspec_is_opened_nor_chained(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("fsspec was asked")

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail)
    monkeypatch.setattr(fsspec, "get_filesystem_class", fail)
    for url in (f"{protocol}://a/b", f"{protocol}://a::http://127.0.0.1/b", f"http://127.0.0.1/{protocol}::s3://b/c"):
        for door in DOORS:
            with pytest.raises(WorkbenchError, match=r"are not opened; allowed: http, https"):
                door(url)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ann:PASSW0RD@h/x.txt, then", r"http://\*\*\*@h/x\.txt#[0-9a-f]{12}, then"),
        ("'https://h/x.txt?sig=S1GNATURE&v=2'", r"'https://h/x\.txt\?sig=\*\*\*&v=\*\*\*#[0-9a-f]{12}'"),
        ("[https://h/a?BARET0KEN,https://h/b?k=S1GNATURE]", r"\[https://h/a\?\*\*\*#\w+,https://h/b\?k=\*\*\*#\w+\]"),
        ("abfss://box@account/x?sig=S1GNATURE", r"abfss://box@account/x\?sig=\*\*\*#\w+"),
        ("s3://bucket/part-?.txt and https://h/x", r"s3://bucket/part-\?\.txt and https://h/x"),
    ],
)
def test_user_info_and_query_values_of_a_url_are_hidden_and_a_checksum_stands_for_them(text: str, shown: str) -> None:
    assert re.fullmatch(shown, without_secrets(text))
    assert without_secrets(without_secrets(text)) == without_secrets(text)
    assert without_secrets("https://h/x?v=1") != without_secrets("https://h/x?v=2")
    assert without_secrets("https://ann:one@h/x") == without_secrets("https://ann:two@h/x")  # nobody can try passwords


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server of the files in `world`, with secrets in front of it."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(world / "cache"))
    monkeypatch.setenv("WORKBENCH_STORE_TRIES", "2")
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(world)))
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://ann:PASSW0RD@127.0.0.1:{serving.server_port}"
    serving.shutdown()


def leaks(folder: Path, said: str) -> list[str]:
    """The files, names of files and printed lines with a secret."""
    found = [line for line in said.splitlines() if any(secret in line for secret in SECRETS)]
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        found += [str(path) for secret in SECRETS if secret in str(path) or secret.encode() in content]
    return found


def test_secrets_of_urls_reach_no_file_and_no_message(world: Path, server: str, workbench: Run) -> None:
    signed, dead = "?sig=S1GNATURE&v=2", re.sub(r":\d+$", ":9", server)
    tokenizer = f"{server}/corpora/tokenizer.json{signed}"
    (world / "signed.yaml").write_text(RECIPE.replace("tokenizer: corpora/tokenizer.json", f"tokenizer: {tokenizer}"))
    (world / "images.txt").write_text(f"{server}/no.png{signed}\ta caption\n")
    os.remove(world / "recipe.yaml")
    ended: dict[str, Ended] = {}
    for what, command, code in (
        ("text", ["prepare", "text", f"{server}/notes.txt{signed}", "--output", "a"], 0),
        ("text again", ["prepare", "text", f"{server}/notes.txt{signed}", "--output", "a"], 0),
        ("bare", ["prepare", "text", f"{server}/notes.txt?BARET0KEN", "-o", "b", "--url", f"{server}/x{signed}"], 0),
        ("missing", ["prepare", "text", f"{server}/none.txt{signed}", "--output", "c"], 2),
        ("down", ["prepare", "text", f"{dead}/notes.txt{signed}", "--output", "c"], 1),
        ("images", ["prepare", "image-text", "images.txt", "--fetch", "--output", "d"], 2),
        ("corpus", ["prepare", "tokenizer", f"{server}/corpora/text", "-o", "t.json", "--vocab-size", "60"], 0),
        ("train", ["pretrain", "bert-like.yaml", f"tokenizer={tokenizer}", "--output", "run"], 2),
        ("dry", ["pretrain", "signed.yaml", "--output", "run", "--dry-run"], 0),
        ("run", ["pretrain", "signed.yaml", "--output", "run", "train.max_steps=2"], 0),
        ("resumed", ["pretrain", "signed.yaml", "--output", "run"], 2),  # another max_steps
        (
            "resumed so",
            ["pretrain", "signed.yaml", "--output", "run", "train.max_steps=2", f"tokenizer={tokenizer}"],
            0,
        ),
        ("its recipe", ["pretrain", "run/recipe.yaml", "--output", "again"], 2),
        ("show", ["show", "run"], 0),
        ("report", ["report", "run", "--output", "report.html"], 0),
        ("remote corpus", ["show", f"{server}/corpora/text"], 0),
        ("chain", ["show", f"zip://x::{server}/x"], 2),
        ("index", ["index", f"{server}/corpora/text", "--output", "index"], 2),
    ):
        ended[what] = workbench(*command)
        assert ended[what].code == code, (what, ended[what])
    for place in ("signed.yaml", "images.txt"):
        os.remove(world / place)
    assert leaks(world, "\n".join(each.out + each.err for each in ended.values())) == []
    recorded = (world / "run" / "recipe.yaml").read_text()
    assert f"tokenizer: {without_secrets(tokenizer)}\n" in recorded
    with (
        pytest.raises(WorkbenchError, match="would keep the user and password"),
        opened_corpus(f"{server}/corpora/text"),
    ):
        pass
    again = " ".join(ended["its recipe"].err.split())
    assert "its user, password or query values are hidden (***). Name the whole URL again, as KEY=URL" in again
    assert next(sample["key"] for sample in Corpus.open(world / "a")).startswith("notes")


def test_a_header_from_the_environment_gives_access_without_a_secret_in_the_url(world: Path, server: str) -> None:
    """As the message about a hidden secret says."""
    asked: list[str | None] = []

    class Handler(_Quiet):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            super().do_GET()

    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(world)))
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    code = (
        f"from workbench.core.files.stores import path_at; path_at('http://127.0.0.1:{serving.server_port}/notes.txt')"
    )
    variables = {**os.environ, "FSSPEC_HTTP": '{"headers": {"Authorization": "Bearer one"}}'}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=120)
    serving.shutdown()
    assert asked
    assert set(asked) == {"Bearer one"}


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "http://127.0.0.1:9/x.tar", "../other.tar", "%2e%2e/other.tar", "local:///etc/passwd"]
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_corpus_at_a_url_lists_files_below_its_url_only(world: Path, name: str, verify: bool) -> None:
    """Otherwise its author would decide which hosts, and which files of this machine, are opened."""
    manifest = manifest_at(world / "corpora" / "text" / "corpus.json")
    store = Store(f"memory://{uuid.uuid4().hex}/corpus")
    for change in ({"name": name}, {"index": name}):
        shards = [dataclasses.replace(manifest.shards[0], **change)]
        finish_corpus(world, kind="text", shards=shards, provenance={})
        store.put(world / "corpus.json", "corpus.json")
        with pytest.raises(WorkbenchError, match=r"lists .*; a corpus at a URL lists files below its own URL"):
            Corpus.open(store.url, verify=verify)
        with pytest.raises(WorkbenchError, match="a corpus at a URL lists"), opened_corpus(store.url):
            pass


@pytest.mark.parametrize("name", ["evaluations/../../../planted", "../planted", "best//planted"])
def test_no_name_in_a_store_leads_out_of_the_local_folder(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    store = Store(f"memory://{uuid.uuid4().hex}/run")
    sizes = {f"{store.url.partition('://')[2]}/{name}": {"type": "file", "size": 1}}
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.find", lambda *_, **__: sizes)
    for read in (lambda: store.files(), lambda: fetched_folder(store)):
        with pytest.raises(WorkbenchError, match="leads out of its folder"):
            read()


def test_no_object_of_a_snapshot_leads_out_of_the_run() -> None:
    store = Store(f"memory://{uuid.uuid4().hex}/run")
    sha256 = hashlib.sha256(b"").hexdigest()
    entry = f'{{"object": "../../other/recipe.yaml", "bytes": 0, "sha256": "{sha256}"}}'
    store.put_bytes(f'{{"files": {{"recipe.yaml": {entry}}}}}'.encode(), "snapshot.json")
    with pytest.raises(WorkbenchError, match=r"'\.\./\.\./other/recipe\.yaml' is no file of a run"):
        read_snapshot(store)
