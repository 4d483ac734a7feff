"""The text format `conllu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.reader import Drop, MalformedError
from pipelines.readers.text.conllu import ConllU
from tests.contracts.cases import ReaderCase

SENTENCE = """# text = Ann can't swim.
1	Ann	Ann	PROPN	_	_	4	nsubj	_	_
2-3	can't	_	_	_	_	_	_	_	_
2	ca	can	AUX	_	_	4	aux	_	_
3	n't	not	PART	_	_	4	advmod	_	_
4	swim	swim	VERB	_	_	0	root	_	SpaceAfter=No
4.1	far	far	ADV	_	_	_	_	4:advmod	_
5	.	.	PUNCT	_	_	4	punct	_	_
"""


def row(i: int) -> str:
    return f"# sent_id = {i}\n1\tSing\tsing\tVERB\t_\t_\t0\troot\t_\t_\n2\tit{i}\tit\tPRON\t_\t_\t1\tobj\t_\t_\n\n"


CASE = ReaderCase(text=lambda records: "".join(map(row, range(records))), file="data.conllu")


def read(folder: Path, text: str) -> list[Any]:
    path = folder / "trees.conllu"
    path.write_text(text)
    reader = ConllU()
    return [reader.read(record) for record in reader.records([path])]


def test_words_get_their_places_tags_and_heads(tmp_path: Path) -> None:
    first, second = read(tmp_path, f"{SENTENCE}\n\n{SENTENCE.rstrip()}")
    assert first["text"] == second["text"] == "Ann can't swim."
    assert first["tags"] == [[0, 3, "PROPN"], [4, 9, "AUX"], [10, 14, "VERB"], [14, 15, "PUNCT"]]
    arcs = [[0, 3, 10, "nsubj"], [4, 9, 6, "aux"], [10, 14, 0, "root"], [14, 15, -4, "punct"]]
    assert first["dependencies"] == arcs
    assert (first["key"], second["key"]) == ("trees-1", "trees-11")
    assert first["meta"] == {"source": "trees.conllu", "line": 1}


def test_a_token_of_several_words_has_the_head_that_stands_outside(tmp_path: Path) -> None:
    lines = ["1-2\tzum\t_", "1\tzu\t3", "2\tdem\t1", "3\tSee\t0"]
    rows = [[*line.split("\t")] for line in lines]
    text = "".join(f"{n}\t{form}\t_\tX\t_\t_\t{head}\tdep\t_\t_\n" for n, form, head in rows)
    (sample,) = read(tmp_path, text)
    assert sample["dependencies"] == [[0, 3, 4, "dep"], [4, 7, 0, "dep"]]


def test_files_without_heads_have_tags_alone(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, "1\tSing\tsing\tVERB\t_\t_\t_\t_\t_\t_\n")
    assert "dependencies" not in sample
    assert sample["tags"] == [[0, 4, "VERB"]]
    assert read(tmp_path, "# a comment alone\n") == [Drop("no words")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tSing\t0", "3 columns; a line of CoNLL-U has 10"),
        ("one\tSing\tsing\tVERB\t_\t_\t0\troot\t_\t_", "'one' is no number of a word"),
        ("1\tSing\tsing\tVERB\t_\t_\tx\troot\t_\t_", "the head of 'Sing' is no number"),
        ("1\tSing\tsing\tVERB\t_\t_\t7\troot\t_\t_", "a word has the head 7 in a sentence of 1 words"),
        ("1\tSing\tsing\tVERB\t_\t_\t1\troot\t_\t_", "a word is its own head"),
    ],
)
def test_damage_is_reported_with_its_place(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match=f"trees.conllu:1: {message}"):
        read(tmp_path, f"{line}\n")
