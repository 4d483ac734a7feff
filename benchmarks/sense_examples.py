"""WordNet's examples of its senses as texts with links: what is right for a word, said by people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_QUOTED = re.compile(r'"([^"]+)"')
_PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def write_sense_examples(wordnet: Path, output: Path) -> None:
    """JSON lines: the examples in the glosses of data files, with a span at the first word of its synset that an
    example has in the same spelling. Others are left out."""
    rows = (row for name, part in _PARTS.items() for row in _examples(wordnet / f"data.{name}", part))
    output.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _examples(path: Path, part: str) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" "):
            continue
        fields, _, gloss = line.partition(" | ")
        offset, _, _, number, *words = fields.split()
        names = [re.escape(word.split("(")[0].replace("_", " ")) for word in words[: 2 * int(number, 16) : 2]]
        named = re.compile(rf"\b(?:{'|'.join(names)})\b", re.IGNORECASE)
        for text in _QUOTED.findall(gloss):
            if found := named.search(text):
                yield {"text": text, "spans": [[found.start(), found.end(), f"{offset}-{part}", 1.0]]}
