"""No row of a table is lost: rows as Python's csv and pandas read them, whatever the quotes and encodings."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import random
import re
import time
from pathlib import Path

import pandas
import pytest

from pipelines.readers.reader import Malformed, MalformedError
from pipelines.readers.table_rows import SEPARATORS, rows_of_table, table
from workbench.core.errors import WorkbenchError

LETTERS = ["a", "b", '"', '""', " ", "é", "语", "'", "\\", '5" pipe', "\U0001f600"]


def read(path: Path, **options: object) -> list[list[str]]:
    malformed = Malformed()
    found = table(path, malformed, **options)  # type: ignore[arg-type]
    rows = [] if found is None else [[*found[0].columns], *(row.cells for row in found[1])]
    assert not malformed
    return rows


def random_cell(draw: random.Random, *more: str) -> str:
    return "".join(draw.choices([*LETTERS, *more], k=draw.randint(0, 5)))


def written(draw: random.Random, cell: str, separator: str) -> str:
    """A cell as some program writes it: quoted where it must be, or where it likes to."""
    must = cell.startswith('"') or any(letter in cell for letter in (separator, "\n", "\r"))
    return '"' + cell.replace('"', '""') + '"' if must or draw.random() < 0.3 else cell


@pytest.mark.parametrize("name", ["comma", "semicolon", "tab", "bar"])
def test_a_thousand_random_tables_have_the_rows_that_pandas_reads(tmp_path: Path, name: str) -> None:
    draw, separator = random.Random(name), SEPARATORS[name]  # type: ignore[index]
    for _ in range(250):
        width = draw.randint(2, 4)
        cells = [[random_cell(draw, separator, "\n") for _ in range(width)] for _ in range(draw.randint(1, 30))]
        lines = [[f"c{i}" for i in range(width)], *cells]
        end = draw.choice(["\n", "\r\n"])
        text = "".join(separator.join(written(draw, cell, separator) for cell in row) + end for row in lines)
        path = tmp_path / "t.csv"
        path.write_bytes(text.encode(draw.choice(["utf-8", "utf-8-sig", "utf-16", "utf-32"])))
        frame = pandas.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False)
        assert read(path, separator=name, quoted=True) == [list(frame.columns), *frame.to_numpy().tolist()] == lines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["comma", "semicolon", "tab", "bar"])
def test_a_hundred_thousand_rows_are_those_that_pandas_reads(tmp_path: Path, name: str) -> None:
    """100,000 rows of random quotes, separators and line ends, in an encoding that the byte order mark says."""
    draw, separator = random.Random(f"long {name}"), SEPARATORS[name]  # type: ignore[index]
    cells = [[random_cell(draw, separator, "\n") for _ in range(3)] for _ in range(100_000)]
    lines = [["a", "b", "c"], *cells]
    text = "".join(separator.join(written(draw, cell, separator) for cell in row) + "\n" for row in lines)
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode({"comma": "utf-8", "tab": "utf-8-sig", "bar": "utf-32"}.get(name, "utf-16")))
    frame = pandas.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False)
    assert read(path, separator=name, quoted=True) == [list(frame.columns), *frame.to_numpy().tolist()]
    assert len(frame) == 100_000


@pytest.mark.parametrize("seed", range(4))
def test_random_letters_have_the_rows_that_csv_reads(tmp_path: Path, seed: int) -> None:
    """Anything at all: quotes that stand anywhere, rows of any width, line ends of three kinds."""
    draw = random.Random(seed)
    text = "a,b\n" + "".join(draw.choices('ab",\n"x,\n \r', k=100_000)) + '"\n'
    read_by_csv = csv.reader(io.StringIO(re.sub("\r+\n", "\n", text), newline=""))
    expected = [row for row in read_by_csv if len(row) > 1 or "".join(row).strip()]
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    malformed = Malformed()
    found = table(path, malformed)
    assert found is not None
    rows = [["a", "b"], *(row.cells for row in found[1])]
    if malformed:  # the last quote is never closed; csv joins all that follows it
        assert next(str(error) for error in malformed).endswith("a quote is opened and never closed")
        assert rows[: len(expected) - 1] == expected[:-1]
    else:
        assert rows == expected
    assert len(rows) > 10_000


def test_inch_marks_are_letters(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text('image,caption\na.jpg,a 5" pipe\nb.jpg,a red thing\nc.jpg,a 7" pipe\na.jpg,the end\n')
    rows = [row["caption"] for _, row in rows_of_table(path, Malformed())]
    assert rows == ['a 5" pipe', "a red thing", 'a 7" pipe', "the end"]


def test_a_quote_that_is_never_closed_costs_one_line_and_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text('text,label\n"never closed,a\n' + "".join(f"row number {i},b\n" for i in range(60_000)))
    start = time.process_time()
    malformed = Malformed()
    rows = [row["text"] for _, row in rows_of_table(path, malformed)]
    assert time.process_time() - start < 3
    assert rows == [f"row number {i}" for i in range(60_000)]
    assert [str(error) for error in malformed] == ["q.csv:2: a quote is opened and never closed"]


def test_a_quote_that_is_never_closed_is_found_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.readers.table_rows.ROW_LIMIT", 100)
    path = tmp_path / "q.csv"
    path.write_text('text,label\n"open,a\n' + "one,b\n" * 30 + 'two,"b"\n')
    malformed = Malformed()
    assert [row["text"] for _, row in rows_of_table(path, malformed)] == ["one"] * 30 + ["two"]
    assert len(malformed) == 1


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    path.write_text("text,label\n" + "word " * 200_000 + ",a\nsecond,b\n")
    assert [len(row["text"]) for _, row in rows_of_table(path, Malformed())] == [1_000_000, 6]


def test_a_row_that_is_not_utf8_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'text,label\nfirst,a\n"two\nlines caf' + b"\xe9" + b'",a\nthird,b\n')
    malformed = Malformed()
    assert [row["text"] for _, row in rows_of_table(path, malformed)] == ["first", "third"]
    (error,) = malformed
    assert error.reason == "not valid UTF-8"
    assert error.where == "t.csv:3"
    assert "iconv -f cp1252" in error.found


def test_a_header_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"t\xe9xt,label\nfirst,a\n")
    with pytest.raises(MalformedError, match=r"t\.csv:1: not valid UTF-8"):
        list(rows_of_table(path, Malformed()))


QUOTED_TSV = 'text\tlabel\n"he said ""hi"" to all"\ta\nplain "row"\tb\n'


def test_cells_of_a_tsv_that_look_quoted_are_reported_and_read_by_an_option(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "p.tsv"
    path.write_text(QUOTED_TSV)
    with caplog.at_level("WARNING"):
        assert read(path)[1:] == [['"he said ""hi"" to all"', "a"], ['plain "row"', "b"]]
    assert caplog.text.count("looks quoted") == 1
    assert "quoted=true" in caplog.text
    caplog.clear()
    assert read(path, quoted=True)[1:] == [['he said "hi" to all', "a"], ['plain "row"', "b"]]
    assert not caplog.text


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("named", [True, False])
def test_encodings_and_compressions_are_found_by_the_first_bytes(
    tmp_path: Path, suffix: str, pack: object, encoding: str, named: bool
) -> None:
    path = tmp_path / f"t.csv{suffix if named else ''}"
    raw = ("" if encoding == "utf-8-sig" else "\ufeff") + "text,label\nnaïve 语,a\n"
    path.write_bytes(pack(raw.encode(encoding)))  # type: ignore[operator]
    assert read(path) == [["text", "label"], ["naïve 语", "a"]]


def test_a_text_that_breaks_its_byte_order_marks_promise_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("\ufefftext,label\n".encode("utf-16-le") + b"\x00\xd8\x00")
    with pytest.raises(WorkbenchError, match=r"t\.csv: it begins with the byte order mark of utf-16"):
        read(path)


def test_lines_that_end_in_a_carriage_return_have_numbers_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "mac.csv"
    path.write_bytes(b"text,label\rone,a\rtwo,b\r\nthree,c\n")
    assert [(number, row["text"]) for number, row in rows_of_table(path, Malformed())] == [
        (2, "one"),
        (3, "two"),
        (4, "three"),
    ]


def test_a_line_of_another_width_says_how_quoted_cells_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text('text\tlabel\n"a\ttab"\t1\n')
    malformed = Malformed()
    assert not list(rows_of_table(path, malformed))
    assert "--option quoted=true" in str(malformed[0])


def test_quotes_that_are_escaped_with_backslashes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As Spark, MySQL and `csv.writer` with an escape character write them; the other backslashes stay."""
    rows = [["text", "label"], ['he said "hi" to me', "a"], ["C:\\new\\", 'b, "c"'], ['"x"\ny', ""], ["plain", "a"]]
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, doublequote=False, escapechar="\\", quoting=csv.QUOTE_ALL).writerows(rows)
    assert read(path) == rows
    assert caplog.text.count("escaped with backslashes; all of its cells are read so") == 1
    path.write_text('text,label\n"he said \\"hi\\", C:\\new",a\n')  # Spark escapes quotes alone
    assert read(path)[1] == ['he said "hi", C:\\new', "a"]


def test_quotes_that_are_escaped_in_two_ways_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.csv"
    path.write_text('text,label\n"he said \\"hi\\" to me",a\n"he said ""hi"" to me",a\n')
    assert read(path)[2] == ['he said "hi" to me', "a"]
    assert "line 2 escapes a quote with a backslash, and line 3 doubles one" in caplog.text
