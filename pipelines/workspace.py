"""The output folder of a preparation: whose it is, how far it got, and what must not be mixed in it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.chunks import Job
from pipelines.files import identity
from pipelines.splits import part_folder
from pipelines.stages import stage_name
from workbench.corpora.files import atomic, explained
from workbench.corpora.manifest import FILE_NAME, Manifest, parse_manifest
from workbench.corpora.writer import finished_shard
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from pipelines.runner import Limits

STATE = ".prepare.json"


class Workspace:
    """Compares the fingerprint (options and inputs) of this run with the one that the folder was begun with."""

    def __init__(
        self, job: Job, inputs: Sequence[Path], limits: Limits, command: str, source: Mapping[str, Any]
    ) -> None:
        self.job = job
        self.command = command
        self.source = source
        self.folders = {part: part_folder(job.output, part) for part in job.parts}
        self.options = _options(job, limits)
        self.fingerprint: dict[str, Any] = {
            "options": self.options,
            "inputs": [identity(path) for path in job.reader.inputs(inputs)],
        }

    def complete(self) -> dict[str, Manifest] | None:
        """The manifests by part where this very corpus is complete; None where there is work to do.

        Raises:
            WorkbenchError: the folder holds another preparation's corpus, finished or not, or foreign shards.
        """
        place = self.job.output / FILE_NAME
        if place.exists():
            self._refuse_other(parse_manifest(place.read_bytes(), str(place)).provenance)
            manifests = {part: folder / FILE_NAME for part, folder in self.folders.items()}
            return {part: parse_manifest(p.read_bytes(), str(p)) for part, p in manifests.items() if p.exists()}
        state = self.job.output / STATE
        if state.exists():
            self._refuse_other(json.loads(state.read_text("utf-8")))
        elif any(folder.is_dir() and any(folder.glob("*.tar")) for folder in self.folders.values()):
            raise WorkbenchError(
                f"{self.job.output} (or a part of it) holds shards of something else; choose another --output"
            )
        return None

    def open(self) -> None:
        """Make the folders, note whose they are, and clear what a killed run left half-written."""
        for folder in self.folders.values():
            with explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        with atomic(self.job.output / STATE) as file:
            file.write(json.dumps({"command": self.command, **self.fingerprint}, indent=1).encode())

    def abandon(self) -> None:
        """The run failed: where no finished shard has a record, nothing stays, so that other options may be tried."""
        shards = [path for folder in self.folders.values() for path in folder.glob("part-*.tar")]
        infos = [finished_shard(path) for path in shards]
        if any(info is not None and info.records for info in infos):
            return
        for path in shards:
            path.unlink()
            path.with_suffix(".index").unlink(missing_ok=True)
        (self.job.output / STATE).unlink(missing_ok=True)
        for folder in self.folders.values():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def provenance(self, part: str) -> dict[str, Any]:
        """What corpus.json says about how the corpus came to be."""
        named = {"part": part} if part else {}
        return {"command": self.command, **named, **self.fingerprint, "source": dict(self.source)}

    def close(self) -> None:
        """The corpus is complete: the state file, shards without records and half-written files of a killed run go."""
        self._clear()
        (self.job.output / STATE).unlink(missing_ok=True)
        for folder in self.folders.values():
            place = folder / FILE_NAME
            listed = parse_manifest(place.read_bytes(), str(place)).shards if place.exists() else []
            names = {name for shard in listed for name in (shard.name, shard.index)}
            for path in [*folder.glob("part-*.tar"), *folder.glob("part-*.index")]:
                if path.name not in names:
                    path.unlink()
            if not listed:
                folder.rmdir()

    def _clear(self) -> None:
        for folder in self.folders.values():
            for rest in folder.glob(".part-*.part"):
                rest.unlink(missing_ok=True)

    def _refuse_other(self, stored: Mapping[str, Any]) -> None:
        theirs, ours = stored.get("options", {}), self.options
        changed = [
            f"{name} was {theirs.get(name)!r}, is {ours.get(name)!r}"
            for name in sorted(theirs.keys() | ours.keys())
            if theirs.get(name) != ours.get(name)
        ]
        if stored.get("inputs") != self.fingerprint["inputs"]:
            changed.append("the inputs are others or have changed")
        if changed:
            raise WorkbenchError(
                f"{self.job.output} was begun with other options or inputs: {'; '.join(changed)}. Choose another "
                "--output, delete the folder, or use the same options again"
            )


def _options(job: Job, limits: Limits) -> dict[str, Any]:
    """Everything that decides the corpus besides the inputs, as plain JSON values (the number of workers does not)."""
    stages = [[stage_name(s), _fields(s)] for s in job.stages]
    options = {
        "format": type(job.reader).__name__,
        "format_options": dataclasses.asdict(job.reader),
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
    return json.loads(json.dumps(options, default=str))


def _fields(stage: Any) -> dict[str, Any]:
    is_value = dataclasses.is_dataclass(stage) and not isinstance(stage, type)
    return {f.name: getattr(stage, f.name) for f in dataclasses.fields(stage) if f.compare} if is_value else {}
