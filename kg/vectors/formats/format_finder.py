"""Detects the format of pretrained vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from kg.vectors.formats.keyed_vectors import LONGEST_KEY, open_pbg, open_word2vec, open_word2vec_binary, shape_of
from kg.vectors.formats.pbg_checkpoint import is_pbg_checkpoint, open_pbg_checkpoint
from kg.vectors.formats.rows import PretrainedVectors
from kg.vectors.formats.tables import open_npy, open_openke, open_thunlp
from workbench.core.errors import WorkbenchError

FormatName = Literal["thunlp", "openke", "npy", "pbg", "pbg-checkpoint", "word2vec", "word2vec-binary"]
Opener = Callable[[Path, Path | None], PretrainedVectors]
"""Opens the vectors at a place, with a file that numbers their ids where the format needs one and it is named."""
FORMATS: dict[FormatName, Opener] = {
    "thunlp": open_thunlp,
    "openke": open_openke,
    "npy": open_npy,
    "pbg": open_pbg,
    "pbg-checkpoint": open_pbg_checkpoint,
    "word2vec": open_word2vec,
    "word2vec-binary": open_word2vec_binary,
}
ENDINGS: dict[str, FormatName] = {".json": "openke", ".npy": "npy", ".tsv": "pbg", ".h5": "pbg-checkpoint"}
FOLDERS = ("thunlp", "pbg-checkpoint")
NUMERIC = b"0123456789+-.eEnaif"
EXPORTS = {
    ".pkl": "a pickle, whose reading runs code: export the vectors, and give them as text or .npy (wikipedia2vec has "
    "save_text; of pykeen's trained_model.pkl save what its entity_representations give)",
}


def open_pretrained(place: Path, name: FormatName | None, ids: Path | None) -> PretrainedVectors:
    """The vectors of a file or folder, in the format of this name or the one that it looks like.

    Raises:
        WorkbenchError: there is nothing, it looks like no format, or one of its files is missing or damaged.
    """
    if not place.exists():
        raise WorkbenchError(f"there is no file or folder {place} with vectors")
    if name is None:
        name = _looks_like(place)
    if place.is_dir() and name not in FOLDERS:
        raise WorkbenchError(f"{place} is a folder; of the format {name} name the file with the entities' vectors")
    return FORMATS[name](place, ids)


def _looks_like(place: Path) -> FormatName:
    if place.is_dir() and is_pbg_checkpoint(place):
        return "pbg-checkpoint"
    if place.is_dir() or place.name == "entity2vec.vec":
        return "thunlp"
    if place.suffix in EXPORTS:
        raise WorkbenchError(f"{place} looks like {EXPORTS[place.suffix]}")
    if place.suffix in ENDINGS:
        return ENDINGS[place.suffix]
    if shape_of(place) is None:
        raise WorkbenchError(f"{place} looks like no format of vectors; name it with --format: {', '.join(FORMATS)}")
    with place.open("rb") as file:
        file.readline()
        _, _, numbers = file.readline(LONGEST_KEY).partition(b" ")
    first = numbers.split(maxsplit=1)[:1]
    return "word2vec" if first and set(first[0]) <= set(NUMERIC) else "word2vec-binary"
