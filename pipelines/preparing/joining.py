"""Joins corpora that were prepared in parts (`--part i/n`) into the corpus and the held-out splits of a single run."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import DROPPED
from pipelines.preparing.duplicates import check_keys
from pipelines.preparing.parts import PART, SPLIT_RECORDS, remove_notes, stated_options, whole
from pipelines.preparing.runner import check_left
from pipelines.preparing.splits import MAIN, part_folder, split_names, split_of
from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import explained
from workbench.core.files.lock import locked
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME, Manifest, ShardInfo, finish_corpus, parse_manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A folder that was prepared with `--part`: the part of a corpus, or that of one of its held-out splits."""

    folder: Path
    manifest: Manifest

    @property
    def number(self) -> str:
        """As it was given, such as 1/2; empty for a corpus that is no part."""
        return str(stated_options(self.manifest).get(PART, ""))

    @property
    def split(self) -> str:
        """The held-out split; `MAIN` for the corpus itself."""
        return split_of(self.manifest)

    @property
    def preparation(self) -> dict[str, Any]:
        """The properties that the parts of a preparation share."""
        own = ("command", "options", "part", SPLIT_RECORDS)
        provenance = {name: value for name, value in self.manifest.provenance.items() if name not in own}
        return {**provenance, "options": whole(stated_options(self.manifest)), "kind": self.manifest.kind}

    @property
    def shards(self) -> Iterator[tuple[Path, ShardInfo]]:
        return ((self.folder, info) for info in self.manifest.shards)


def join(folders: Sequence[Path], output: Path, command: str) -> dict[str, Manifest]:
    """Link the shards of all folders (copy them, on another disk) and write the corpus.json of the whole.

    Args:
        folders: the parts of the corpus; their held-out splits are found next to them, or given too.

    Returns:
        The manifests by split, whose folders are `part_folder(output, split)`.

    Raises:
        WorkbenchError: one of them is missing, given twice, damaged, or of another preparation; two records share a
            key; the output holds something else.
    """
    groups = _groups(_opened(folders, output))
    first = groups[MAIN][0].manifest
    shards = [each for part in chain(*groups.values()) for each in part.shards]
    for folder, info in shards:
        if not matches(folder / info.name, info.sha256) or not matches(folder / info.index, info.index_sha256):
            raise WorkbenchError(f"{folder / info.name} is damaged: run the command that prepared {folder} again")
    check_left({split: sum(part.manifest.records for part in parts) for split, parts in groups.items()}, output)
    check_keys([folder / info.name for folder, info in shards])
    with locked(output):
        for split, parts in groups.items():
            _check_output(part_folder(output, split), parts)
        joined = {}
        for split, parts in reversed(groups.items()):  # the corpus itself last: it says that its splits are complete
            joined[split] = _write(part_folder(output, split), parts, command)
    remove_notes(
        {part.folder.absolute().parent for part in groups[MAIN]}, stated_options(first), first.provenance["inputs"]
    )
    return dict(reversed(joined.items()))


def _opened(folders: Sequence[Path], output: Path) -> list[Part]:
    """The parts, without what an earlier call has joined: a pattern such as `books-*` finds `books-held-out` too.

    Raises:
        WorkbenchError: a folder is no part.
    """
    found, wrong = [], dict[Path, WorkbenchError]()
    for folder in folders:
        try:
            part = Part(folder, Corpus.open(folder).manifest)
            if not part.number:
                raise WorkbenchError(f"{folder} was not prepared with --part; name the folders of such parts")
            found.append(part)
        except WorkbenchError as error:
            wrong[folder] = error
    joined = {part_folder(output, split).resolve() for part in found for split in (MAIN, *split_names(part.manifest))}
    for folder, reason in wrong.items():
        if folder.resolve() not in joined:
            raise reason
    return found


def _groups(given: Sequence[Part]) -> dict[str, list[Part]]:
    """All parts of a preparation by split, those of the corpus itself first.

    Raises:
        WorkbenchError: these are not all parts of one preparation, each once.
    """
    parts = [part for part in given if part.split == MAIN]
    if not parts:
        named = ", ".join(str(part.folder) for part in given)
        raise WorkbenchError(
            f"{named or 'no folder'}: parts of held-out splits alone; name the parts of the corpus itself, and their "
            "splits are joined too"
        )
    for part in given:
        if part.preparation != parts[0].preparation:
            raise WorkbenchError(
                f"{part.folder} was prepared with other options or of other inputs than {parts[0].folder}"
            )
    _check_numbers(parts)
    groups = {MAIN: parts}
    for split in split_names(parts[0].manifest):
        held_out = [part for part in given if part.split == split]
        numbers = {part.number for part in held_out}
        held_out += [found for part in parts if part.number not in numbers for found in _next_to(part, split)]
        _check_once(held_out)
        if held_out:
            groups[split] = held_out
        else:
            log.warning("the split %s got no records; no corpus was written for it", split)
    return groups


