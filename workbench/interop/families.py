"""The names of release families, as people write them."""

from __future__ import annotations

from workbench.errors import WorkbenchError, unknown
from workbench.parts.building import short_names

KIND = "release"


def family_of(name: str) -> str:
    """The short name of a family that is called as its recipe is (`ernie-thu`, `gpt-2`), with or without the package;
    an import path as it is.

    Raises:
        WorkbenchError: there is no such family, or there are several.
    """
    known = short_names(KIND)
    if ":" in name or name in known:
        return name
    found = [each for each in known if _plain(name) in (_plain(each), _plain(each.rpartition(".")[2]))]
    if not found:
        raise unknown(KIND, name, [*known, "package.module:Class"])
    if len(found) > 1:
        raise WorkbenchError(f"{name} may be the families {', '.join(found)}; name one of them")
    return found[0]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
