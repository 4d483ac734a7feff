"""Records in memory (dicts, a DataFrame, a `datasets.Dataset`) as files that the commands read: JSON lines, and for
images Parquet."""

from __future__ import annotations

import io
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from PIL import Image

from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import scratch_folder
from workbench.core.files.urls import local_path, url_of
from workbench.core.packages import extra

ROWS = 1000
"""Rows of a Parquet file: as many images are in memory at once."""
COLUMNS = {"triples": ("head", "relation", "tail")}
"""The meaning of a tuple, by kind of corpus."""
Check = Callable[[int, Mapping[str, Any]], None]
JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


def is_places(inputs: Any) -> bool:
    """Whether inputs are paths and URLs, and no records."""
    if isinstance(inputs, str | os.PathLike):
        return True
    return isinstance(inputs, Sequence) and all(isinstance(each, str | os.PathLike) for each in inputs)


@contextmanager
def written(kind: str, records: Any, output: str | os.PathLike[str], check: Check | None = None) -> Iterator[Path]:
    """A file or folder with the records, next to the output, which is removed at the end. A preparation that was killed
    finds the same path when it is repeated.

    Args:
        kind: of the corpus.
        records: an iterable of mappings (of triples also of tuples), or a DataFrame of pandas or polars.
        check: refuses a record with images, by its number and its cells.

    Raises:
        WorkbenchError: there is no record, or one is no mapping.
    """
    url = url_of(output)
    place = scratch_folder(url) if url else local_path(output)
    folder = place.with_name(f".{place.name}-records")
    rows = _rows(kind, records)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if kind == "image-text":
            _write_tables(folder, rows, check)
            yield folder
        else:
            with (folder / "records.jsonl").open("wb") as file:
                for number, row in enumerate(rows):
                    try:
                        file.write(orjson.dumps(row, option=JSON))
                    except TypeError as error:
                        raise WorkbenchError(f"record {number} has no form in JSON: {error}") from error
            yield folder / "records.jsonl"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rows(kind: str, records: Any) -> Iterator[dict[str, Any]]:
    """The records as dicts; missing values are None, and numbers of classes their names.

    Raises:
        WorkbenchError: as `written`.
    """
    if hasattr(records, "iter_rows"):  # polars
        records = records.iter_rows(named=True)
    elif hasattr(records, "itertuples"):  # pandas
        names, tuples = list(records.columns), records.itertuples(index=False)
        records = (dict(zip(names, row, strict=True)) for row in tuples)
    classes = {}
    for name, feature in (getattr(records, "features", None) or {}).items():  # datasets
        if hasattr(feature, "int2str"):
            classes[name] = feature.names
        elif type(feature).__name__ == "Image":
            records = records.cast_column(name, type(feature)(decode=False))  # the bytes of the file, unchanged
    if not isinstance(records, Iterable):
        raise WorkbenchError(
            f"inputs are of type {type(records).__name__}; allowed: paths, or an iterable of dicts, such as a "
            "DataFrame or a datasets.Dataset"
        )
    found = iter(records)
    first = next(found, None)
    if first is None:
        raise WorkbenchError("inputs have no record")
    return (_row(kind, number, row, classes) for number, row in enumerate(chain([first], found)))


def _row(kind: str, number: int, record: Any, classes: Mapping[str, list[str]]) -> dict[str, Any]:
    columns = COLUMNS.get(kind)
    if columns and isinstance(record, tuple) and len(record) == len(columns):
        record = dict(zip(columns, record, strict=True))
    if not isinstance(record, Mapping):
        tuples = f" or a tuple ({', '.join(columns)})" if columns else ""
        raise WorkbenchError(f"record {number} is of type {type(record).__name__}; allowed: a dict{tuples}")
    row = {name: None if _missing(value) else value for name, value in record.items()}
    for name, names in classes.items():
        index = row.get(name)
        if isinstance(index, int) and index >= 0:
            row[name] = names[index]
    return row


def _missing(value: Any) -> bool:
    """NaN, or one of pandas' own values for what is missing."""
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType")


def _write_tables(folder: Path, rows: Iterator[dict[str, Any]], check: Check | None) -> None:
    with extra("web", "images in memory need"):
        import pyarrow
        from pyarrow import parquet
    number = 0
    while some := list(islice(rows, ROWS)):
        plain = [{name: _plain(value) for name, value in row.items()} for row in some]
        if check is not None:
            for place, row in enumerate(plain, number):
                check(place, row)
        try:
            table = pyarrow.Table.from_pylist(plain)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise WorkbenchError(f"records {number} to {number + len(some) - 1} make no table: {error}") from error
        parquet.write_table(table, folder / f"records-{number:09d}.parquet")
        number += len(some)


def _plain(value: Any) -> Any:
    """A cell of a table: images are their files' bytes, those without a file PNG."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3):
        value = Image.fromarray(value)
    if isinstance(value, Image.Image):
        file = io.BytesIO()
        value.save(file, "png")
        return {"bytes": file.getvalue(), "path": None}
    if isinstance(value, bytes):
        return {"bytes": value, "path": None}
    if isinstance(value, Path):
        return {"bytes": value.read_bytes(), "path": value.name}
    if isinstance(value, Mapping) and value.keys() == {"bytes", "path"} and value["bytes"] is None:
        return _plain(Path(value["path"]))
    return value
