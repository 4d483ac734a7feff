"""JSON of other people."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value that JSON text stands for.

    Raises:
        json.JSONDecodeError: it is none, or is nested too deeply for Python (a RecursionError otherwise).
        UnicodeDecodeError: the bytes are no text.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise json.JSONDecodeError("values are nested too deeply", "", 0) from error
