"""How the format of an input is found, and what becomes of a folder's other files."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.commands.app import GROUPS
from pipelines.preparing.progress import records_of
from pipelines.readers import text as text_formats
from pipelines.readers.catalogue import KINDS, format_entries
from pipelines.readers.formats import detect, formats, make_reader, sorted_inputs
from pipelines.sources.files import expand, inside, passed_over
from tests.docs.test_blocks import example
from tests.pipelines.test_commands import prepare
from tests.preparing import app
from workbench.core.errors import WorkbenchError, message
from workbench.corpora.manifest import parse_manifest

TEXTS = {
    "chapter.txt": ("[Chapter one]\n\nOnce.\n", "plain-text"),
    "brace.txt": ("{\n  x = 1\n}\n", "plain-text"),
    "settings.txt": ('{"a": 1}\nis JSON\n', "plain-text"),
    "rows.txt": ('{"text": "a"}\n{"text": "b"}\n', "json-lines"),
    "rows": ('{"text": "a"}\n', "json-lines"),
    "glue.txt": ("sentence\tlabel\na b\t1\n", "table"),
    "notes.md": ("# Notes\n\nhello\n", "plain-text"),
    "notes.log": ("hello\n", "plain-text"),
    "wiki.txt": (" = Title = \n\nText\n", "wikitext"),
    "tree.conllu": ("1\ta\ta\tDET\t_\t_\t0\troot\t_\t_\n2\tb\tb\tNOUN\t_\t_\t1\tdet\t_\t_\n", "conllu"),
    "list.json": ('[{"text": "a"}]', "json-lines"),
    "types.json": ('{"sent": "a", "start": 0, "end": 1, "labels": [], "text": "a"}', "ernie-thu"),
    "train.csv": ('text,label\n"a, b",1\n', "table"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_content_comes_before_the_suffix_and_plain_text_last(name: str, tmp_path: Path) -> None:
    written, format = TEXTS[name]
    (tmp_path / name).write_text(written, "utf-8")
    assert detect("text", [tmp_path / name]) == format


@pytest.mark.parametrize("name", ["torn.jsonl", "torn.json", "data.dat"])
def test_what_begins_as_json_and_is_none_is_no_plain_text(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('[{"text": "a', "utf-8")
    with pytest.raises(WorkbenchError, match="cannot detect the text format"):
        detect("text", [tmp_path / name])


def test_every_file_of_a_folder_is_read_or_named(tmp_path: Path, stored: Any) -> None:
    folder = tmp_path / "mixed"
    (folder / ".git").mkdir(parents=True)
    (folder / "more").mkdir()
    for name, written in {
        "ok.txt": "One.\n\nTwo.\n",
        "x.jsonl": '{"text": "three"}\n',
        "t.csv": "text,label\nfour,good\n",
        "more/b.txt": "[five]\n",
        "photo.png": "\x89PNG",
        "README.md": "about",
        ".DS_Store": "x",
        ".git/config.txt": "x",
        "a.exe": "x",
    }.items():
        (folder / name).write_text(written, "utf-8")
    prepare("text", folder, "-o", tmp_path / "corpus", "--workers", 1, "--option", "document=file")
    found = sorted(sample["text"] for sample in stored(tmp_path / "corpus"))
    assert found == ["One.\n\nTwo.", "[five]", "four", "three"]
    manifest = parse_manifest((tmp_path / "corpus" / "corpus.json").read_bytes(), "corpus.json")
    assert manifest.provenance["passed_over"] == {
        "hidden": {"files": 2, "first": [".DS_Store", ".git/config.txt"]},
        "about the data": {"files": 1, "first": ["README.md"]},
        ".exe": {"files": 1, "first": ["a.exe"]},
        ".png": {"files": 1, "first": ["photo.png"]},
    }
    inputs = [reported["name"] for reported in manifest.provenance["inputs"]]
    assert sorted(inputs) == ["b.txt", "ok.txt", "t.csv", "x.jsonl"]


def test_a_named_format_names_what_it_does_not_read(tmp_path: Path, stored: Any) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "ok.txt").write_text("One.")
    (folder / "x.jsonl").write_text('{"text": "three"}\n')
    (folder / "y.jsonl").write_text('{"text": "three"}\n')
    arguments = ["text", folder, "-o", tmp_path / "corpus", "--workers", 1, "--format", "plain-text"]
    said = CliRunner().invoke(app, list(map(str, arguments))).stderr
    assert re.search(r"files passed over, \.jsonl: x\.jsonl, y\.jsonl +│ +2", said)
    assert [sample["text"] for sample in stored(tmp_path / "corpus")] == ["One."]


def test_images_that_records_name_are_not_passed_over(tmp_path: Path, photograph: Any) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes(photograph())
    (folder / "captions.jsonl").write_text('{"image": "a.png", "caption": "red"}\n')
    (folder / "notes.doc").write_text("x")
    prepare("image-text", folder, "-o", tmp_path / "corpus", "--workers", 1)
    manifest = parse_manifest((tmp_path / "corpus" / "corpus.json").read_bytes(), "corpus.json")
    assert manifest.provenance["passed_over"] == {".doc": {"files": 1, "first": ["notes.doc"]}}


def test_a_damaged_file_is_of_the_format_of_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": \n{"text": "b"}\n')
    assert sorted_inputs("text", [tmp_path]) == {"json-lines": [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]}
    reader = make_reader("text", None, [tmp_path], {})
    with pytest.raises(WorkbenchError, match=r"b\.jsonl:1: not a line of JSON"):
        list(reader.samples([tmp_path]))


def test_files_that_are_named_must_be_of_a_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    (tmp_path / "b.json").write_text("nothing")
    with pytest.raises(WorkbenchError, match=r"cannot detect the text format of .*b\.json"):
        sorted_inputs("text", [tmp_path / "a.csv", tmp_path / "b.json"])


def test_each_format_takes_the_options_that_it_has(tmp_path: Path, stored: Any) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.jsonl").write_text('{"body": "three"}\n')
    options = ["--option", "document=line", "--option", "text_field=body"]
    prepare("text", tmp_path / "a.txt", tmp_path / "b.jsonl", "-o", tmp_path / "corpus", "--workers", 1, *options)
    assert [sample["text"] for sample in stored(tmp_path / "corpus")] == ["one", "two", "three"]
    with pytest.raises(WorkbenchError, match="unknown option 'txt_field'") as error:
        prepare("text", tmp_path / "a.txt", tmp_path / "b.jsonl", "-o", tmp_path / "c", "--option", "txt_field=body")
    assert "Detected: plain-text, json-lines." in message(error.value)


def test_a_graph_is_of_one_format(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\tc\n")
    (tmp_path / "b.csv").write_text("head,relation,tail\na,b,c\n")
    with pytest.raises(WorkbenchError, match=r"several formats: TriplesTsv \(a\.tsv\), TriplesCsv \(b\.csv\)"):
        make_reader("triples", None, [tmp_path], {})


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder next to the formats of texts, as if a file in it had been moved there."""
    monkeypatch.setattr(text_formats, "__path__", [*text_formats.__path__, str(tmp_path / "moved")])
    (tmp_path / "moved").mkdir()
    formats.cache_clear()
    importlib.invalidate_caches()
    yield tmp_path / "moved"
    sys.modules.pop("pipelines.readers.text.quotes", None)
    formats.cache_clear()


