"""Counts of a tokenizer's tokens in corpora, in one JSON file of `workbench prepare token-counts`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import write_text
from workbench.core.files.text_files import parse_json
from workbench.text.tokenizer import Tokenizer

KIND = "token counts"


def save_token_counts(path: Path, counts: np.ndarray, tokenizer: str, provenance: Mapping[str, Any]) -> None:
    """Write the file, completely or not at all.

    Args:
        counts: [ids] the count of each token.
        tokenizer: the tokenizer's identity.
        provenance: the provenance of the counts.
    """
    record = {"kind": KIND, "tokenizer": tokenizer, "provenance": dict(provenance), "counts": counts.tolist()}
    write_text(path, json.dumps(record, ensure_ascii=False) + "\n")


def read_token_counts(path: str | Path, tokenizer: Tokenizer) -> np.ndarray:
    """The counts of the tokens [ids], int64. The file's identity is noted for the run.

    Raises:
        WorkbenchError: there is no such file, it has another content, or it belongs to another tokenizer.
    """
    make = f"`workbench prepare token-counts CORPORA --tokenizer TOKENIZER --output {quoted(path)}`"
    try:
        raw = Path(path).read_bytes()
        record = parse_json(raw)
    except OSError as error:
        raise WorkbenchError(f"token counts {path}: {error.strerror or error}; {make} makes them") from error
    except ValueError as error:  # no JSON, or not in UTF-8
        raise WorkbenchError(f"{path} holds no token counts ({error}); {make} makes them") from error
    counts = record.get("counts") if isinstance(record, dict) and record.get("kind") == KIND else None
    if not isinstance(counts, list) or not all(type(n) is int and 0 <= n < 2**63 for n in counts) or not any(counts):
        raise WorkbenchError(f"{path} holds no token counts; {make} makes them")
    if record.get("tokenizer") != tokenizer.identity or len(counts) != tokenizer.vocab_size:
        raise WorkbenchError(f"{path} counts the tokens of another tokenizer than the recipe's; {make} with that one")
    note(KIND, path, hashlib.sha256(raw).hexdigest())
    return np.array(counts, np.int64)
