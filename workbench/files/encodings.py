"""The encoding of a text by its first bytes, wherever texts are read: files, members of tars, JSON."""

from __future__ import annotations

import codecs

ENCODINGS = {  # by the byte order mark; that of UTF-32 begins as that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def mark_of(first: bytes) -> bytes | None:
    """The byte order mark that bytes begin with; None where there is none."""
    return next((mark for mark in ENCODINGS if first.startswith(mark)), None)


def decoded(data: bytes) -> str:
    """Bytes as text: by their byte order mark, which is left out, else as UTF-8.

    Raises:
        UnicodeDecodeError: they are none.
    """
    mark = mark_of(data)
    if mark is None or mark == codecs.BOM_UTF8:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    return data.decode(ENCODINGS[mark])
