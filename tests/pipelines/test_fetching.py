"""Fetching the images of lists of URLs, from a server on this machine that misbehaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from pipelines.readers.reader import Drop
from pipelines.sources.web import Manners, opted_out, seconds_of
from pipelines.stages.image_fetching import FetchImages
from pipelines.stages.media_checks import CheckImage
from tests.pipelines.faulty_server import sample, serving
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

pytest.importorskip("urllib3")
ROOT = Path(__file__).resolve().parents[2]
MANNERS = Manners(timeout=1.0, retries=1, most_bytes=1 << 20, private=True)


@pytest.fixture
def files(photograph):
    return {
        "a.jpg": photograph(1),
        "cut.jpg": photograph(2, size=(200, 200))[:3000],
        "big.jpg": photograph(3, size=(300, 200)),
    }


@pytest.fixture
def server(files):
    with serving(files) as found:
        yield found


def fetched(server, path, **changes):
    stage = FetchImages(CheckImage(), replace(MANNERS, **changes))
    return stage(sample(server[0] + path))


@pytest.mark.parametrize("way", ["ok", "moved", "busy", "others"])
def test_what_is_there_is_had(server, files, way):
    found = fetched(server, f"/{way}/a.jpg")
    assert found["image"] == files["a.jpg"]
    assert found["meta"]["sha256"]


@pytest.mark.parametrize(
    ("path", "reason", "asked"),
    [
        ("/late/a.jpg", "timed out", 2),
        ("/drip/a.jpg", "timed out", 2),
        ("/dropped/a.jpg", "connection dropped", 2),
        ("/mute/a.jpg", "connection dropped", 2),
        ("/broken/a.jpg", "HTTP 500", 2),
        ("/missing/a.jpg", "HTTP 404", 1),
        ("/never/a.jpg", "HTTP 429", 1),
        ("/tomorrow/a.jpg", "HTTP 429", 1),
        ("/page/a.jpg", "content type text/html", 1),
        ("/disguised/a.jpg", "a web page, not an image", 1),
        ("/loop/a.jpg", "too many redirects", 6),
        ("/away/a.jpg", "not a web address", 1),
        ("/huge/a.jpg", "too many bytes", 1),
        ("/stated/a.jpg", "too many bytes", 1),
        ("/noai/a.jpg", "opted out", 1),
        ("/us/a.jpg", "opted out", 1),
        ("/tdm/a.jpg", "opted out", 1),
        ("/zipped/a.jpg", "compressed unasked", 1),
        ("/ok/cut.jpg", "damaged image", 1),
    ],
)
def test_what_cannot_be_had_has_a_reason(server, path, reason, asked):
    began = time.monotonic()
    assert fetched(server, path) == Drop(reason)
    assert server[1][path] == asked, "what fails by chance is asked for again, what fails for good is not"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/a.jpg", "no connection"),
        ("ftp://127.0.0.1/a.jpg", "not a web address"),
        ("http://", "not a web address"),
        ("http://127.0.0.1:99999/a.jpg", "not a web address"),
        ("//a.jpg", "not a web address"),
    ],
)
def test_addresses_that_lead_nowhere(url, reason):
    assert FetchImages(CheckImage(), replace(MANNERS, retries=0))(sample(url)) == Drop(reason)


def test_machines_of_ones_own_network_are_not_asked(server):
    assert fetched(server, "/ok/a.jpg", private=False) == Drop("private address")
    assert not server[1], "nothing was sent"


def test_how_long_a_machine_asks_to_wait():
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    assert seconds_of(" 120 ") == 120
    assert seconds_of("Wed, 21 Oct 2015 07:30:05 GMT", date) == 125
    assert seconds_of("Wednesday, 21-Oct-15 07:28:05 GMT", date) == seconds_of("Wed Oct 21 07:28:05 2015", date) == 5
    assert seconds_of(date, "Wed, 21 Oct 2015 08:00:00 GMT") == seconds_of(date) == 0  # over
    assert 3590 < seconds_of(formatdate(time.time() + 3600, usegmt=True)) <= 3600
    for none in ("", "soon", "-5", "1.5", "Wed, 99 Oct 2015 07:28:00 GMT", "\N{ARABIC-INDIC DIGIT FIVE}", "²"):
        assert seconds_of(none, date) == 0


def test_directives_to_robots():
    assert opted_out(["noimageai"])
    assert opted_out(["nosnippet", "NoAI, nofollow"])
    assert opted_out(["*: noindex"])
    assert not opted_out(["unavailable_after: 25 Jun 2035 15:00:00 PST", "nofollow", "otherbot: noai"])


def test_images_are_made_smaller_on_the_way(server):
    found = FetchImages(CheckImage(resize=100), MANNERS)(sample(server[0] + "/ok/big.jpg"))
    assert len(found["image"]) < 60_000
    assert found["meta"]["source_sha256"] != found["meta"]["sha256"]


def url_list(folder: Path, server: tuple[str, object], count: int, way: str = "ok") -> Path:
    rows = [f"caption {i}\t{server[0]}/{way if i % 5 else 'missing'}/a.jpg?{i}\n" for i in range(count)]
    (folder / "list.tsv").write_text("".join(rows))
    return folder / "list.tsv"


def test_a_list_becomes_a_corpus_and_says_what_it_lacks(tmp_path, files, stored):
    with serving({f"a.jpg?{i}": files["a.jpg"] for i in range(20)}) as server:
        listed = url_list(tmp_path, server, 20)
        out = tmp_path / "corpus"
        arguments = [listed, "--fetch", "--private-hosts", "-o", out, "--workers", 1, "--shard-size", 8]
        prepare("image-text", *arguments)
        assert [s["captions"] for s in stored(out)] == [[f"caption {i}"] for i in range(20) if i % 5]
        assert Corpus.open(out).manifest.dropped == {"FetchImages: HTTP 404": 4}
        log = [json.loads(line) for p in sorted((out / "dropped").iterdir()) for line in p.read_text().splitlines()]
        assert log == [{"record": f"list.tsv:{i}", "reason": "FetchImages: HTTP 404"} for i in (1, 6, 11, 16)]
        before = server[1].total()
        prepare("image-text", *arguments, "--timeout", 5)
        assert server[1].total() == before, "a finished corpus asks for nothing"


def test_fetching_wants_a_list_and_reads_it_once(tmp_path, json_lines):
    path = json_lines("captions.jsonl", [{"image": "a.jpg", "caption": "x"}])
    with pytest.raises(WorkbenchError, match="captions-jsonl is not a list of URLs; allowed: conceptual-captions"):
        prepare("image-text", path, "--fetch", "-o", tmp_path / "out")
    (tmp_path / "list.tsv").write_text("a\thttp://x.org/a.jpg\n")
    with pytest.raises(WorkbenchError, match=r"--fetch with --dedupe .*workbench prepare corpus"):
        prepare("image-text", tmp_path / "list.tsv", "--fetch", "--dedupe", "-o", tmp_path / "out")


@pytest.mark.scale
def test_what_was_killed_continues_and_asks_for_nothing_twice(tmp_path, files):
    """Of shards that are finished; killed without warning in the third."""
    with serving({f"a.jpg?{i}": files["a.jpg"] for i in range(40)}) as server:
        listed, out = url_list(tmp_path, server, 40, "late"), tmp_path / "corpus"
        arguments = [str(listed), "--fetch", "--private-hosts", "-o", str(out), "--workers", "1", "--shard-size", "10"]
        command = [sys.executable, "-m", "workbench", "prepare", "image-text", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            end = time.monotonic() + 120
            while not (out / "part-000001.index").exists():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = server[1].copy()
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120)
        again = server[1] - before
        assert Corpus.open(out).records == 32
        assert not any(path.endswith(f"a.jpg?{i}") for path in again for i in range(10)), "the first shard was finished"
