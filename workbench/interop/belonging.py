"""Things that were made for certain weights (`MADE_FOR`) mean nothing beside others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.parts.build_context import Identities
from workbench.runs.data_record import MADE_FOR, NOTHING, read_data
from workbench.runs.names import is_run


def refuse_foreign(read: Identities, weights: Mapping[str, str]) -> None:
    """Check what was read for a network against the weights that it has or starts from.

    Args:
        weights: their identity by place; none for a network that starts anew.

    Raises:
        WorkbenchError: something was made for other weights; names it.
    """
    trained = [record["read"] for place in weights if is_run(Path(place)) and (record := read_data(Path(place)))]
    known = {*weights.values(), *(each for record in trained for each in record.get(MADE_FOR, {}).values())}
    for place, wanted in read.get(MADE_FOR, {}).items():
        if wanted in known or (not weights and wanted == NOTHING):
            continue
        made = "no model's weights" if wanted == NOTHING else f"the weights {wanted}"
        ours = ", ".join(f"{place} ({identity})" for place, identity in weights.items()) or "fresh ones"
        raise WorkbenchError(
            f"{place} was made for {made}, and those here are {ours}, among whose words its vectors mean nothing. Make "
            "it for these (`workbench prepare vectors GRAPH --from VECTORS --map-to WEIGHTS`), or start from those "
            "(model.init_from=WEIGHTS)"
        )
