"""Names that stand in each other's way: of several entities, or with another entity's name inside."""

from __future__ import annotations

import numpy as np

from kg.linking.boundaries import boundary
from kg.linking.gazetteer import Gazetteer
from kg.linking.name_tables import NameTables


def ambiguities(made: NameTables, gazetteer: Gazetteer) -> dict[str, int]:
    """The number of names with each fault. Faults without names are left out.

    Time grows with the names' characters: what is inside of a name is searched for as in any text, by the `gazetteer`.
    """
    found = {
        "names of several entities": int((np.diff(made.offsets) > 1).sum()),
        "names with another entity's name inside, which is not found there": sum(
            _overlaps(number, name, made, gazetteer) for number, name in enumerate(made.names)
        ),
    }
    return {reason: count for reason, count in found.items() if count}


def _overlaps(number: int, name: str, made: NameTables, gazetteer: Gazetteer) -> bool:
    """Whether a part of the name, from boundary to boundary, is a name of an entity that the whole does not have.

    Such a shorter name lacks the first word of the name, or the last one.
    """
    cuts = [i for i in range(1, len(name)) if boundary(name, i)]
    if not cuts:
        return False
    own = _entities(made, number)
    parts = (name[cuts[0] :], name[: cuts[-1]])
    return any(not _entities(made, inner) <= own for part in parts for inner, _, _ in gazetteer.find(part))


def _entities(made: NameTables, number: int) -> set[int]:
    return set(made.entities[made.offsets[number] : made.offsets[number + 1]].tolist())
