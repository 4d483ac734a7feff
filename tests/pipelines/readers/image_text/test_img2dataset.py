"""The image-text format `img2dataset`: a folder as its output format `webdataset` lays it out."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from pipelines.readers.formats import detect
from tests.contracts.cases import ReaderCase
from tests.pipelines.readers.image_text.test_image_folder import photograph
from tests.pipelines.test_commands import prepare


def shard(records: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for i in range(records):
            key = f"00000{i:04d}"
            reported = {"caption": f"a dog {i}", "url": f"http://x.org/{i}.png", "key": key, "status": "success"}
            reported |= {"error_message": None, "sha256": "ab" * 32, "original_width": 24, "similarity": 0.3}
            members = {"png": photograph(i), "txt": f"a dog {i}".encode(), "json": json.dumps(reported).encode()}
            for name, data in members.items():
                entry = tarfile.TarInfo(f"{key}.{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


CASE = ReaderCase(
    excused={
        "streams": "the members of a tar are found by its headers, which hold no more than the images",
        "long lines": "there are no lines",
        "damaged": "what stands between the members of a tar is read with each of them",
    },
    text=shard,
    file="00000.tar",
    alongside=lambda records: {"00000_stats.json": b"{}"},
    folder=True,
)


def test_the_folder_is_read_as_it_is(tmp_path: Path, stored: Any) -> None:
    folder = tmp_path / "laion"
    folder.mkdir()
    (folder / "00000.tar").write_bytes(shard(2))
    (folder / "00000_stats.json").write_text("{}")
    (folder / "00000.parquet").write_bytes(b"PAR1")
    assert detect("image-text", [folder]) == "img2dataset"
    prepare("image-text", folder, "-o", tmp_path / "c", "--workers", 1)
    first, second = stored(tmp_path / "c")
    assert (first["captions"], first["image"], second["image"]) == (["a dog 0"], photograph(0), photograph(1))
    assert first["meta"]["url"] == "http://x.org/0.png"
    assert (first["meta"]["similarity"], first["meta"]["listed_sha256"]) == (0.3, "ab" * 32)
    assert "status" not in first["meta"]
    passed = json.loads((tmp_path / "c" / "corpus.json").read_bytes())["provenance"]["passed_over"]
    assert {what: reported["files"] for what, reported in passed.items()} == {".parquet": 1, ".json": 1}
