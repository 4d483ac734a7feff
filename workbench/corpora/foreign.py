"""Indexing an existing WebDataset as a corpus. Its tars are read and never rewritten."""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import real_path, sha256_of
from workbench.core.files.stores import Store
from workbench.core.url_secrets import HOW_TO_GIVE, has_secrets
from workbench.corpora.foreign_record import FOREIGN_MEMBERS, decode_foreign, foreign_fields, several_media
from workbench.corpora.manifest import FILE_NAME, INDEX_HERE, Manifest, ShardInfo, finish_corpus
from workbench.corpora.reading.source import OnError
from workbench.corpora.schema.members import IN_JSON, JSON_MEMBER
from workbench.corpora.schema.places import texts_in
from workbench.corpora.schema.schema import FIELDS, KINDS, SchemaField, fields_of, lacking, units_of
from workbench.corpora.shards.index import IndexBuilder, index_name, record_checksum
from workbench.corpora.shards.record import BadRecordError, characters_of, check_sample, content_of, cuts_of, lengths_of
from workbench.corpora.shards.tars import Member, records
from workbench.corpora.shards.writer import preparation_in
from workbench.sequences.sequence import Sample

logger = logging.getLogger(__name__)
DISTINCTIVE = {"image-text": "image", "video-text": "video", "speech-text": "sound", "text": "text"}
"""By kind, the field whose members identify it."""
EXAMINED = 100
"""The number of records that are examined to find the kind."""
ANNOTATED = ("image-text", "video-text", "speech-text")
ANNOTATIONS = ("captions", "questions", "labels", "transcript")
"""Annotations of an image, a video or a sound. A record may have none, but a data set without any is unlikely."""
_COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


def index_foreign(
    inputs: Sequence[Path | str],
    output: Path | str,
    *,
    kind: str | None = None,
    on_error: OnError = "stop",
    provenance: Mapping[str, Any] | None = None,
) -> Manifest:
    """Index tars, or folders of tars, into a corpus at `output` (index files and corpus.json only).

    Tars at URLs are fetched one after another, and removed again.

    Args:
        inputs: `.tar` files, or folders that are searched for them; paths or URLs.
        output: the corpus folder, a path or a URL; it may be the folder of the tars.
        kind: `text`, `image-text` or `triples`; None detects it from the members of the first records.
        on_error: whether an unusable record (no image, text that is not UTF-8) stops the indexing, or is left out and
            counted by its reason.

    Raises:
        WorkbenchError: no tars, compressed tars, members of a key that are not adjacent, undecodable records, or an
            `output` that already holds a prepared corpus.
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of corpus", kind, KINDS)
    _refuse_own(output)
    for folder in (output, *inputs):
        if not isinstance(folder, str) and (unfinished := preparation_in(folder)) is not None:
            raise WorkbenchError(unfinished)
    tars = [tar for place in inputs for tar in (stored_tars(place) if isinstance(place, str) else find_tars([place]))]
    kind = kind or _guess_kind(tars)
    shards = []
    bare: Counter[str] = Counter()
    with _written_at(output) as here:
        for number, tar in enumerate(tars):
            name = _name_in(output, tar)
            index = index_name(name if "/" not in name else f"{number:06d}-{name.rpartition('/')[2]}")
            with _fetched(tar) as local:
                shards.append(_index_shard(local, name, here / index, kind, on_error, bare))
            logger.info("indexed %s: %d records", tar, shards[-1].records)
        _warn_bare(bare.total(), sum(shard.records for shard in shards), kind)
        stated = {"inputs": [str(path) for path in inputs], **(provenance or {})}
        return finish_corpus(here, kind=kind, shards=shards, provenance=stated, foreign=True)


def _name_in(output: Path | str, tar: Path | str) -> str:
    """The name of a tar in corpus.json: relative to the corpus's folder where it is in it."""
    if isinstance(tar, str):
        name = tar.removeprefix(f"{output}/")
        if isinstance(output, str) and name == tar:
            raise WorkbenchError(f"{tar} is not below {output}. {INDEX_HERE}")
        if has_secrets(name):
            raise WorkbenchError(f"{tar}: {FILE_NAME} would keep the user and password of this URL. {HOW_TO_GIVE}")
        return name
    if isinstance(output, str):
        raise WorkbenchError(f"{tar} is on this machine, so its index must be too: --output FOLDER, not {output}")
    inside = real_path(tar).is_relative_to(real_path(output))
    return real_path(tar).relative_to(real_path(output)).as_posix() if inside else os.path.abspath(tar)


