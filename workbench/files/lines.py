"""What a line of a text file is: it ends in a line feed, with or without a carriage return in front, and in no other.

`str.splitlines` would also part a text at form feeds, at U+0085, U+2028 and their like, which stand within lines.
"""

from __future__ import annotations

from pathlib import Path


def read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    lines = path.read_bytes().decode("utf-8").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
