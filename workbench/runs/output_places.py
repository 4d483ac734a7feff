"""Output files of commands: only the command that created a run or corpus may write its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import real_path
from workbench.core.files.lock import LOCK
from workbench.core.options.outputs import OutputMark
from workbench.corpora.manifest import FILE_NAME, parse_manifest
from workbench.runs.names import DATA, EVALUATIONS, FIGURES, FILES, FOLDERS, is_run

OWN = {*FILES, *FOLDERS, EVALUATIONS, FIGURES, LOCK}


def check_apart(output: Path) -> None:
    """Check that an output belongs to no run or corpus.

    Raises:
        WorkbenchError: the output is a run's folder, a file or folder that the run itself writes, or a file of a
            corpus; or that corpus is damaged.
    """
    place = real_path(output)
    for folder in (place, *place.parents):
        own = place.relative_to(folder).parts[:1]
        if is_run(folder) and (folder / DATA).is_file() and (not own or own[0] in OWN):
            raise WorkbenchError(f"{output} belongs to the run {folder}; choose another place")
    if _is_of_corpus(place):
        raise WorkbenchError(f"{output} belongs to the corpus {place.parent}; choose another place")


OutputFile = Annotated[Path, OutputMark(check_apart)]
"""A file to write: it does not exist, or it is no input of the command and belongs to no run or corpus."""


def _is_of_corpus(place: Path) -> bool:
    manifest = place.parent / FILE_NAME
    if not (place.is_file() and manifest.is_file()):
        return False
    shards = parse_manifest(manifest.read_bytes(), str(manifest)).shards
    return place == manifest or place in {manifest.with_name(n) for shard in shards for n in (shard.name, shard.index)}
