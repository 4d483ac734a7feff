"""Text files and JSON from any source: encoding, lines, values.

The encoding of a text is detected from its first bytes, in files, members of tars and JSON. A line ends in a line feed,
with or without a carriage return before it. `str.splitlines` would also split at form feeds, at U+0085, U+2028 and
similar characters, which occur within lines.
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError

ENCODINGS = {  # by the byte order mark; the mark of UTF-32 begins like that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def mark_of(first: bytes) -> bytes | None:
    """The byte order mark at the beginning of bytes, or None."""
    return next((mark for mark in ENCODINGS if first.startswith(mark)), None)


def decoded(data: bytes) -> str:
    """Bytes as text: decoded by their byte order mark, which is left out, or else as UTF-8.

    Raises:
        UnicodeDecodeError: the bytes are no text in this encoding.
    """
    mark = mark_of(data)
    if mark is None or mark == codecs.BOM_UTF8:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    return data.decode(ENCODINGS[mark])


def read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends.

    Raises:
        OSError: it cannot be read.
        WorkbenchError: it is not UTF-8.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise WorkbenchError(f"{path} is not UTF-8 at byte {error.start}; convert it first") from error
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        json.JSONDecodeError: it is not JSON, or is nested too deeply for Python (otherwise a RecursionError).
        UnicodeDecodeError: the bytes are no text.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise json.JSONDecodeError("values are nested too deeply", "", 0) from error