def test_the_example_of_the_documentation_works_once_it_is_moved(shipped: Path, tmp_path: Path, stored: Any) -> None:
    (shipped / "quotes.py").write_text(example("quotes.py"))
    (tmp_path / "wise.fortune").write_text("Know thyself.\n%\n\n%\nNothing in excess.\n")
    assert detect("text", [tmp_path / "wise.fortune"]) == "quotes"
    prepare("text", tmp_path / "wise.fortune", "-o", tmp_path / "corpus", "--workers", 1)
    assert [sample["text"] for sample in stored(tmp_path / "corpus")] == ["Know thyself.", "Nothing in excess."]
    provenance = json.loads((tmp_path / "corpus" / "corpus.json").read_bytes())["provenance"]
    assert provenance["options"]["format"] == "Quotes"


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_says_what_it_reads(kind: str) -> None:
    for one in format_entries(kind):
        assert 10 < len(one.line) < 240, one.name
        assert one.text, one.name


def run(*arguments: str) -> str:
    """What a command of the command line prints, in a process of its own."""
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"}
    ).stdout


def test_the_command_line_lists_the_formats() -> None:
    assert {"plain-text", "captions-jsonl", "triples-tsv"} <= set(run("formats").split())
    assert "document: blank-line, line, file, heading [blank-line]" in run("formats", "text")
    assert "document: blank-line, line, file, heading [blank-line]" in run("prepare", "text", "--help")


