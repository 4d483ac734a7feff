"""`data.json` of a run: the identity of all data that it reads, so that it never resumes with other data unnoticed.

    {"since_step": 0, "read": {"corpus": {"corpora/wiki": "<SHA-256>"}, "graph": {...}, "tokenizer": {...}},
     "held_out": {"corpus": {...}}, "run": "<the id in its checkpoints>",
     "accepted": [{"step": 300, "changes": ["part mine.py: other content"], "before": {"part": {...}}}]}

The record includes the code next to the recipe (`part`), since it decides the numbers too. Identities are those of
content: the same corpus at another place is the same data. Held-out corpora may change, as the recipe's `held_out` may:
a warning is logged, and the record names the last ones. Weights to start from (`weights`) are used at step 0 only: they
may be missing or changed later, but a run cannot resume with other weights to start from. Frozen weights (`base`) are
read every time, so they count as data. The id is recorded with the first checkpoint: a record with an id belongs to a
run with checkpoints, and only to those with this id. Resuming with other data on purpose (`pretrain --accept-changes`)
is recorded permanently under `accepted`.
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
from workbench.core.files.text_files import parse_json
from workbench.core.files.urls import url_of
from workbench.core.processes.distributed import World
from workbench.runs.names import DATA, RECIPE

logger = logging.getLogger(__name__)
RUN = "run"
BASE = "base"
"""The kind under which the file of frozen weights is recorded (`workbench.runs.frozen_weights`)."""
ALL_PARTS = "part"
"""The kind under which `workbench.components.trust` records the code of components next to the recipe."""
MADE_FOR = "made for weights"
"""The kind of data that fits certain weights only, such as vectors in a model's embedding space. Its identity is that
of the weights (`START`), or `NOTHING` if it fits any."""
NOTHING = "none"
START = "weights"
"""The kind under which `workbench.interop.weight_sources` records the weights to start from: `<family> <SHA-256>`."""


DataRecord = dict[str, Any]
"""The content of `data.json`."""


def check_data(
    run: Path, read: Identities, held_out: Identities, step: int, world: World, *, accept: bool = False
) -> DataRecord:
    """Compare the data that a run reads with its record; returns the new record. Nothing is written.

    Args:
        step: the step of the checkpoint that the run resumes from; at 0 there is nothing to compare with.
        accept: resume with other data, and record the change.

    Raises:
        WorkbenchError: the data differs from the record, or between ranks; the message names the differences.
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
    """Write the record of the data that a run reads."""
    with atomic(run / DATA) as file:
        file.write(json.dumps(record, ensure_ascii=False, indent=1).encode())


def keep_base(run: Path, base: Identities) -> None:
    """Record the frozen weights of a new run.

    Raises:
        WorkbenchError: the record is damaged, or cannot be written.
    """
    record = read_data(run)
    assert record is not None
    keep_data(run, {**record, "read": {**record["read"], **base}})


@contextmanager
def read_from_here(run: Path) -> Iterator[None]:
    """A block in which an error of opening data mentions the folder of the training, if relative paths are missing.

    Corpora and weights to start from are not opened again, so they may be missing.
    """
    try:
        yield
    except WorkbenchError as error:
        read = (read_data(run) or {}).get("read", {})
        named = [place for kind in read.keys() - {"corpus", START} for place in read[kind] if url_of(place) is None]
        lost = sorted(str(place) for place in map(Path, named) if not place.is_absolute() and not place.exists())
        if not lost:
            raise
        raise WorkbenchError(
            f"{error}\nWhere {run} was trained there was {', '.join(lost)}, and in this folder ({Path.cwd()}) there is "
            "not. If it was trained in another folder, run the command there, or move the run below it; or put "
            "these back. The commands evaluate and finetune, and `load` in Python, also take their new places as "
            f"overrides, KEY=VALUE of {run / RECIPE}"
        ) from error


def keep_run(run: Path, identity: str) -> None:
    """Record the id of the run with its first checkpoint.

    Raises:
        WorkbenchError: the record is damaged, or cannot be written.
    """
    record = read_data(run)
    if record is not None and RUN not in record:
        keep_data(run, {**record, RUN: identity})


def run_id(run: Path) -> str | None:
    """The id in the checkpoints of a run; None if it has none, or no record of it.

    Raises:
        WorkbenchError: the record is damaged.
    """
    return (read_data(run) or {}).get(RUN)


def _without_start(read: Identities) -> Identities:
    return {kind: places for kind, places in read.items() if kind != START}


def _changed_start(run: Path, before: Identities, now: Identities) -> list[str]:
    """The places of the weights that the run started from and that changed since, which no longer matters.

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
                f"{run} started from {started}, but init_from names {place}, which are others. Resume with the old "
                "value, or choose another run folder"
            )
    return changed


def _warn_mixed(before: Identities, after: Identities, step: int) -> None:
    """Warn about changed held-out corpora: losses before and after do not compare."""
    if before and after and _known(before) != _known(after):
        logger.warning(
            "the held-out data is not that of the steps before %d:\n%s\nThe run's held-out losses are of two sets and "
            "do not compare; the best checkpoint, where one is kept, is chosen across both",
            step,
            _listed(_differences(before, after)),
        )


def _other(run: Path, differences: list[str]) -> WorkbenchError:
    """The error for a run that would resume with other data or other code."""
    code = any(line.startswith(f"{ALL_PARTS} ") for line in differences)
    what = "with other code" if code else "on other data"
    copy = f" ({run} has the code as it was)" if code else ""
    return WorkbenchError(
        f"{run} was trained {what}:\n{_listed(differences)}\nRestore it{copy}, or choose another run folder. To "
        f"continue "
        f"with the new {'one' if code else 'data'} on purpose, add --accept-changes; {DATA} then records the changes"
    )


def refuse_other(run: Path, read: Identities) -> None:
    """Check the data that was opened to use a trained run: it must be the data of the training.

    Raises:
        WorkbenchError: a graph, vectors, a tokenizer or frozen weights with another content; the message names it.
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
    """Check the data that a new run reads against the run that its weights come from: shared data must be the same.

    Corpora, the code of components and the weights that those started from are not checked, since weights may be used
    with others. Neither is data at another place outside of that run's own folder, which is a choice.

    Raises:
        WorkbenchError: data changed since; the message names it.
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
    """The record of a run; None if it has none (runs of earlier versions).

    Raises:
        WorkbenchError: it is damaged, or not a file.
    """
    path = run / DATA
    check_file(path)
    if not path.is_file():
        return None
    try:
        record = parse_json(path.read_bytes())
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
