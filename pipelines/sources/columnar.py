"""Rows of Parquet and Arrow files, read in batches: as `datasets`, its hub and pandas write them.

A folder of `datasets.save_to_disk` holds Arrow streams and a state.json that lists them; one of the hub has
`train-00000-of-00002.parquet`. In both, the metadata of the schema (key `huggingface`) maps class numbers to names.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError

log = logging.getLogger(__name__)

SUFFIXES = (".parquet", ".arrow", ".feather")
STATE = "state.json"
DICT = "dataset_dict.json"
BATCH_BYTES, BATCH_ROWS = 4 << 20, 1024
"""Approximate bytes, and most rows, of a table that are converted at once."""
PAGES = 1 << 20
"""Bytes of a column that are read at once; by default pyarrow reads a whole row group."""
SPLITS = ("train", "training", "test", "validation", "valid", "val", "dev")
GROUP_BYTES = 64 << 20
"""Bytes of a row group, decompressed, up to which a worker reads it again for a chunk that begins inside of it."""
_SPLIT = re.compile(f"({'|'.join(SPLITS)})", re.IGNORECASE)
_SHARD = re.compile(r"(\w+)-\d+-of-\d+")


def is_columnar(path: Path) -> bool:
    """Whether a file has a suffix of Parquet or Arrow."""
    return path.suffix.lower() in SUFFIXES


def is_listed(path: Path) -> bool:
    """Whether a file belongs to its data set: caches next to a state.json are not listed in it."""
    listed = _listed(path.parent)
    return listed is None or path.name in listed


def first_row(path: Path) -> dict[str, Any]:
    """The first row; empty where there is none.

    Raises:
        WorkbenchError: as `rows`.
    """
    return next((row for _, row, _ in rows(path)), {})


def is_seekable(path: Path) -> bool:
    """Whether reading can begin at a row: row groups before it are passed over, and its own is small."""
    with _readable(path):
        if path.suffix.lower() != ".parquet":
            return True
        from pyarrow import parquet

        about = parquet.read_metadata(path)
        return all(about.row_group(i).total_byte_size <= GROUP_BYTES for i in range(about.num_row_groups))


def rows(path: Path, start: int = 0) -> Iterator[tuple[int, dict[str, Any], int]]:
    """(number from 1, values by column, bytes) of each row from `start` on.

    Bytes stay bytes, else values are those of JSON. NaN is null, as is the class -1. Classes have their names where the
    file states them. Times are ISO 8601. A split that only the file's name states becomes the column `split`.

    Raises:
        WorkbenchError: no pyarrow; a file that is missing, damaged or cut off, or lacks a shard next to it.
    """
    _check_shards(path)
    split, number = split_of(path), start
    for batch, classes in _batches(path, start):
        for row in batch:
            number += 1
            values = {name: _plain(value, classes.get(name)) for name, value in row.items()}
            if split is not None:
                values.setdefault("split", split)
            yield number, values, sum(map(_size, values.values()))


def split_of(path: Path) -> str | None:
    """The split that the name of a file, or of its folder, states."""
    shard, in_set = _SHARD.match(path.name), (path.parent.parent / DICT).is_file()
    if shard and (shard[1] != "data" or in_set):
        return path.parent.name if in_set else shard[1]
    if in_set:
        return path.parent.name
    named = next((_SPLIT.fullmatch(name) for name in (path.stem, path.parent.name) if _SPLIT.fullmatch(name)), None)
    return named[1].lower() if named else None


def called(path: Path) -> str:
    """The prefix of the keys of a file's rows: its name without suffixes, and the split that its folder states."""
    name, split = path.name.split(".")[0] or path.name, split_of(path)
    return name if split is None or name.lower().startswith(split) else f"{split}-{name}"


