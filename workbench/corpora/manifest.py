"""corpus.json: what a corpus holds and where it comes from."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.corpora.files import atomic
from workbench.corpora.record import FIELDS
from workbench.errors import WorkbenchError, unknown

FILE_NAME = "corpus.json"
_CHECKSUM = re.compile("[0-9a-f]{128}")
SCHEMA = 1


@dataclass(frozen=True)
class ShardInfo:
    """One shard: `name` and `index` are file names in the corpus folder, absolute paths or URLs.

    `lengths` is the total per unit (characters of text, elements of a list), `fields` how many records have each
    field, `dropped` how many samples its preparation left out, by reason.
    """

    name: str
    index: str
    records: int
    bytes: int
    sha256: str
    index_sha256: str
    lengths: dict[str, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The contents of corpus.json.

    `provenance` is {command, options, inputs, ...}; `about` holds facts on the whole corpus that others check (the
    backbone of its region features, its linker); `foreign` says that the shards follow somebody else's schema.
    """

    kind: str
    shards: list[ShardInfo]
    fields: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    foreign: bool = False
    schema: int = SCHEMA

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def lengths(self) -> dict[str, int]:
        """Totals per unit over all shards."""
        return total(shard.lengths for shard in self.shards)

    def write(self, folder: Path) -> None:
        """Write corpus.json atomically."""
        text = json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1)
        with atomic(folder / FILE_NAME) as file:
            file.write(text.encode())


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several counts by name."""
    result: Counter[str] = Counter()
    for count in counts:
        result.update(count)
    return dict(result)


def finish_corpus(
    folder: Path,
    *,
    kind: str,
    shards: Iterable[ShardInfo],
    provenance: Mapping[str, Any],
    about: Mapping[str, Any] | None = None,
    dropped: Mapping[str, int] | None = None,
    foreign: bool = False,
) -> Manifest:
    """Write the corpus.json of shards that are complete, however many processes wrote them.

    Shards without records are listed nowhere; what they dropped still counts. `dropped` adds to the shards' counts.

    Raises:
        WorkbenchError: no shard holds a record; the message lists what was dropped and why.
    """
    listed = sorted(shards, key=lambda shard: shard.name)
    losses = total([*(shard.dropped for shard in listed), dropped or {}])
    full = [shard for shard in listed if shard.records]
    if not full:
        reasons = ", ".join(f"{n} x {reason}" for reason, n in losses.items()) or "the input held no samples"
        raise WorkbenchError(f"{folder}: the corpus would be empty: {reasons}")
    manifest = Manifest(
        kind=kind,
        shards=full,
        fields=total(shard.fields for shard in full),
        dropped=losses,
        provenance=dict(provenance),
        about=dict(about or {}),
        foreign=foreign,
    )
    manifest.write(folder)
    return manifest


def parse_manifest(data: bytes, where: str) -> Manifest:
    """A manifest from the bytes of a corpus.json.

    Raises:
        WorkbenchError: not JSON, a newer schema, an unknown kind, a missing or unknown key.
    """
    try:
        tree = json.loads(data)
    except ValueError as error:
        raise WorkbenchError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(tree, dict) or "shards" not in tree or "kind" not in tree:
        raise WorkbenchError(f"{where} is not a corpus manifest: it needs the keys kind and shards")
    if tree.get("schema", SCHEMA) != SCHEMA:
        raise WorkbenchError(
            f"{where} has schema version {tree['schema']}; this version reads {SCHEMA}: prepare the corpus again, "
            "or use the version that wrote it"
        )
    if tree["kind"] not in FIELDS:
        raise unknown("kind of corpus", str(tree["kind"]), FIELDS, where)
    try:
        shards = [ShardInfo(**shard) for shard in tree.pop("shards")]
        strange = [s.name for s in shards if not _CHECKSUM.fullmatch(s.sha256 + s.index_sha256)]
        if strange:  # checksums name files in the cache
            raise WorkbenchError(
                f"{where}: the shard {strange[0]!r} has no SHA-256 checksums; prepare or index it again"
            )
        return Manifest(shards=shards, **tree)
    except TypeError as error:
        raise WorkbenchError(f"{where} is damaged or from another version: {error}") from error
