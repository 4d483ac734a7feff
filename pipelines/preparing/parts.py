"""What the jobs of a preparation in parts (`--part i/n`) share, so that each reads its own records only.

A hidden folder next to their outputs has the checksums of the inputs, the place of each chunk in them, and the hashes
of contents. The job that comes first makes them, and the others wait for it or find them. Jobs whose outputs lie in
folders of their own share nothing: each of them reads everything. `prepare join` deletes the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import Chunk, RecordRange
from pipelines.readers.reader import RecordPlace
from pipelines.sources.files import identity
from workbench.core.files.drafts import explained, write_text
from workbench.corpora.manifest import Manifest

log = logging.getLogger(__name__)
PART = "part"
"""The option that differs between the jobs of a preparation."""
SPLIT_RECORDS = "split_records"
"""Key of the provenance of part i/n: the number of its records by held-out split; a split without one has no folder."""
FOLDER = ".parts-"
INPUTS, CUTS, HASHES, LOCK = "inputs.json", "cuts.jsonl", "hashes", "lock"


def whole(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the jobs of a preparation have in common."""
    return {name: value for name, value in options.items() if name != PART}


def stated_options(manifest: Manifest) -> dict[str, Any]:
    """The options that decided a corpus; none where another program wrote it."""
    options = manifest.provenance.get("options")
    return options if isinstance(options, dict) else {}


class PartNotes:
    """The shared folder of the jobs that have these options and these versions of the inputs.

    Args:
        output: the folder of this job's corpus.
    """

    def __init__(self, output: Path, options: Mapping[str, Any], inputs: Sequence[Path]) -> None:
        self.options, self.inputs = whole(options), list(inputs)
        found = [path.stat() for path in self.inputs]
        versions = [[p.name, at.st_size, at.st_mtime_ns] for p, at in zip(self.inputs, found, strict=True)]
        key = hashlib.blake2b(json.dumps([self.options, versions]).encode(), digest_size=8).hexdigest()
        self.folder = output.absolute().parent / f"{FOLDER}{key}"

    @property
    def hashes(self) -> Path:
        """The folder of the hashes of contents."""
        return self.folder / HASHES

    def identities(self) -> list[dict[str, Any]]:
        """The identity of each input; the job that comes first hashes them."""
        place = self.folder / INPUTS
        with self._turn():
            if not place.exists():
                made = {"options": self.options, "inputs": [identity(path) for path in self.inputs]}
                write_text(place, json.dumps(made))
        return list(json.loads(place.read_bytes())["inputs"])

    def chunks(self, cut: Callable[[], Iterable[Chunk]]) -> list[Chunk] | None:
        """All chunks, as ranges of the inputs; None where the reader cannot begin inside of a file.

        Args:
            cut: reads all records; it is called by the job that comes first.
        """
        place = self.folder / CUTS
        with self._turn():
            if not place.exists():
                log.info("cutting the input into shards, once for all jobs of --part")
                write_text(place, "".join(f"{line}\n" for line in self._lines(cut())))
        rows = [json.loads(line) for line in place.read_text("utf-8").splitlines()]
        if None in rows:
            return None
        chunks = []
        for number, row in enumerate(rows):
            ranges = tuple(RecordRange(RecordPlace(self.inputs[file], *at), records) for file, *at, records in row)
            chunks.append(Chunk(number, [], ranges=ranges))
        return chunks

    def _lines(self, chunks: Iterable[Chunk]) -> Iterator[str]:
        """A line for each chunk; a last one, null, where a chunk has no places."""
        numbers = {path: number for number, path in enumerate(self.inputs)}
        for chunk in chunks:
            sent = chunk.to_send()
            if not sent.ranges or any(found.place.path not in numbers for found in sent.ranges):
                yield "null"
                return
            yield json.dumps([[numbers[place.path], *place[1:], records] for place, records in sent.ranges])

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One job at a time; on a file system without locks all at once, which costs time alone."""
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / LOCK).open("w") as file:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield


def remove_notes(parents: Iterable[Path], options: Mapping[str, Any], inputs: Sequence[Any]) -> None:
    """Delete the notes of a preparation in these folders, after they were joined."""
    for parent in parents:
        for folder in parent.glob(f"{FOLDER}*"):
            try:
                made = json.loads((folder / INPUTS).read_bytes())
            except (OSError, ValueError):
                continue
            if made == {"options": whole(options), "inputs": list(inputs)}:
                shutil.rmtree(folder, ignore_errors=True)
