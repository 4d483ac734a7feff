"""Corpora whose preparation is under way, or was stopped: a note beside the shards says so until they are complete."""

from __future__ import annotations

import json
from pathlib import Path

STATE = ".prepare.json"


def preparation_in(folder: Path) -> str | None:
    """What to say of a folder whose preparation has not ended; None where there is none."""
    place = folder / STATE
    if not place.is_file():
        return None
    try:
        command = json.loads(place.read_bytes())["command"]
    except (OSError, ValueError, KeyError, TypeError):
        command = ""
    named = f": {command}" if isinstance(command, str) and command else ""
    return f"{folder} is being prepared, or its preparation was stopped: run the same command again, it goes on{named}"
