"""Integer fields of a stream name rows of a network's tables (positions, segments, ...), which must be there.

On a GPU a number beyond its table is no message, so it is looked for on the CPU: in the loader's workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import WorkbenchError

_KNOWN = {
    "input_ids": ("token", "vocab_size", "mend the part that writes it"),
    "position_ids": ("position", "max_positions", "shorten the max_length of the builder or of the steps"),
    "block_ids": ("place in a blank", "block_positions", "cut shorter spans out"),
    "token_type_ids": (
        "segment",
        "token_types",
        "choose a builder of fewer segments, or 1 or 0 (none told apart)",
    ),
}


def limit_of_types(types: int) -> int:
    """The limit of segments by the rows of their table: one row tells none apart, and is that of any."""
    return types if types > 1 else 0


def check_limits(fields: Mapping[str, Any], limits: Mapping[str, int], who: str) -> None:
    """Hold the fields of a stream, arrays or tensors [rows], against the rows of the tables that read them.

    Args:
        limits: by field, the rows of its table; 0 where there is none.
        who: has the numbers, for the message.

    Raises:
        WorkbenchError: a number is beyond its table, or below 0.
    """
    for name, limit in limits.items():
        found = fields.get(name)
        if not limit or found is None or not len(found):
            continue
        least, most = int(found.min()), int(found.max())
        if least >= 0 and most < limit:
            continue
        what, option, advice = _KNOWN.get(name, (name, f"extra.{name}", "mend the part that writes it"))
        raise WorkbenchError(
            f"{who} has {what} {most if least >= 0 else least}, but the network has {option} = {limit}: "
            f"{f'enlarge it, or {advice}' if least >= 0 else 'numbers count from 0'}"
        )
