"""The output folder of a preparation: whose it is, how far it got, and what must not be mixed in it."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import DROPPED, Job, remove_shard
from pipelines.preparing.limits import Limits
from pipelines.preparing.media_versions import MEDIA
from pipelines.preparing.splits import part_folder
from pipelines.sources.files import identity, is_version
from pipelines.stages import stage_name
from workbench.corpora.manifest import FILE_NAME, Manifest, parse_manifest
from workbench.corpora.unfinished import STATE
from workbench.corpora.writer import finished_shard
from workbench.errors import WorkbenchError
from workbench.files.checksums import matches
from workbench.files.drafts import atomic, explained
from workbench.files.lock import locked
from workbench.parts.blame import Blame
from workbench.parts.trust import code_checksums

log = logging.getLogger(__name__)
NAMED = 20
"""So many files of a kind that were passed over are named in corpus.json."""
DRAFTS = ".*.part"
"""What `workbench.files.drafts.atomic` calls files that are not complete; while nobody writes, all are left over."""


class Workspace:
    """Compares options and inputs of this run with those that the folder was begun with."""

    def __init__(
        self, job: Job, inputs: Sequence[Path], limits: Limits, command: str, source: Mapping[str, Any]
    ) -> None:
        self.job = job
        self.command = command
        self.source = source
        self.folders = {part: part_folder(job.output, part) for part in job.parts}
        self.options = _options(job, limits)
        with Blame(job.reader):
            self.inputs = job.reader.inputs(inputs)
        self.before: dict[str, Manifest] = {}
        self._seen: list[tuple[int, int, int]] = []

    def check_unchanged(self) -> None:
        """
        Raises:
            WorkbenchError: an input is not what it was when the work began.
        """
        for path, seen in zip(self.inputs, self._seen, strict=True):
            if not path.is_file() or _version(path) != seen:
                raise WorkbenchError(
                    f"{path} changed while it was read: what was made of it may be of both. Delete {self.job.output} "
                    "and run the command again"
                )

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Options and inputs: what decides the corpus."""
        return {"options": self.options, "inputs": [identity(path) for path in self.inputs]}

    def complete(self) -> dict[str, Manifest] | None:
        """The manifests by part where this very corpus is complete; None where there is work to do.

        A finished corpus of which a shard is missing or damaged is work to do: `open` takes the rest of it away.

        Raises:
            WorkbenchError: the folder holds another preparation's corpus, finished or not, or foreign shards.
        """
        place = self.job.output / FILE_NAME
        if place.exists():
            self._refuse_other(parse_manifest(place.read_bytes(), str(place)).provenance)
            self.before = self._manifests()
            return None if self._broken() else self.before
        state = self.job.output / STATE
        if state.exists():
            self._refuse_other(_read_state(state))
        elif any(folder.is_dir() and any(folder.glob("*.tar")) for folder in self.folders.values()):
            raise WorkbenchError(
                f"{self.job.output} (or a part of it) holds shards of something else; choose another --output"
            )
        return None

    def open(self) -> None:
        """Make the folders, note whose they are, and clear what a killed run left half-written, or damage spoilt."""
        for folder in self.folders.values():
            with explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
        for path in self._broken():
            log.warning("%s is missing or damaged; it is made again", path)
            remove_shard(path)
        self._clear()
        self._seen = [_version(path) for path in self.inputs]
        state = json.dumps({"command": self.command, **self.fingerprint}, indent=1).encode()
        for folder in self.folders.values():
            with atomic(folder / STATE) as file:
                file.write(state)

    def tidy(self) -> None:
        """Clear what a run left that was killed after its corpus was complete."""
        if (self.job.output / STATE).exists() or any(self._unlisted()):
            with locked(self.job.output):
                self.close()

    def abandon(self, *, finished: bool = False) -> bool:
        """The run failed: where no finished shard has a record, nothing stays, so that other options may be tried.

        With `finished`, such shards go too: the run could not come to another end.

        Returns:
            Whether finished shards stay.
        """
        shards = [path for folder in self.folders.values() for path in folder.glob("part-*.tar")]
        infos = [finished_shard(path) for path in shards]
        if any(info is not None and info.records for info in infos) and (self.before or not finished):
            return True
        for path in shards:
            remove_shard(path)
        shutil.rmtree(self.job.output / DROPPED, ignore_errors=True)
        self._forget()
        for folder in self.folders.values():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return False

    def provenance(self, part: str) -> dict[str, Any]:
        """What corpus.json says about how the corpus came to be."""
        named = {"part": part} if part else {}
        left = {what: {"files": len(names), "first": names[:NAMED]} for what, names in self.job.passed_over.items()}
        passed = {"passed_over": left} if left else {}
        return {"command": self.command, **named, **self.fingerprint, "source": dict(self.source), **passed}

    def close(self) -> None:
        """The corpus is complete: the state file, shards without records and half-written files of a killed run go."""
        for path in list(self._unlisted()):
            path.unlink()
        self._forget()
        for folder in self.folders.values():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        for part, manifest in self._manifests().items():
            if part in self.before and manifest.identity != self.before[part].identity:
                log.warning(
                    "%s is not what it was: a shard that was made again came out otherwise (another version of the "
                    "program?). Runs that were trained on it will not go on with it",
                    self.folders[part],
                )

    def _forget(self) -> None:
        (self.job.output / MEDIA).unlink(missing_ok=True)
        for folder in reversed(self.folders.values()):  # the corpus's own last: it says that there is work to do
            (folder / STATE).unlink(missing_ok=True)

    def _manifests(self) -> dict[str, Manifest]:
        places = {part: folder / FILE_NAME for part, folder in self.folders.items()}
        return {part: parse_manifest(p.read_bytes(), str(p)) for part, p in places.items() if p.exists()}

    def _broken(self) -> list[Path]:
        """The shards that are listed and are not as they were written; each version of a file is hashed once."""
        paths = [(self.folders[part] / info.name, info) for part, found in self.before.items() for info in found.shards]
        return [path for path, info in paths if finished_shard(path) != info or not matches(path, info.sha256)]

    def _unlisted(self) -> Iterator[Path]:
        """Half-written files, and shards without records."""
        manifests = self._manifests()
        for part, folder in self.folders.items():
            shards = manifests[part].shards if part in manifests else []
            names = {name for info in shards for name in (info.name, info.index)}
            yield from folder.glob(DRAFTS)
            yield from (p for p in folder.glob("part-*") if p.suffix in (".tar", ".index") and p.name not in names)

    def _clear(self) -> None:
        for folder in self.folders.values():
            for rest in folder.glob(DRAFTS):
                rest.unlink(missing_ok=True)

    def _refuse_other(self, stored: Mapping[str, Any]) -> None:
        if "options" not in stored:
            raise WorkbenchError(
                f"{self.job.output} holds a corpus that no preparation made ({stored.get('command', 'unknown')}); "
                "choose another --output, or delete the folder"
            )
        theirs, ours = stored["options"], self.options
        changed = [
            f"{name} was {theirs.get(name)!r}, is {ours.get(name)!r}"
            for name in sorted(theirs.keys() | ours.keys())
            if theirs.get(name) != ours.get(name)
        ]
        inputs = stored.get("inputs", [])
        if len(inputs) != len(self.inputs) or not all(map(is_version, self.inputs, inputs)):
            changed.append("the inputs are others or have changed")
        if changed:
            raise WorkbenchError(
                f"{self.job.output} was begun with other options or inputs: {'; '.join(changed)}. Choose another "
                "--output, delete the folder, or use the same options again"
            )


