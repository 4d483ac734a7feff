"""The manifest of a corpus, corpus.json: its content and its provenance."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import atomic
from workbench.core.files.text_files import parse_json
from workbench.corpora.index_bundle import BUNDLE_NAME, write_bundle
from workbench.corpora.schema.schema import KINDS

FILE_NAME = "corpus.json"
_CHECKSUM, _SHA256 = re.compile("[0-9a-f]{128}"), re.compile("[0-9a-f]{64}")
HOW_TO_FIX_CORPUS = (
    "Restore it, or delete the folder (and the folders of its held-out splits) and prepare the corpus again; if it is "
    "an "
    "indexed WebDataset, delete only this file and index it again"
)
"""Preparing again fixes shards and indexes, but not this file: only it records what the shards were built from."""
INDEX_HERE = "Index shards of other places in a folder of this machine: workbench index URL --output FOLDER"
DIGEST = "digest"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard: `name` and `index` are file names in the corpus folder, absolute paths or URLs.

    `lengths` is the total per unit (characters of text, elements of a list). `fields` is the number of records with
    each field, `characters` the number of characters in each field of texts, and `dropped` the number of samples that
    the preparation left out, by reason.
    """

    name: str
    index: str
    records: int
    bytes: int
    sha256: str
    index_sha256: str
    lengths: dict[str, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    characters: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The contents of corpus.json.

    `provenance` is {command, options, inputs, ...}. `about` holds facts on the whole corpus that other code checks (the
    backbone of its region features, its linker). `foreign` says that the shards are an indexed WebDataset with another
    schema. `bundle` is {name, bytes, sha256} of the file with all indexes (`workbench.corpora.index_bundle`); it is
    empty where there is none.
    """

    kind: str
    shards: list[ShardInfo]
    fields: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    foreign: bool = False
    schema: int = SCHEMA
    bundle: dict[str, Any] = field(default_factory=dict)

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

    @property
    def characters(self) -> dict[str, int]:
        """Totals per field of texts over all shards."""
        return total(shard.characters for shard in self.shards)

    @property
    def identity(self) -> str:
        """A checksum over those of all shards and indexes; corpora with equal identities have equal content."""
        shards = [[shard.sha256, shard.index_sha256] for shard in self.shards]
        content = {"kind": self.kind, "foreign": self.foreign, "shards": shards}
        return _fast_digest(content)  # of ASCII alone

    def write(self, folder: Path) -> None:
        """Write corpus.json atomically; its last key, `digest`, is a checksum over all the others."""
        tree = json.loads(json.dumps(dataclasses.asdict(self)))
        text = json.dumps({**tree, DIGEST: _digest(tree)}, ensure_ascii=False, indent=1)
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
    may_be_empty: bool = False,
) -> Manifest:
    """Write the corpus.json of complete shards, however many processes wrote them.

    Shards without records are not listed; what they dropped still counts. `dropped` is added to the shards' counts.

    Args:
        may_be_empty: whether it is part i/n of a corpus, which may hold no record.

    Raises:
        WorkbenchError: no shard holds a record; the message lists what was dropped and why.
    """
    listed = sorted(shards, key=lambda shard: shard.name)
    losses = total([*(shard.dropped for shard in listed), dropped or {}])
    full = [shard for shard in listed if shard.records]
    if not full and not may_be_empty:
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
        bundle=_bundle(folder, full) if full else {},
    )
    manifest.write(folder)
    return manifest


def _bundle(folder: Path, shards: Sequence[ShardInfo]) -> dict[str, Any]:
    """Write the bundle of a corpus's indexes; returns its entry in corpus.json. None is written for indexes elsewhere
    than in a local folder."""
    indexes = [folder / shard.index for shard in shards]
    return write_bundle(folder / BUNDLE_NAME, indexes) if all(index.is_file() for index in indexes) else {}


def is_whole(folder: Path, manifest: Manifest) -> bool:
    """Whether the bundle of a corpus in a local folder is the one that was written with it; older corpora have none."""
    place = folder / BUNDLE_NAME
    return not manifest.bundle or (place.is_file() and matches(place, manifest.bundle["sha256"]))


def parse_manifest(data: bytes, where: str) -> Manifest:
    """A manifest from the bytes of a corpus.json.

    Raises:
        WorkbenchError: not JSON, a newer schema, an unknown kind, a missing or unknown key, a value of a wrong type, or
            a file that was changed after it was written.
    """
    tree = _tree(data, where)
    if tree.get("schema", SCHEMA) != SCHEMA:
        raise WorkbenchError(
            f"{where} has schema version {tree['schema']}; this version reads {SCHEMA}: prepare the corpus again, "
            "or use the version that wrote it"
        )
    stated = tree.pop(DIGEST, None)
    if not (stated is None or stated == _fast_digest(tree) or stated == _digest(tree)):  # earlier versions wrote none
        raise WorkbenchError(
            f"{where} was changed or damaged after it was written (its digest does not fit). {HOW_TO_FIX_CORPUS}"
        )
    if str(tree["kind"]) not in KINDS:
        raise unknown("kind of corpus", str(tree["kind"]), KINDS, where)
    try:
        shards = [parse_shard(shard) for shard in tree["shards"]]
        manifest = Manifest(**_typed(Manifest, {**tree, "shards": shards}))
        _check_bundle(manifest.bundle)
        return manifest
    except (TypeError, ValueError) as error:
        raise WorkbenchError(f"{where} is damaged or from another version: {error}. {HOW_TO_FIX_CORPUS}") from error


def parse_shard(tree: Any) -> ShardInfo:
    """A shard's entry in corpus.json.

    Raises:
        TypeError: a missing or unknown key, or a value of a wrong type.
        ValueError: a negative count, or no checksums.
    """
    if not isinstance(tree, dict):
        raise TypeError(f"a shard's entry is {tree!r}; allowed: an object")
    info = ShardInfo(**_typed(ShardInfo, tree))
    if not _CHECKSUM.fullmatch(info.sha256 + info.index_sha256):  # checksums name files in the cache
        raise ValueError(f"the shard {info.name!r} has no SHA-256 checksums")
    if min(info.records, info.bytes) < 0 or any(
        min(counts.values(), default=0) < 0 for counts in (info.lengths, info.fields, info.characters, info.dropped)
    ):
        raise ValueError(f"the shard {info.name!r} has a negative count")
    return info


def check_below(manifest: Manifest, url: str) -> None:
    """Check the corpus.json at a URL: whoever wrote it must not decide which other hosts, and which files of this
    machine, are opened.

    Raises:
        WorkbenchError: it lists a file that is not below its own URL.
    """
    home = f"{url.rpartition('/')[0]}/"
    indexes = [manifest.bundle["name"]] if manifest.bundle else []
    for name in (*(name for info in manifest.shards for name in (info.name, info.index)), *indexes):
        below = unquote(name.removeprefix(home))
        if "://" in below or below.startswith("/") or ".." in below.split("/"):
            raise WorkbenchError(f"{url} lists {name}; a corpus at a URL lists files below its own URL. {INDEX_HERE}")


def _check_bundle(bundle: Mapping[str, Any]) -> None:
    if not bundle:
        return
    kinds = {name: type(value) for name, value in bundle.items()}
    if kinds != {"name": str, "bytes": int, "sha256": str} or not _SHA256.fullmatch(bundle["sha256"]):
        raise ValueError(f"the bundle of indexes is {dict(bundle)!r}; allowed: name, bytes and sha256")


def _tree(data: bytes, where: str) -> dict[str, Any]:
    try:
        tree = parse_json(data)
    except ValueError as error:
        raise WorkbenchError(f"{where} is not valid JSON: {error}. {HOW_TO_FIX_CORPUS}") from error
    if not isinstance(tree, dict) or not isinstance(tree.get("shards"), list) or "kind" not in tree:
        raise WorkbenchError(
            f"{where} is not a corpus manifest: it needs the keys kind and shards. {HOW_TO_FIX_CORPUS}"
        )
    return tree


def _digest(tree: Mapping[str, Any]) -> str:
    canonical = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _fast_digest(tree: Mapping[str, Any]) -> str:
    """`_digest` in a tenth of the time; another value where the tree has characters that are not ASCII."""
    try:
        return hashlib.sha256(orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)).hexdigest()
    except TypeError:  # an integer of more than 64 bits
        return ""


def _typed(kind: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree itself, after checking the types of its values.

    Raises:
        TypeError: a value is not of the type of its field.
    """
    checks = _checks(kind)
    for name, value in tree.items():
        if name in checks and not checks[name](value):
            allowed = typing.get_type_hints(kind)[name]
            raise TypeError(f"{name} = {str(value)[:80]!r} is of type {type(value).__name__}; allowed: {allowed}")
    return dict(tree)


@cache
def _checks(kind: type) -> dict[str, Callable[[Any], bool]]:
    """A check of the type of each field's value."""
    return {name: _check(hint) for name, hint in typing.get_type_hints(kind).items()}


def _check(hint: Any) -> Callable[[Any], bool]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: True
    if origin in (dict, list):
        each = _check(inner[-1])
        if inner[-1] is Any:
            return lambda value: isinstance(value, origin)
        if origin is dict:
            return lambda value: isinstance(value, dict) and all(map(each, value.values()))
        return lambda value: isinstance(value, list) and all(map(each, value))
    return lambda value: type(value) is hint
