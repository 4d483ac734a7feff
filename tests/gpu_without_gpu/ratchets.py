"""Limits that only go down: waits and launches of a step, by recipe, in `ratchets.json`.

    python -m tests.gpu_without_gpu ratchets [--accept-more] [RECIPE ...]

measures recipes (all without a name) and writes the file again. What got worse is refused: fix it, or give
`--accept-more` and say in the commit why.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "ratchets.json"
SLACK = 0.1
"""So much below its limit may the number of launches be."""


@lru_cache
def _read() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(FILE.read_text())
    return known


def allowed(what: str) -> dict[str, Any]:
    """`waits` or `launches` by recipe; `made_with`: the version of torch."""
    return dict(_read()[what])


def main(arguments: list[str]) -> int:
    from tests.gpu_without_gpu import recipe_steps

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--accept-more", action="store_true", help="write limits that are higher than before, too")
    options = parser.parse_args(arguments)
    names = options.recipes or recipe_steps.recipe_names()
    measured = recipe_steps.measured(names, only="counted")
    if broken := {name: found["errors"] for name, found in measured.items() if found["errors"]}:
        sys.stderr.write(f"not written, since these do not run: {json.dumps(broken, indent=1)}\n")
        return 1
    known: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {"waits": {}, "launches": {}}
    worse = []
    for what in ("waits", "launches"):
        for name in names:
            now, before = measured[name][what], known[what].get(name)
            if before is not None and now > before:
                worse.append(f"{name}: {before} -> {now} {what}\n  {json.dumps(measured[name]['sites'])}")
            known[what][name] = now
        kept = {name: known[what][name] for name in sorted(known[what]) if name in recipe_steps.recipe_names()}
        known[what] = kept
    known["made_with"] = {"torch": recipe_steps.torch.__version__}
    if worse and not options.accept_more:
        sys.stderr.write("not written, since there is more than before:\n" + "\n".join(worse) + "\n")
        return 1
    FILE.write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