def test_the_help_of_prepare_has_groups_and_imports_no_command() -> None:
    code = "import sys; from workbench.cli.app import app\ntry: app.run(['prepare', '--help'], 'workbench')\nfinally: "
    shown = "('numpy', 'torch', 'pyarrow') or m.startswith('pipelines.commands.')"
    code += f"print([m for m in sys.modules if m in {shown}])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^(corpora|images|knowledge|words)$", said, re.MULTILINE) == [*GROUPS]
    assert said.splitlines()[-1] == "['pipelines.commands.app']"


def test_integers_keep_their_digits(tmp_path: Path, stored: Any) -> None:
    row = '{"text": "a", "big": 123456789012345678901234567890, "deep": {"list": [-98765432109876543210, 1e30, 0.5]}}'
    (tmp_path / "a.jsonl").write_text(row)
    prepare("text", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--workers", 1)
    (sample,) = stored(tmp_path / "c")
    assert sample["meta"]["big"] == 123456789012345678901234567890
    assert sample["meta"]["deep"] == {"list": [-98765432109876543210, 1e30, 0.5]}


def test_numbers_that_json_does_not_have_become_null_and_are_counted(tmp_path: Path, stored: Any) -> None:
    rows = ['{"text": "a", "x": NaN, "y": [1, -Infinity]}', '{"text": "b", "x": 1.5}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    prepare("text", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--workers", 1)
    first, second = stored(tmp_path / "c")
    assert (first["meta"]["x"], first["meta"]["y"], second["meta"]["x"]) == (None, [1, None], 1.5)
    manifest = parse_manifest((tmp_path / "c" / "corpus.json").read_bytes(), "corpus.json")
    assert manifest.dropped == {"a number that is NaN or infinite, written as null": 2}
    assert records_of(manifest.dropped) == 0
    (tmp_path / "b.jsonl").write_text('{"text": "ab", "spans": [[0, 1, "Q1", NaN]]}')
    with pytest.raises(WorkbenchError, match="spans"):
        prepare("text", tmp_path / "b.jsonl", "-o", tmp_path / "d", "--workers", 1)


def test_what_is_dropped_is_reported_on_demand_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n \n\ntwo words here")
    options = ["--min-length", 5, "--log-dropped"]
    prepare("text", tmp_path / "a.txt", "-o", tmp_path / "c", "--workers", 1, *options)
    (reported,) = (tmp_path / "c" / "dropped" / "part-000000.jsonl").read_text().splitlines()
    assert json.loads(reported)["record"] == "a.txt:1"


def test_names_that_are_not_utf8_are_passed_over_or_refused(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("a")
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("b")
    assert [path.name for path in inside(tmp_path)] == ["good.txt"]
    assert passed_over([tmp_path], inside(tmp_path), lambda path: False) == {
        "names that are not UTF-8": ["bad\\xff.txt"]
    }
    with pytest.raises(WorkbenchError, match=r"bad\\xff\.txt is not UTF-8; rename the file"):
        expand([tmp_path / os.fsdecode(b"bad\xff.txt")])
