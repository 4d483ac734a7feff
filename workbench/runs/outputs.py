"""What a run holds is written by the run alone: the outputs of commands go elsewhere."""

from __future__ import annotations

from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.files.lock import LOCK
from workbench.files.paths import real_path
from workbench.runs.folder import FILES, FOLDERS
from workbench.runs.names import DATA, EVALUATIONS, PICTURES, is_run

OWN = {*FILES, *FOLDERS, EVALUATIONS, PICTURES, LOCK}


def check_apart(output: Path) -> None:
    """
    Raises:
        WorkbenchError: --output is a run's folder, or a file or in a folder that the run itself writes.
    """
    place = real_path(output)
    for folder in (place, *place.parents):
        own = place.relative_to(folder).parts[:1]
        if is_run(folder) and (folder / DATA).is_file() and (not own or own[0] in OWN):
            raise WorkbenchError(f"--output: {output} belongs to the run {folder}; choose another place")
