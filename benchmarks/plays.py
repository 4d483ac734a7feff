"""Plays as dialogues: the scenes of Shakespeare's plays in the raw corpora, as JSON lines with turns and speakers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

_SPEECH = re.compile(r"^ {2,3}([A-Z][A-Za-z]*)\. (.*)$")
_SCENE = re.compile(r"^\s*(Actus|Sc[ao]?ena|Enter|Exeunt|Exit)")


def write_dialogues(books: Path, output: Path) -> Path:
    """The scenes of the plays among the books (JSON lines with `id` and `text`), those of two speeches and more."""
    plays = [book for book in map(json.loads, books.read_text().splitlines()) if "shakespeare" in book["id"]]
    rows = [
        {"id": f"{play['id']}-{number}", "turns": [said for _, said in scene], "speakers": [who for who, _ in scene]}
        for play in plays
        for number, scene in enumerate(scenes(play["text"]))
    ]
    output.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return output


def scenes(text: str) -> Iterator[list[tuple[str, str]]]:
    """Who says what between two stage directions."""
    scene: list[tuple[str, str]] = []
    for line in [*text.splitlines(), "Exeunt"]:
        speech = _SPEECH.match(line)
        if _SCENE.match(line):
            if len(scene) > 1:
                yield scene
            scene = []
        elif speech:
            scene.append((speech[1], speech[2]))
        elif scene and line.strip():
            scene[-1] = (scene[-1][0], f"{scene[-1][1]} {line.strip()}")