def _batches(path: Path, start: int) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Batches of rows from `start` on as Python values, and the classes by column (`_named`)."""
    with _readable(path) as pyarrow:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path, buffer_size=PAGES, pre_buffer=False) as file:
                about = file.metadata
                size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
                count = _rows_at_once(size, about.num_rows)
                first = 0
                while start and first < about.num_row_groups and about.row_group(first).num_rows <= start:
                    start -= about.row_group(first).num_rows
                    first += 1
                groups = list(range(first, about.num_row_groups))
                for batch in file.iter_batches(count, groups, use_threads=False):
                    if start < batch.num_rows:
                        yield batch.slice(start).to_pylist(), _classes(file.schema_arrow)
                    start = max(0, start - batch.num_rows)
            return
        with pyarrow.memory_map(str(path)) as source:
            named = source.read(6) == b"ARROW1"
            source.seek(0)
            for batch in _arrow(pyarrow, source, named):
                count = _rows_at_once(batch.nbytes, batch.num_rows)
                for begin in range(start, batch.num_rows, count):
                    yield batch.slice(begin, count).to_pylist(), _classes(batch.schema)
                start = max(0, start - batch.num_rows)


def _arrow(pyarrow: Any, source: Any, named: bool) -> Iterator[Any]:
    """The record batches of an Arrow file, or of a stream."""
    if not named:
        yield from pyarrow.ipc.open_stream(source)
        return
    file = pyarrow.ipc.open_file(source)
    for number in range(file.num_record_batches):
        yield file.get_batch(number)


def _rows_at_once(size: int, count: int) -> int:
    return max(1, min(BATCH_ROWS, BATCH_BYTES * max(count, 1) // max(size, 1)))


@contextmanager
def _readable(path: Path) -> Iterator[Any]:
    """Within, errors of pyarrow are raised with the file's name."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"{path.name}: Parquet and Arrow need the package {error.name!r}: pip install 'pretraining-workbench[text]'"
        ) from error
    if not path.is_file() or not path.stat().st_size:
        raise WorkbenchError(f"{path} is {'empty' if path.is_file() else 'not there'}; there is nothing to prepare")
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        said = str(error).partition("\n")[0]
        raise WorkbenchError(
            f"{path} cannot be read as {path.suffix.lower().removeprefix('.')}: {said}. Is it cut off? Fetch it again"
        ) from error


def _classes(schema: Any) -> dict[str, Any]:
    """The classes by column (`_named`), as `datasets` notes them."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {name: _named(feature) for name, feature in features.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _named(feature: Any) -> Any:
    """The names of the classes in a feature: a list of them, by name in an object, and in a list as its elements have
    them; None where it has none."""
    if isinstance(feature, list):
        return _named(feature[0])
    if not isinstance(feature, dict):
        return None
    kind = feature.get("_type")
    if kind == "ClassLabel":
        return feature["names"]
    return _named(feature.get("feature")) if isinstance(kind, str) else {n: _named(f) for n, f in feature.items()}


def _plain(value: Any, classes: Any = None) -> Any:
    """A value as JSON has it, classes by their names; bytes stay."""
    if isinstance(classes, list) and isinstance(value, int):
        return classes[value] if 0 <= value < len(classes) else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        of = classes if isinstance(classes, dict) else {}
        return {str(name): _plain(each, of.get(name)) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, classes) for each in value]
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def holds_bytes(value: Any) -> bool:
    """Whether a value is bytes, or has some inside."""
    if isinstance(value, dict):
        return any(map(holds_bytes, value.values()))
    return isinstance(value, bytes) or (isinstance(value, list) and any(map(holds_bytes, value)))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list) else 8


def _listed(folder: Path) -> list[str] | None:
    """The files that the state.json of a folder lists; None where there is none."""
    place = folder / STATE
    if not place.is_file():
        return None
    try:
        state = json.loads(place.read_bytes())
        if state.get("_indices_data_files"):
            raise WorkbenchError(
                f"{folder} has rows in another order than its files (an index of `datasets`). Save it again: "
                "datasets.load_from_disk(FOLDER).flatten_indices().save_to_disk(OTHER)"
            )
        return [file["filename"] for file in state["_data_files"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _check_shards(path: Path) -> None:
    """
    Raises:
        WorkbenchError: a file that the state.json next to lists is not there.
    """
    missing = [name for name in _listed(path.parent) or () if not (path.parent / name).is_file()]
    if missing:
        raise WorkbenchError(
            f"{path.parent} lacks {missing[0]}, which its {STATE} lists ({len(missing)} missing); fetch it again"
        )