@contextmanager
def _fetched(tar: Path | str) -> Iterator[Path]:
    """A tar as a local file; that of a URL is removed at the end."""
    if isinstance(tar, Path):
        yield tar
        return
    folder, _, name = tar.rpartition("/")
    with tempfile.TemporaryDirectory() as scratch:
        Store(folder).get(name, local := Path(scratch, name))
        yield local


@contextmanager
def _written_at(output: Path | str) -> Iterator[Path]:
    """The local folder of the index files. Those of a URL are uploaded at the end, corpus.json last."""
    if isinstance(output, Path):
        yield output
        return
    store = Store.writable(output)
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)
        names = sorted(path.name for path in Path(scratch).iterdir() if path.name != FILE_NAME)
        for name in (*names, FILE_NAME):
            store.put(Path(scratch, name), name)


def stored_tars(url: str) -> list[str]:
    """The URLs of the tars below a URL, sorted; or the URL itself.

    Raises:
        WorkbenchError: there is none.
    """
    if url.endswith(".tar"):
        return [url]
    store = Store(url.rstrip("/"))
    found = sorted(name for name in store.files() if name.endswith(".tar"))
    if not found:
        raise WorkbenchError(f"{url}: no .tar files here")
    return [store.at(name) for name in found]


def find_tars(inputs: Sequence[Path]) -> list[Path]:
    """The tars among the inputs, sorted within each folder.

    Raises:
        WorkbenchError: an input does not exist, is compressed, or holds no tar.
    """
    found: list[Path] = []
    for place in inputs:
        if not place.exists():
            raise WorkbenchError(f"there is no file or folder {str(place)!r}")
        files = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else [place]
        packed = [p for p in files if p.name.endswith(_COMPRESSED)]
        if packed:
            raise WorkbenchError(
                f"{packed[0]} is compressed ({len(packed)} such files), so its records cannot be read one by one. "
                f"Repack: gunzip -k (or zstd -d, ...) and index the .tar"
            )
        tars = [p for p in files if p.suffix == ".tar"]
        if not tars:
            raise WorkbenchError(f"{place}: no .tar files here; found {len(files)} other files")
        found.extend(tars)
    return found


def _refuse_own(output: Path | str) -> None:
    if isinstance(output, str):
        data = Store(output).read(FILE_NAME)
    else:
        data = (output / FILE_NAME).read_bytes() if (output / FILE_NAME).is_file() else None
    if data is not None and b'"foreign": true' not in data:
        raise WorkbenchError(
            f"{output} is a corpus that `workbench prepare` wrote, with its index; it needs no indexing. "
            "Choose another --output for the index of another WebDataset"
        )


def _guess_kind(tars: Sequence[Path | str]) -> str:
    """The kind that the members of the first records imply. Several are examined, since one may have lost its image."""
    for place in tars:
        with _fetched(place) as tar:
            if next(records(tar), None) is not None:
                return _kind_of(tar)
    raise WorkbenchError(f"no records in {len(tars)} tars; the first is {tars[0]}")


def _kind_of(tar: Path) -> str:
    first = list(islice(records(tar), EXAMINED))
    for kind, distinctive in DISTINCTIVE.items():
        if any(
            names & set(FIELDS[distinctive].foreign) or several_media(names, kind)
            for names in ({member.name for member in members} for _, members in first)
        ):
            return kind
    key, members = first[0]
    names = {member.name for member in members}
    if JSON_MEMBER in names:
        return _kind_of_json(tar, key, members)
    raise WorkbenchError(
        f"{tar}: the kind cannot be detected from the members {sorted(names)}; known: {sorted(FOREIGN_MEMBERS)}."
        f"{_trap(names)}"
    )


def _kind_of_json(tar: Path, key: str, members: Sequence[Member]) -> str:
    stored = _decoded(tar, key, {JSON_MEMBER: _load(tar, members)[JSON_MEMBER]}, "text")
    keys = {*stored, *stored.get("meta", {})}
    if "text" in keys:
        return "text"
    if "triples" in keys:
        return "triples"
    raise WorkbenchError(f"{tar}: the kind cannot be detected from the json keys {sorted(keys)}; add --kind")


def _load(tar: Path, members: Sequence[Member]) -> dict[str, bytes]:
    loaded = {}
    with open(tar, "rb") as file:
        for name, offset, size in members:
            file.seek(offset)
            loaded[name] = file.read(size)
    return loaded


def _warn_bare(bare: int, records: int, kind: str) -> None:
    """Warn about records without annotations: a caption under another name would be missed silently."""
    if bare:
        named = ", ".join(name for name in ANNOTATIONS if name in fields_of(kind))
        logger.warning(
            "%d of %d records have none of %s. Captions are read from the member .txt, or from the JSON fields "
            "caption, captions and text",
            *(bare, records, named),
        )


