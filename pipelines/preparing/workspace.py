"""The output folder of a preparation: its options, its progress, and the checks that nothing is mixed in it."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import DROPPED, Chunk, remove_shard
from pipelines.preparing.parts import PartNotes
from pipelines.preparing.progress import console
from pipelines.preparing.splits import MAIN
from pipelines.preparing.uploads import CorpusUpload
from pipelines.sources.files import identity, is_version
from pipelines.sources.image_store import ImageRef
from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import atomic, explained, may_be_written
from workbench.core.files.lock import locked
from workbench.core.processes.signals import Ended
from workbench.corpora.manifest import FILE_NAME, Manifest, is_whole, parse_manifest
from workbench.corpora.shards.writer import STATE, finished_shard

log = logging.getLogger(__name__)
NAMED = 20
"""The most skipped files of a kind that corpus.json names."""
MEDIA = ".prepare.media"
"""The file of `MediaVersions`."""
HASHES = ".prepare.hashes"
"""The folder of the hashes of contents, while duplicates are searched for."""
DRAFTS = ".*.part"
"""How `workbench.core.files.drafts.atomic` names incomplete files."""


class NothingLeftError(WorkbenchError):
    """All records went to held-out splits; the same command would end in the same way."""


@dataclass(frozen=True)
class CorpusFacts:
    """Provenance in corpus.json that decides nothing in the corpus.

    Args:
        command: as the user typed it, without the engine and its workers.
        about: facts on the whole corpus (`Manifest.about`).
        source: facts on the inputs: licence, url.
        passed_over: the files in the inputs' folders that were skipped, by kind.
    """

    command: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    passed_over: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Workspace:
    """Compares options and inputs of this preparation with those that the folder was begun with.

    Args:
        folders: by split; the corpus's own is the first.
        options: all options that decide the corpus besides the inputs, as plain JSON values.
        inputs: all files that decide the records.
        notes: of the parts of a preparation, which know the identities of the inputs.
        upload: the store that the corpus is written to.
    """

    def __init__(
        self,
        folders: dict[str, Path],
        options: Mapping[str, Any],
        inputs: Sequence[Path],
        facts: CorpusFacts,
        notes: PartNotes | None = None,
        upload: CorpusUpload | None = None,
    ) -> None:
        self.folders, self.output = folders, folders[MAIN]
        self.options, self.inputs, self.facts = options, inputs, facts
        self.notes, self.upload = notes, upload
        self.place = self.output if upload is None else upload.url
        self.before: dict[str, Manifest] = {}
        self._seen: list[tuple[int, int, int]] = []

    @contextmanager
    def held(self, complete: dict[str, Manifest] | None) -> Iterator[dict[str, Manifest] | None]:
        """The folder, locked, while a corpus is written in it; yields the manifests by split if it is complete already.

        When the work ends, the folder is tidied. When it fails, finished shards stay for the next run.

        Args:
            complete: the result of the check (`complete`).

        Raises:
            WorkbenchError: another process works in it, or has begun another preparation since the check.
        """
        if complete is not None:
            self._tidy()
            yield complete
            return
        with locked(self.output):
            complete = self.complete()  # as another process may have left it since
            if complete is not None:
                yield complete
                return
            self._open()
            try:
                yield None
            except BaseException as error:
                kept = self._abandon(finished=isinstance(error, NothingLeftError))
                if isinstance(error, KeyboardInterrupt | Ended):
                    _say_stopped(self.place, kept)
                raise
            self._close()

    def check_unchanged(self) -> None:
        """
        Raises:
            WorkbenchError: an input has changed since the work began.
        """
        for path, seen in zip(self.inputs, self._seen, strict=True):
            if not path.is_file() or _version(path) != seen:
                raise WorkbenchError(
                    f"{path} changed while it was read, so the corpus may mix both versions. Delete {self.place} "
                    "and run the command again"
                )

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Options and inputs: everything that decides the corpus."""
        inputs = [identity(path) for path in self.inputs] if self.notes is None else self.notes.identities()
        return {"options": self.options, "inputs": inputs}

    def complete(self) -> dict[str, Manifest] | None:
        """The manifests by split if this very corpus is complete; None if there is work to do.

        A finished corpus with a missing or damaged shard is work to do: `held` deletes the rest of it.

        Raises:
            WorkbenchError: the folder holds another preparation's corpus, finished or not, or foreign shards.
        """
        place = self.output / FILE_NAME
        if place.exists():
            self._refuse_other(parse_manifest(place.read_bytes(), str(place)).provenance)
            self.before = self._manifests()
            whole = all(is_whole(self.folders[part], found) for part, found in self.before.items())
            return self.before if whole and not self._broken() else None
        state = self.output / STATE
        if state.exists():
            self._refuse_other(_read_state(state))
        elif any(folder.is_dir() and any(folder.glob("*.tar")) for folder in self.folders.values()):
            raise WorkbenchError(
                f"{self.place} (or one of its splits) holds shards of another corpus; choose another --output"
            )
        return None

    def _open(self) -> None:
        """Make the folders, store options and inputs, and delete half-written or damaged files of a killed run."""
        for folder in self.folders.values():
            with explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
        for path in self._broken():
            log.warning("%s is missing or damaged; preparing it again", path)
            remove_shard(path)
        self._clear()
        self._seen = [_version(path) for path in self.inputs]
        state = json.dumps({"command": self.facts.command, **self.fingerprint}, indent=1).encode()
        for folder in self.folders.values():
            with atomic(folder / STATE) as file:
                file.write(state)
        if self.upload is not None:
            self.upload.put_state(list(self.folders))

    def _tidy(self) -> None:
        """Delete what a run left that was killed after its corpus was complete."""
        if (self.output / STATE).exists() or any(self._unlisted()):
            with locked(self.output):
                self._close()

    def _abandon(self, *, finished: bool = False) -> bool:
        """After a failed run: where no finished shard has a record, delete everything, so that other options may be
        tried.

        With `finished`, such shards are deleted too: the run could not end otherwise.

        Returns:
            Whether finished shards stay.
        """
        shards = [path for folder in self.folders.values() for path in folder.glob("part-*.tar")]
        infos = [finished_shard(path) for path in shards]
        if any(info is not None and info.records for info in infos) and (self.before or not finished):
            return True
        for path in shards:
            remove_shard(path)
        shutil.rmtree(self.output / DROPPED, ignore_errors=True)
        self._forget()
        for folder in self.folders.values():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return False

    def provenance(self, part: str) -> dict[str, Any]:
        """The provenance of the corpus, for corpus.json."""
        named = {"part": part} if part else {}
        left = {what: {"files": len(names), "first": names[:NAMED]} for what, names in self.facts.passed_over.items()}
        passed = {"passed_over": left} if left else {}
        return {"command": self.facts.command, **named, **self.fingerprint, "source": dict(self.facts.source), **passed}

    def _close(self) -> None:
        """After the work: delete the state file, shards without records and half-written files of a killed run."""
        for path in list(self._unlisted()):
            path.unlink(missing_ok=True)
        self._forget()
        for folder in self.folders.values():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        for part, manifest in self._manifests().items():
            if part in self.before and manifest.identity != self.before[part].identity:
                log.warning(
                    "%s has changed: a shard that was written again is different (another version of the "
                    "program?). Runs that were trained on it will not resume with it",
                    self.folders[part],
                )

    def _forget(self) -> None:
        (self.output / MEDIA).unlink(missing_ok=True)
        shutil.rmtree(self.output / HASHES, ignore_errors=True)
        for folder in reversed(self.folders.values()):  # the corpus's own last: it says that there is work to do
            (folder / STATE).unlink(missing_ok=True)

    def _manifests(self) -> dict[str, Manifest]:
        places = {part: folder / FILE_NAME for part, folder in self.folders.items()}
        return {part: parse_manifest(p.read_bytes(), str(p)) for part, p in places.items() if p.exists()}

    def _broken(self) -> list[Path]:
        """The listed shards that are not as they were written; each version of a file is hashed once. Of those in a
        store only the sizes are compared."""
        here = self.upload is None
        paths = [(self.folders[part] / info.name, info) for part, found in self.before.items() for info in found.shards]
        return [
            path for path, info in paths if finished_shard(path) != info or (here and not matches(path, info.sha256))
        ]

    def _unlisted(self) -> Iterator[Path]:
        """Half-written files, and shards without records."""
        manifests = self._manifests()
        for part, folder in self.folders.items():
            shards = manifests[part].shards if part in manifests else []
            names = {name for info in shards for name in (info.name, info.index)}
            yield from self._left_over(folder)
            yield from (p for p in folder.glob("part-*") if p.suffix in (".tar", ".index") and p.name not in names)

    def _clear(self) -> None:
        for folder in self.folders.values():
            for rest in self._left_over(folder):
                rest.unlink(missing_ok=True)

    def _left_over(self, folder: Path) -> Iterator[Path]:
        """Half-written files whose writers are gone. A worker of a lost node may still write one: it stays."""
        return (rest for rest in folder.glob(DRAFTS) if not may_be_written(rest))

    def _refuse_other(self, stored: Mapping[str, Any]) -> None:
        if "options" not in stored:
            raise WorkbenchError(
                f"{self.place} holds a corpus that was not written by this program "
                f"({stored.get('command', 'unknown')}); "
                "choose another --output, or delete the folder"
            )
        theirs, ours = stored["options"], self.options
        changed = [*_changes("", theirs, ours)]
        inputs = stored.get("inputs", [])
        if len(inputs) != len(self.inputs) or not all(map(is_version, self.inputs, inputs)):
            changed.append("the inputs are different or have changed")
        if changed:
            raise WorkbenchError(
                f"{self.place} was begun with other options or inputs: {'; '.join(changed)}. Choose another "
                "--output, delete the folder, or use the same options again"
            )


