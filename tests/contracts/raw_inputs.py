"""Raw files for the contracts of readers."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from typing import Any

from tests.contracts.material import photograph


def json_lines(row: Callable[[int], dict[str, Any]]) -> Callable[[int], str]:
    """The file of so many rows."""
    return lambda records: "".join(json.dumps(row(i)) + "\n" for i in range(records))


def lines(line: Callable[[int], str], head: str = "") -> Callable[[int], str]:
    """The file of so many lines, behind a first one."""
    return lambda records: head + "".join(line(i) + "\n" for i in range(records))


def images(records: int) -> dict[str, bytes]:
    """A tar `images.tar` with the photographs 0.png, 1.png, ..."""
    return tar_of({f"{i}.png": photograph(i % 3) for i in range(records)})


def tar_of(members: dict[str, bytes]) -> dict[str, bytes]:
    """A tar `images.tar` with these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return {"images.tar": buffer.getvalue()}
