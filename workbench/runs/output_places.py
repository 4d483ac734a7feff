"""What a run or a corpus holds is written by what made it alone: the outputs of other commands go elsewhere."""

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
    """
    Raises:
        WorkbenchError: the output is a run's folder, a file or in a folder that the run itself writes, or a file of a
            corpus; or such a corpus is damaged.
    """
    place = real_path(output)
    for folder in (place, *place.parents):
        own = place.relative_to(folder).parts[:1]
        if is_run(folder) and (folder / DATA).is_file() and (not own or own[0] in OWN):
            raise WorkbenchError(f"{output} belongs to the run {folder}; choose another place")
    if _is_of_corpus(place):
        raise WorkbenchError(f"{output} belongs to the corpus {place.parent}; choose another place")


OutputFile = Annotated[Path, OutputMark(check_apart)]
"""A file to write: nothing stands at its place, or a file that is no input of the command and no run's or corpus's."""


def _is_of_corpus(place: Path) -> bool:
    manifest = place.parent / FILE_NAME
    if not (place.is_file() and manifest.is_file()):
        return False
    shards = parse_manifest(manifest.read_bytes(), str(manifest)).shards
    return place == manifest or place in {manifest.with_name(n) for shard in shards for n in (shard.name, shard.index)}