def _changes(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    """The innermost values that differ, by their keys: a stage is a list of its name and its options."""
    if theirs == ours:
        return
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in sorted(theirs.keys() | ours.keys()):
            yield from _changes(f"{name}.{key}" if name else str(key), theirs.get(key), ours.get(key))
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        named = f"{name}.{ours[0]}" if isinstance(ours[0], str) and theirs[0] == ours[0] else name
        for before, now in zip(theirs, ours, strict=True):
            yield from _changes(named, before, now)
    else:
        yield f"{name} was {theirs!r}, is {ours!r}"


def _version(path: Path) -> tuple[int, int, int]:
    """The fields of a file's status that change whenever it is written or replaced."""
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


def _say_stopped(output: Path | str, kept: bool) -> None:
    """Print how to continue after an interruption."""
    if kept:
        console.print(f"stopped. The finished shards of {output} are kept; run the same command again to continue")
    else:
        console.print(f"stopped before a shard of {output} with a record was finished: nothing is kept")


class MediaVersions:
    """The files (images, videos, sounds in folders) that the records of each shard name: a shard built from other
    versions is written again.

    Inputs are known by their checksums. The files that they name may be millions. A preparation that resumes compares
    their size and time of change, a digest for each shard: lines of a file in the folder; of two lines of a shard the
    later one counts. Tar files are inputs.
    """

    def __init__(self, output: Path) -> None:
        self.path = output / MEDIA
        self._known: dict[int, str] = {}
        for line in self.path.read_text("ascii", "replace").split("\n")[:-1] if self.path.exists() else ():
            number, _, digest = line.partition(" ")
            if number.isdecimal():
                self._known[int(number)] = digest

    def changed(self, chunk: Chunk) -> bool:
        """Whether the files of a chunk have changed since the last call; their current state is stored."""
        before, now = self._known.get(chunk.number), digest(chunk)
        if before == now:
            return False
        self._known[chunk.number] = now
        with explained(self.path), self.path.open("a", encoding="ascii") as file:
            file.write(f"{chunk.number} {now}\n")
        return before is not None


def digest(chunk: Chunk) -> str:
    """A digest of the files that a chunk's records name, and of which record names which."""
    total = hashlib.blake2b(digest_size=16)
    for place, record in enumerate(chunk.records):
        for ref in _refs(record.data) if record.place is None else ():  # rows of text name none
            total.update(repr((place, *ref)).encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _refs(data: Any) -> Iterator[ImageRef]:
    if isinstance(data, ImageRef):
        yield data
        return
    inside: Iterable[Any] = data.values() if isinstance(data, dict) else data if isinstance(data, tuple | list) else ()
    for value in inside:
        yield from _refs(value)
