"""Writing raw files whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.core.files.drafts import write_text


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """One JSON object per line; returns the number of lines."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    write_text(path, "".join(line + "\n" for line in lines))
    return len(lines)


def write_tsv(path: Path, rows: Iterable[tuple[str, ...]]) -> int:
    """Tab-separated rows without header; returns their number. No field may hold a tab or a line break."""
    lines = ["\t".join(row) for row in rows]
    write_text(path, "".join(line + "\n" for line in lines))
    return len(lines)
