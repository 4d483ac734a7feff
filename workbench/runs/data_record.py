"""`data.json` of a run: the identity of everything it reads, so that it never continues with other data unnoticed.

    {"since_step": 0, "read": {"corpus": {"corpora/wiki": "<SHA-256>"}, "graph": {...}, "tokenizer": {...}},
     "held_out": {"corpus": {...}}, "run": "<the id in its checkpoints>",
     "accepted": [{"step": 300, "changes": ["part mine.py: other content"], "before": {"part": {...}}}]}

To it belongs the code that lies next to the recipe (`part`), as it decides the numbers too. What counts is content: the
same corpus at another place is the same data. Held-out corpora may change, as the recipe's `held_out` may: that is
told, and the record then names those that were read last. Weights to start from (`weights`) were used at step 0 alone:
they may be gone, or have changed where they are, but a run is not of weights that it did not start from. Those that it
never changes (`base`) it reads whenever it is read, so they are as data. The id is
noted with the first checkpoint: a record with one is that of a run that has checkpoints, and of those with that id
alone. Who continues with other data knowingly (`pretrain --accept-changes`) has that written under `accepted`, for
good.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.components.build_context import Identities
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import atomic, check_file, real_path
from workbench.core.processes.distributed import World
from workbench.runs.names import DATA, RECIPE

logger = logging.getLogger(__name__)
RUN = "run"
BASE = "base"
"""What the file is noted as that holds the weights which the run does not change (`workbench.runs.frozen_weights`)."""
ALL_PARTS = "part"
"""What `workbench.components.trust` notes the files of parts as that lie next to the recipe."""
MADE_FOR = "made for weights"
"""What is noted of things that fit certain weights alone, such as vectors in the space of a model's words: whose they
are, as `START` names them, or `NOTHING` where they were made for none."""
NOTHING = "none"
START = "weights"
"""What `workbench.interop.weight_sources` notes the weights as that a run starts from: `<family> <SHA-256>`."""


DataRecord = dict[str, Any]
"""What `data.json` says."""


def check_data(
    run: Path, read: Identities, held_out: Identities, step: int, world: World, *, accept: bool = False
) -> DataRecord:
    """Compare what a run reads with what it read before; returns what its record is then to say. Nothing is written.

    Args:
        step: of the checkpoint that the run resumes from; at 0 there is nothing to compare with.
        accept: resume with other data, and note what it was.

    Raises:
        WorkbenchError: the data is not that of the record, or differs between ranks; names what does.
    """
    for rank, theirs in enumerate(world.gather(read)):
        if theirs != read:
            changed = _listed(_differences(read, theirs))
            raise WorkbenchError(f"rank {rank} reads other data than rank {world.rank}:\n{changed}\nBring them in line")
    before = read_data(run) if step else None
    if before is None:
        if step:
            logger.warning("%s has no record of its data (%s); it is written now, at step %d", run, DATA, step)
        return {"since_step": step, "read": read, "held_out": held_out}
    changed_start = _changed_start(run, before["read"], read)
    started, read = before["read"].get(START), _without_start(read)
    read |= {START: started} if started else {}
    if _known(before["read"]) != _known(read):
        changes = _differences(before["read"], read)
        if not accept:
            raise _other(run, changes)
        logger.warning("%s continues from step %d with changes, as was asked:\n%s", run, step, _listed(changes))
        earlier = {"step": step, "changes": changes, "before": before["read"]}
        before = {**before, "read": read, "accepted": [*before.get("accepted", []), earlier]}
    for place in changed_start:
        logger.warning(
            "the weights at %s have changed since this run started from them; it continues from its own checkpoint, "
            "as if they had not (%s has their checksum)",
            *(place, run / DATA),
        )
    _warn_mixed(before["held_out"], held_out, step)
    return {**before, "held_out": held_out}


def keep_data(run: Path, record: DataRecord) -> None:
    """Write down what a run reads."""
    with atomic(run / DATA) as file:
        file.write(json.dumps(record, ensure_ascii=False, indent=1).encode())


def keep_base(run: Path, base: Identities) -> None:
    """Note which weights a new run will not change.

    Raises:
        WorkbenchError: the record is damaged, or cannot be written.
    """
    record = read_data(run)
    assert record is not None
    keep_data(run, {**record, "read": {**record["read"], **base}})


@contextmanager
def read_from_here(run: Path) -> Iterator[None]:
    """Adds to an error of opening what a run reads that it reads files of the folder in which it was trained.

    Corpora and weights to start from are not opened again, so that they may be gone.
    """
    try:
        yield
    except WorkbenchError as error:
        read = (read_data(run) or {}).get("read", {})
        places = [Path(place) for kind in read.keys() - {"corpus", START} for place in read[kind]]
        lost = sorted(str(place) for place in places if not place.is_absolute() and not place.exists())
        if not lost:
            raise
        raise WorkbenchError(
            f"{error}\nWhere {run} was trained there was {', '.join(lost)}, and in this folder ({Path.cwd()}) there is "
            "not. If it was trained in another folder, run the command there; or put these back, or say where they are "
            f"now by overrides, KEY=VALUE of {run / RECIPE}"
        ) from error


def keep_run(run: Path, identity: str) -> None:
    """Note whose checkpoints lie in the folder, once the first one does.

    Raises:
        WorkbenchError: the record is damaged, or cannot be written.
    """
    record = read_data(run)
    if record is not None and RUN not in record:
        keep_data(run, {**record, RUN: identity})


def run_id(run: Path) -> str | None:
    """The id in the checkpoints of a run; None where it has none, or no record of it.

    Raises:
        WorkbenchError: the record is damaged.
    """
    return (read_data(run) or {}).get(RUN)


def _without_start(read: Identities) -> Identities:
    return {kind: places for kind, places in read.items() if kind != START}


def _changed_start(run: Path, before: Identities, now: Identities) -> list[str]:
    """Where the weights lie that a run started from and that have changed since, which decides nothing any more.

    Raises:
        WorkbenchError: the recipe names other weights to start from than those that the run started from.
    """
    first = before.get(START, {})
    changed = []
    for place, identity in now.get(START, {}).items():
        if place in first and first[place] != identity:
            changed.append(place)
        elif identity not in first.values():
            started = ", ".join(first) or "fresh weights"
            raise WorkbenchError(
                f"{run} started from {started}, but init_from names {place}, which are others. Go on with the old "
                "value, or choose another run folder"
            )
    return changed


def _warn_mixed(before: Identities, after: Identities, step: int) -> None:
    """Held-out corpora may change, but not without a word: their losses do not compare."""
    if before and after and _known(before) != _known(after):
        logger.warning(
            "the held-out data is not that of the steps before %d:\n%s\nThe run's held-out losses are of two sets and "
            "do not compare; the best checkpoint, where one is kept, is chosen across both",
            step,
            _listed(_differences(before, after)),
        )


def _other(run: Path, differences: list[str]) -> WorkbenchError:
    """The error for a run that would continue with other data or other code."""
    code = any(line.startswith(f"{ALL_PARTS} ") for line in differences)
    what = "with other code" if code else "on other data"
    copy = f" ({run} has the code as it was)" if code else ""
    return WorkbenchError(
        f"{run} was trained {what}:\n{_listed(differences)}\nRestore it{copy}, or choose another run folder. To "
        f"continue "
        f"with the new {'one' if code else 'data'} knowingly, say --accept-changes; {DATA} then tells what changed"
    )


def refuse_other(run: Path, read: Identities) -> None:
    """Check what was opened to use a trained run: each thing must be one that the run was trained with.

    Raises:
        WorkbenchError: a graph, vectors, a tokenizer or frozen weights with another content; names it.
    """
    before = read_data(run)
    if before is None:
        return
    known = _known(before["read"])
    for kind, places in read.items():
        for place, identity in places.items():
            if kind in known and identity not in known[kind]:
                knowingly = f"workbench pretrain {quoted(run / RECIPE)} --output {quoted(run)} --accept-changes"
                raise WorkbenchError(
                    f"the {kind} at {place} is not the one that {run} was trained with (its content is another; "
                    f"{run / DATA} has the checksums). Restore it, or train a new run with this one. To use the run "
                    f"with it knowingly, let its record say so: {knowingly}"
                )


def refuse_changed(run: Path, read: Identities) -> None:
    """Check what a new run reads against the run that its weights come from: what both name must be the same.

    Corpora, the code of parts and what those weights started from are left out, as weights may continue to others; so
    is what lies at another place (and not in the run's own folder), which was meant.

    Raises:
        WorkbenchError: something has changed since; names it.
    """
    before = read_data(run)
    known = before["read"] if before else {}
    for kind, places in read.items():
        recorded = known.get(kind, {}) if kind not in ("corpus", ALL_PARTS, START) else {}
        for place, identity in places.items():
            meant = place not in recorded and not real_path(place).is_relative_to(real_path(run))
            if recorded and not meant and identity not in recorded.values():
                raise WorkbenchError(
                    f"the {kind} at {place} changed since {run} was trained with it, and the weights of that run are "
                    "to be used here. Restore it, or put the new one at another place and name it in the recipe"
                )


def read_data(run: Path) -> DataRecord | None:
    """The record of a run; None where it has none (runs of earlier versions).

    Raises:
        WorkbenchError: it is damaged, or no file.
    """
    path = run / DATA
    check_file(path)
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_bytes())
        identities = [i for part in ("read", "held_out") for places in record[part].values() for i in places.values()]
        if isinstance(record["since_step"], int) and all(
            isinstance(i, str) for i in [*identities, record.get(RUN, "")]
        ):
            return record
        reason = "values of wrong types"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise WorkbenchError(
        f"{path} is damaged ({reason}); if you are sure that the data did not change, remove it: it is written anew"
    )


def _known(read: Identities) -> dict[str, set[str]]:
    return {kind: set(places.values()) for kind, places in read.items()}


def _differences(before: Identities, after: Identities) -> list[str]:
    found = []
    for kind in sorted(before.keys() | after.keys()):
        old, new = before.get(kind, {}), after.get(kind, {})
        same = set(old.values()) & set(new.values())
        found += [f"{kind} {place}: other content" for place in old.keys() & new.keys() if old[place] != new[place]]
        found += [f"{kind} {place}: not read now" for place in old.keys() - new.keys() if old[place] not in same]
        found += [f"{kind} {place}: not read before" for place in new.keys() - old.keys() if new[place] not in same]
    return found


def _listed(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
