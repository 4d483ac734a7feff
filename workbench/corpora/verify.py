"""Verification of a corpus: the files, the decoded records, and the agreement with the graph."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import damage
from workbench.core.files.drafts import sha256_of
from workbench.core.files.urls import is_url
from workbench.core.images import FAILURES, PIXEL_LIMIT, TooManyPixelsError, open_image
from workbench.corpora.corpus import Corpus, Shard
from workbench.corpora.index_bundle import BUNDLE_NAME
from workbench.corpora.manifest import ShardInfo
from workbench.corpora.schema.field_values import times
from workbench.corpora.schema.members import AS_ARRAYS, AS_IMAGE, AS_MEDIA, IMAGES, ArraysCodec, medium_kind
from workbench.corpora.schema.places import linked_entities
from workbench.corpora.schema.schema import FIELDS
from workbench.corpora.shards.record import check_sample, cuts_of, lengths_of
from workbench.corpora.shards.tars import records
from workbench.sequences.sequence import Sample

GRAPH, GRAPH_SEAL = "graph", "graph.json"
"""The folder of the graph store in a triples corpus, and its seal (`workbench.core.files.checksums`)."""


class Problem(NamedTuple):
    """A problem; `key` is empty if it concerns the whole shard (or a file of the graph store)."""

    shard: str
    key: str
    reason: str


def verify(corpus: Corpus, graph_entities: Container[str] | None = None) -> Iterator[Problem]:
    """Every problem of a corpus, shard by shard. The corpus is not changed.

    The checks: checksums (every byte is read), the tar's structure against the index (adjacent, unique keys),
    decodability of every member, spans inside their texts, boxes in range, the index's lengths and cut points, keys
    that shards share, and the checksums of the graph store of a triples corpus. With `graph_entities`, every linked
    entity and every entity of a triple must be in the graph.
    """
    corpus = Corpus(corpus.place, corpus.manifest, corpus.cache, verify=False)  # a changed shard is checked too
    shards_by_key: dict[str, str] = {}
    if corpus.manifest.bundle and (problem := _bundle_problem(corpus)):
        yield Problem(BUNDLE_NAME, "", problem)
        corpus.manifest = replace(corpus.manifest, bundle={})  # the indexes of the shards are read
    for number, info in enumerate(corpus.shards):
        corpus.expect_next(number)
        try:
            shard = corpus.shard(number)
        except WorkbenchError as error:
            yield Problem(info.name, "", str(error))
            continue
        yield from _structure(shard, info, corpus.manifest.foreign)
        yield from _records(corpus, shard, number, shards_by_key, graph_entities)
    graph = Path(corpus.place, GRAPH)
    if corpus.kind == "triples" and graph.is_dir():
        yield from (Problem(f"{GRAPH}/{file}", "", reason) for file, reason in damage(graph, GRAPH_SEAL))


def _bundle_problem(corpus: Corpus) -> str:
    """What is wrong with the bundle of indexes; empty if nothing is."""
    if is_url(corpus.place) or is_url(corpus.manifest.bundle["name"]):
        try:
            every = range(len(corpus.shards))
            with corpus.indexes_of(every):
                for number in every:
                    corpus.index(number)
        except WorkbenchError as error:
            return str(error)
        return ""
    place = Path(corpus.place, BUNDLE_NAME)
    intact = place.is_file() and sha256_of(place) == corpus.manifest.bundle["sha256"]
    return "" if intact else "the bundle of indexes is missing, or its checksum differs from the one in corpus.json"


def check_image(data: bytes) -> str | None:
    """The problem of an encoded image; None if it can be decoded."""
    try:
        with open_image(data, PIXEL_LIMIT) as image:
            image.load()
    except TooManyPixelsError as error:
        return str(error)
    except FAILURES as error:
        start = bytes(data[:16])
        page = " (it is a web page)" if start.lstrip().lower().startswith((b"<!doc", b"<html", b"<?xml")) else ""
        return f"the image cannot be decoded: {str(error).split(' <')[0]}{page}"
    return None


def check_medium(name: str, data: bytes) -> str | None:
    """The problem of a medium; sounds and videos are only checked by their first bytes."""
    try:
        kind = medium_kind(name, data)
    except WorkbenchError as error:
        return str(error)
    return check_image(data) if kind in IMAGES else None


def _records(
    corpus: Corpus, shard: Shard, number: int, shards_by_key: dict[str, str], graph_entities: Container[str] | None
) -> Iterator[Problem]:
    for record in range(shard.index.records):
        key = shard.index.key(record)
        if shards_by_key.setdefault(key, shard.name) != shard.name:
            yield Problem(shard.name, key, f"the shard {shards_by_key[key]} has the same key")
        try:
            reasons = list(_record(corpus, shard, number, record, graph_entities))
        except Exception as error:  # a damaged record may cause any error; continue with the others
            reasons = [f"it cannot be checked: {type(error).__name__}: {error}"]
        yield from (Problem(shard.name, key, reason) for reason in reasons)


def _structure(shard: Shard, info: ShardInfo, foreign: bool) -> Iterator[Problem]:
    if sha256_of(shard.path) != info.sha256:
        yield Problem(info.name, "", "the checksum differs from the one in corpus.json: the tar was changed or damaged")
    if shard.index.sha256() != info.index_sha256:
        yield Problem(info.name, "", "the index's checksum differs from the one in corpus.json: it was damaged")
    if shard.index.records != info.records:
        yield Problem(info.name, "", f"the index has {shard.index.records} records, corpus.json has {info.records}")
    yield from _against_tar(shard, info.name, sum(info.dropped.values()) if foreign else 0)


def _against_tar(shard: Shard, name: str, left_out: int) -> Iterator[Problem]:
    """Differences between the tar and the index, which lacks `left_out` records (`workbench index --on-error skip`)."""
    index, record = shard.index, 0
    try:
        for key, members in records(Path(shard.path)):
            if record >= index.records or key != index.key(record):
                left_out -= 1
                if left_out >= 0:
                    continue
                yield Problem(name, key, "the tar holds this record where the index has another; index it again")
                return
            if [tuple(member) for member in members] != index.members(record):
                yield Problem(name, key, "the tar's members are not those of the index; index it again")
            record += 1
    except WorkbenchError as error:
        yield Problem(name, "", str(error))
        return
    if record != index.records:
        yield Problem(name, "", f"the tar holds {record} records, the index {index.records}")


def _record(
    corpus: Corpus, shard: Shard, number: int, record: int, graph_entities: Container[str] | None
) -> Iterator[str]:
    try:
        sample = corpus.read(number, record)
    except WorkbenchError as error:
        yield str(error).split(": ", 1)[-1]
        return
    yield from _stored(sample)
    try:
        check_sample(sample)
    except WorkbenchError as error:
        yield str(error)
        return
    lengths = {unit: int(length[record]) for unit, length in shard.index.lengths.items()}
    if lengths != lengths_of(sample, corpus.kind):
        yield f"the index has the lengths {lengths}, the record {lengths_of(sample, corpus.kind)}"
    start, end = shard.index.cut_starts[record : record + 2].tolist()
    if shard.index.cuts[start:end].tolist() != (cuts_of(sample) or []):
        yield "the index's cut points are not those of the text and its spans"
    if graph_entities is not None:
        lost = sorted({entity for entity in _entities(sample) if entity not in graph_entities})
        if lost:
            yield f"entities that are not in the graph: {', '.join(lost[:5])}{' ...' if len(lost) > 5 else ''}"


def _stored(sample: Sample) -> Iterator[str]:
    """The problems of images and arrays."""
    for name, value in sample.items():
        codec = FIELDS[name].codec if name in FIELDS else None
        if codec is AS_IMAGE and (problem := check_image(value)):
            yield problem
        if codec is AS_ARRAYS:
            yield from _regions(value)
        elif isinstance(codec, ArraysCodec):
            yield from _in_time(codec.name, value)
        if codec is AS_MEDIA:
            yield from (
                f"{medium}: {problem}" for medium, data in value.items() if (problem := check_medium(medium, data))
            )


def _regions(regions: dict[str, np.ndarray]) -> Iterator[str]:
    if "features" not in regions or "boxes" not in regions:
        yield f"regions need features and boxes; found {sorted(regions)}"
        return
    features, boxes = regions["features"], regions["boxes"]
    if features.ndim != 2 or boxes.shape != (len(features), 4):
        yield f"regions have features {features.shape} and boxes {boxes.shape}; allowed: [n, d] and [n, 4]"
        return
    if not np.isfinite(features).all():
        yield "region features are not finite"
    inside = np.isfinite(boxes).all() and (boxes >= 0).all() and (boxes <= 1).all()
    if not inside or (boxes[:, :2] > boxes[:, 2:]).any():
        yield "boxes are not x1 <= x2, y1 <= y2 within 0..1"
    for name in regions.keys() - {"features", "boxes"}:
        if len(regions[name]) != len(features):
            yield f"regions have {len(regions[name])} {name} for {len(features)} boxes"


def _in_time(name: str, found: dict[str, np.ndarray]) -> Iterator[str]:
    """The problems of the clips of a video, or the frames of a sound."""
    of = "times" if name == "clips" else "step"
    if "features" not in found or of not in found:
        yield f"{name} need features and {of}; found {sorted(found)}"
        return
    features, when = found["features"], found[of]
    if features.ndim != 2 or when.shape != ((len(features), 2) if of == "times" else ()):
        yield f"{name} have features {features.shape} and {of} {when.shape}"
        return
    if not np.isfinite(features).all():
        yield f"the features of {name} are not finite"
    wrong = times(when.tolist()) if of == "times" else (None if 0 < when < np.inf else f"step = {when} seconds")
    if wrong:
        yield f"{name}: {wrong}"
    for other in found.keys() - {"features", of}:
        if len(found[other]) != len(features):
            yield f"{name} have {len(found[other])} {other} for {len(features)} features"


def _entities(sample: Sample) -> Iterator[str]:
    yield from linked_entities(sample)
    if "triples" in sample:
        yield str(sample["id"])
        yield from (
            str(fact["tail"]) for triple in sample["triples"] for fact in (triple, *triple.get("qualifiers", ()))
        )