def _index_shard(tar: Path, name: str, index_path: Path, kind: str, on_error: OnError, bare: Counter[str]) -> ShardInfo:
    """Write a shard's index; `bare` counts the records without annotations."""
    index = IndexBuilder(units_of(kind))
    fields: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    strange: Counter[str] = Counter()
    unread = {member: field for member, field in foreign_fields(kind).items() if field.codec is not IN_JSON}
    left_out: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for key, members in records(tar, left_out):
        names = {member.name for member in members}
        media = several_media(names, kind)
        loaded = _load(tar, members)
        read = {name: data for name, data in loaded.items() if name in FOREIGN_MEMBERS and name not in unread}
        try:
            sample = _decoded(tar, key, read, kind)
            sample |= {field.name: _empty(field) for member, field in unread.items() if member in names}
            sample |= {"media": {}} if media else {}
            _require(sample, kind, tar, key, names)
            _check(sample, tar, key)
        except BadRecordError as error:
            if on_error == "stop":
                raise WorkbenchError(f"{error}. Leave such records out with --on-error skip") from error
            what, _, values = error.reason.partition(": ")
            dropped[f"{what} that cannot be read" if values else what] += 1
            continue
        bare["records"] += kind in ANNOTATED and not sample.keys() & {*ANNOTATIONS}
        checksum = record_checksum(loaded.values())
        raw: dict[str, Any] = {field.name: loaded[member] for member, field in unread.items() if member in loaded}
        raw |= {"media": {name: loaded[name] for name in media if name in loaded}} if media else {}
        content = content_of({**sample, **raw})
        index.add(key, members, checksum, content, lengths_of(sample, kind), cuts_of(sample))
        fields.update(list(sample))
        characters.update(characters_of(sample))
        strange.update(names - FOREIGN_MEMBERS - set(media))
    if dropped:
        reasons = ", ".join(f"{n} x {reason}" for reason, n in dropped.items())
        logger.warning("%s: records that cannot be used are left out: %s", tar, reasons)
    if strange:
        logger.warning(
            "%s: members that belong to no field: %s.%s",
            tar,
            ", ".join(f"{n} x {member}" for member, n in strange.items()),
            _trap(strange),
        )
    if left_out:
        logger.warning(
            "%s: left out because they are no files: %s. Repack with their targets (tar --dereference ...)",
            tar,
            ", ".join(f"{n} {what}" for what, n in left_out.items()),
        )
    stored: dict[str, Any] = {
        "name": name,
        "index": index_path.name,
        "records": index.records,
        "bytes": tar.stat().st_size,
        "sha256": sha256_of(tar),
        "lengths": index.totals(),
        "fields": dict(fields),
        "characters": dict(characters),
        "dropped": dict(dropped),
    }
    index.write(index_path, stored)
    return ShardInfo(**stored, index_sha256=sha256_of(index_path))


def _decoded(tar: Path, key: str, members: Mapping[str, bytes], kind: str) -> Sample:
    try:
        return decode_foreign(members, kind)
    except ValueError as error:
        reason, _, detail = str(error).partition(": ")
        raise BadRecordError(str(tar), key, reason, detail) from error


def _empty(field: SchemaField) -> Any:
    """A placeholder for a value whose member was not read."""
    return field.type() if isinstance(field.type, type) else None


def _require(sample: Sample, kind: str, tar: Path, key: str, names: set[str]) -> None:
    missing = lacking(kind, sample)
    if missing:
        raise BadRecordError(
            str(tar), key, f"a record of kind {kind} without {missing[0]}", f"members {sorted(names)}{_trap(names)}"
        )


def _check(sample: Sample, tar: Path, key: str) -> None:
    """Check that texts can be encoded and that stretches lie in their texts.

    Raises:
        BadRecordError: they can't, or they don't.
    """
    try:
        check_sample(sample)
        for text in texts_in(sample):
            text.encode()
    except UnicodeEncodeError as error:
        raise BadRecordError(str(tar), key, "a text is not valid Unicode", error.reason) from error
    except WorkbenchError as error:
        raise BadRecordError(str(tar), key, str(error)) from error


def _trap(names: Mapping[str, int] | set[str]) -> str:
    """The hint about members such as `input.jpg`: the file is named `x.input.jpg`, and the key ends at the first
    dot."""
    dotted = [n for n in names if "." in n and n.rsplit(".", 1)[1] in FOREIGN_MEMBERS and n not in FOREIGN_MEMBERS]
    if not dotted:
        return ""
    return (
        f" The member {sorted(dotted)[0]!r} comes from a file name with two dots: WebDataset ends the key at the first "
        "dot, so that x.input.jpg is key x with member input.jpg, and no image is found there. Rename the files"
    )