def _next_to(part: Part, split: str) -> Iterator[Part]:
    """The part of a held-out split next to that of the corpus; none where it has no record.

    Raises:
        WorkbenchError: it is gone, or another corpus is there.
    """
    records = part.manifest.provenance.get(SPLIT_RECORDS, {}).get(split)
    if records == 0:
        return
    folder = part_folder(part.folder, split)
    if not (folder / FILE_NAME).is_file():
        raise WorkbenchError(
            f"there is no corpus at {folder}; needed: part {part.number} of the split {split}, which was prepared with "
            f"{part.folder}. Name its folder too, or put it there"
        )
    found = Part(folder, Corpus.open(folder).manifest)
    if (found.number, found.split, found.preparation) != (part.number, split, part.preparation):
        raise WorkbenchError(f"{folder} was not prepared with {part.folder}; needed: its split {split}")
    yield found


def _check_numbers(parts: Sequence[Part]) -> None:
    """Raises WorkbenchError unless these are all parts i/n, each once."""
    stated = [part.number for part in parts]
    counts = {number.partition("/")[2] for number in stated}
    wanted = [f"{i}/{n}" for n in sorted(counts) for i in range(1, int(n) + 1)]
    if lacking := sorted(set(wanted) - set(stated)):
        raise WorkbenchError(f"parts {', '.join(stated)} were given; missing: {', '.join(lacking)}")
    _check_once(parts)


def _check_once(parts: Sequence[Part]) -> None:
    """Raises WorkbenchError: two folders are the same part."""
    first: dict[str, Path] = {}
    for part in parts:
        if part.number in first:
            named = f" of the split {part.split}" if part.split else ""
            raise WorkbenchError(
                f"{first[part.number]} and {part.folder} are both part {part.number}{named}; name one of them"
            )
        first[part.number] = part.folder


def _check_output(output: Path, parts: Sequence[Part]) -> None:
    """Raises WorkbenchError: the folder holds another corpus."""
    infos = [info for part in parts for info in part.manifest.shards]
    before, names = output / FILE_NAME, {name for info in infos for name in (info.name, info.index)}
    if not before.exists() and any(path.name not in names for path in output.glob("part-*")):
        raise WorkbenchError(f"{output} holds shards of another corpus; choose another --output")
    if before.exists():
        there = parse_manifest(before.read_bytes(), str(before))
        if {info.sha256 for info in there.shards} != {info.sha256 for info in infos}:
            raise WorkbenchError(f"{output} holds another corpus; choose another --output, or delete the folder")


def _write(output: Path, parts: Sequence[Part], command: str) -> Manifest:
    with explained(output):
        output.mkdir(parents=True, exist_ok=True)
        for part in parts:
            for folder, info in part.shards:
                _take(folder / info.name, output / info.name)
                _take(folder / info.index, output / info.index)
            for dropped in (part.folder / DROPPED).glob("part-*.jsonl"):
                (output / DROPPED).mkdir(exist_ok=True)
                _take(dropped, output / DROPPED / dropped.name)
        return _finish(output, [part.manifest for part in parts], command)


def _finish(output: Path, manifests: Sequence[Manifest], command: str) -> Manifest:
    first = manifests[0]
    shards = [info for manifest in manifests for info in manifest.shards]
    lost = Counter[str]()  # of shards without records, which no corpus.json lists
    for manifest in manifests:
        lost.update(manifest.dropped)
    for info in shards:
        lost.subtract(info.dropped)
    commands = [str(manifest.provenance.get("command", "")) for manifest in manifests]
    provenance = {name: value for name, value in first.provenance.items() if name != SPLIT_RECORDS}
    return finish_corpus(
        output,
        kind=first.kind,
        shards=shards,
        provenance={**provenance, "command": command, "options": whole(stated_options(first)), "commands": commands},
        about=first.about,
        dropped=+lost,
    )


def _take(file: Path, place: Path) -> None:
    if place.exists() and place.stat().st_size == file.stat().st_size:
        return
    with suppress(OSError):
        os.link(file, place)
        return
    draft = place.with_name(f".{place.name}.part")
    shutil.copyfile(file, draft)
    draft.replace(place)