def _version(path: Path) -> tuple[int, int, int]:
    """What changes whenever a file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_bytes())
        if isinstance(state, dict) and isinstance(state["options"], dict) and isinstance(state["inputs"], list):
            return state
        reason = "values of wrong types"
    except (ValueError, KeyError, RecursionError) as error:
        reason = str(error)
    raise WorkbenchError(f"{path} is damaged ({reason}); delete the folder {path.parent} and prepare it again")


def _options(job: Job, limits: Limits) -> dict[str, Any]:
    """Everything that decides the corpus besides the inputs, as plain JSON values (the number of workers does not)."""
    stages = [[stage_name(s), _fields(s)] for s in job.stages]
    options: dict[str, Any] = {
        "format": type(job.reader).__name__,
        "format_options": job.reader.stated(),
        "stages": stages,
        "splits": dict(job.splits),
        "meta": dict(job.meta),
        "dedupe": job.dedupe,
        "numbered_keys": job.numbered_keys,
        "on_error": job.on_error,
        "shard_size": limits.shard_size,
        "shard_bytes": limits.shard_bytes,
        "limit": limits.limit,
    }
    # corpora of earlier versions have no such options
    for name in ("own_splits", "near_images", "near_captions", "inductive"):
        value = getattr(job, name)
        if value not in ((), None) and value is not False:
            options[name] = value
    if limits.part is not None:
        options["part"] = limits.part
    code = code_checksums(f"{type(job.reader).__module__}:{type(job.reader).__name__}")
    if code:  # of a format that is not installed
        options["format_code"] = code
    return json.loads(json.dumps(options, default=str))


def _fields(stage: Any) -> dict[str, Any]:
    is_value = dataclasses.is_dataclass(stage) and not isinstance(stage, type)
    return {f.name: getattr(stage, f.name) for f in dataclasses.fields(stage) if f.compare} if is_value else {}
