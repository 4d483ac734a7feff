"""Output files of commands: only the command that created a run or corpus may write its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import real_path
from workbench.core.files.lock import LOCK
from workbench.core.files.stores import Store, uploaded, uploaded_folder
from workbench.core.options.outputs import OutputMark
from workbench.core.options.path_options import Remote
from workbench.corpora.manifest import FILE_NAME, parse_manifest
from workbench.runs.names import DATA, EVALUATIONS, FIGURES, FILES, FOLDERS, SNAPSHOT, is_run

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


@contextmanager
def _on_store(url: str) -> Iterator[Path]:
    """A local file that is written to the store at the end.

    Raises:
        WorkbenchError: the output belongs to a run or a corpus, or as `uploaded`.
    """
    folder, _, name = url.rpartition("/")
    store = Store(folder)
    if store.read(SNAPSHOT) is not None and name in (*OWN, SNAPSHOT):
        raise WorkbenchError(f"{url} belongs to the run {folder}; choose another place")
    manifest = store.read(FILE_NAME)
    if manifest is not None and name in (FILE_NAME, *_files_of(manifest, store.at(FILE_NAME))):
        raise WorkbenchError(f"{url} belongs to the corpus {folder}; choose another place")
    with uploaded(url) as path:
        yield path


OutputFile = Annotated[Path, OutputMark(check_apart), Remote(_on_store)]
"""A file to write: it does not exist, or it is no input of the command and belongs to no run or corpus. Of a URL the
command writes a local file, which is then written to the store."""


OutputFolder = Annotated[Path, Remote(uploaded_folder)]
"""A folder to write: a path, or the URL of one without files. Of a URL the command writes a local folder."""


def _is_of_corpus(place: Path) -> bool:
    manifest = place.parent / FILE_NAME
    if not (place.is_file() and manifest.is_file()):
        return False
    named = _files_of(manifest.read_bytes(), str(manifest))
    return place == manifest or place in {manifest.with_name(name) for name in named}


def _files_of(manifest: bytes, where: str) -> set[str]:
    """The names of the shards, their indexes and the bundle of these of a corpus."""
    parsed = parse_manifest(manifest, where)
    bundle = {parsed.bundle["name"]} if parsed.bundle else set()
    return bundle | {name for shard in parsed.shards for name in (shard.name, shard.index)}
