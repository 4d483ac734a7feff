"""Joins corpora that were prepared in parts (`--part i/n`) into the corpus of a single run."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import DROPPED
from pipelines.preparing.duplicates import check_keys
from pipelines.preparing.parts import PART, remove_notes, whole
from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import explained
from workbench.core.files.lock import locked
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME, Manifest, finish_corpus, parse_manifest


def join(parts: Sequence[Path], output: Path, command: str) -> Manifest:
    """Link the shards of all folders (copy them, on another disk) and write the corpus.json of the whole.

    Raises:
        WorkbenchError: one of them is missing, given twice, damaged, or of another preparation; two records share
        a key; the
            output holds something else.
    """
    corpora = [Corpus.open(part) for part in parts]
    _check_parts(parts, [corpus.manifest for corpus in corpora])
    shards = [(Path(corpus.place), info) for corpus in corpora for info in corpus.shards]
    for folder, info in shards:
        if not matches(folder / info.name, info.sha256) or not matches(folder / info.index, info.index_sha256):
            raise WorkbenchError(f"{folder / info.name} is damaged: run the command that prepared {folder} again")
    check_keys([folder / info.name for folder, info in shards])
    with locked(output), explained(output):
        before = output / FILE_NAME
        names = {name for _, info in shards for name in (info.name, info.index)}
        if not before.exists() and any(path.name not in names for path in output.glob("part-*")):
            raise WorkbenchError(f"{output} holds shards of another corpus; choose another --output")
        if before.exists():
            there = parse_manifest(before.read_bytes(), str(before))
            if {info.sha256 for info in there.shards} != {info.sha256 for _, info in shards}:
                raise WorkbenchError(f"{output} holds another corpus; choose another --output, or delete the folder")
        for folder, info in shards:
            _take(folder / info.name, output / info.name)
            _take(folder / info.index, output / info.index)
        for part in parts:
            for log in (part / DROPPED).glob("part-*.jsonl"):
                (output / DROPPED).mkdir(exist_ok=True)
                _take(log, output / DROPPED / log.name)
        joined = _finish(output, [corpus.manifest for corpus in corpora], command)
    provenance = corpora[0].manifest.provenance
    remove_notes({part.absolute().parent for part in parts}, _options(corpora[0].manifest), provenance["inputs"])
    return joined


def _finish(output: Path, manifests: Sequence[Manifest], command: str) -> Manifest:
    first = manifests[0]
    shards = [info for manifest in manifests for info in manifest.shards]
    lost = Counter[str]()  # of shards without records, which no corpus.json lists
    for manifest in manifests:
        lost.update(manifest.dropped)
    for info in shards:
        lost.subtract(info.dropped)
    options = whole(_options(first))
    commands = [str(manifest.provenance.get("command", "")) for manifest in manifests]
    return finish_corpus(
        output,
        kind=first.kind,
        shards=shards,
        provenance={**first.provenance, "command": command, "options": options, "commands": commands},
        about=first.about,
        dropped=+lost,
    )


def _check_parts(parts: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Raises WorkbenchError unless these are all parts of one preparation, each once."""
    stated = [str(_options(manifest).get(PART, "")) for manifest in manifests]
    for path, part in zip(parts, stated, strict=True):
        if not part:
            raise WorkbenchError(f"{path} was not prepared with --part; name the folders of such parts")
    counts = {part.partition("/")[2] for part in stated}
    wanted = [f"{i}/{n}" for n in sorted(counts) for i in range(1, int(n) + 1)]
    if sorted(stated) != sorted(wanted):
        lacking = sorted(set(wanted) - set(stated)) or ["none, but some are given twice"]
        raise WorkbenchError(f"parts {', '.join(stated)} were given; missing: {', '.join(lacking)}")
    same = [(_whole(manifest), manifest.kind) for manifest in manifests]
    for path, one in zip(parts, same, strict=True):
        if one != same[0]:
            raise WorkbenchError(f"{path} was prepared with other options or of other inputs than {parts[0]}")


def _options(manifest: Manifest) -> dict[str, Any]:
    options = manifest.provenance.get("options")
    return options if isinstance(options, dict) else {}


def _whole(manifest: Manifest) -> dict[str, Any]:
    """The properties that the parts of a preparation share."""
    provenance = {name: value for name, value in manifest.provenance.items() if name not in ("command", "options")}
    return {**provenance, "options": whole(_options(manifest))}


def _take(file: Path, place: Path) -> None:
    if place.exists() and place.stat().st_size == file.stat().st_size:
        return
    with suppress(OSError):
        os.link(file, place)
        return
    draft = place.with_name(f".{place.name}.part")
    shutil.copyfile(file, draft)
    draft.replace(place)
