"""Tables are read by their columns, never as prose."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.objectives.regression import number_of

Write = Callable[[str, str], Path]


@pytest.fixture
def table(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


def fields(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name not in ("key", "meta")}


def test_a_classified_table_is_found_by_its_name_and_its_columns(table: Write, read: Any) -> None:
    path = table("train.tsv", 'label\ttext_a\n1\t选择 "珠江\n0\t房间太小\n')
    first, second = read("text", path)
    assert fields(first) == {"text": '选择 "珠江', "labels": {"label": 1}}
    assert (second["text"], second["key"]) == ("房间太小", "train-3")
    assert second["meta"] == {"source": "train.tsv", "line": 3}


def test_a_table_in_a_text_file_is_no_prose(table: Write, read: Any) -> None:
    (sample,) = read("text", table("dev.txt", "sentence\tlabel\nGood video.\tpositive\n"))
    assert fields(sample) == {"text": "Good video.", "labels": {"label": "positive"}}
    (prose,) = read("text", table("prose.txt", "A line\twith a tab.\nAnd one without.\n"))
    assert "with a tab" in prose["text"]


def test_pairs_and_what_is_left(table: Write, read: Any) -> None:
    text = "index\tpremise\thypothesis\tgold_label\tgenre\n7\tA man eats.\tHe eats.\tentailment\tfiction\n"
    (sample,) = read("text", table("mnli.tsv", text), id_field="index")
    assert fields(sample) == {"text": "A man eats.", "second": "He eats.", "labels": {"gold_label": "entailment"}}
    assert (sample["key"], sample["meta"]["genre"]) == ("7", "fiction")


def test_a_csv_has_quoted_cells_with_line_ends(table: Write, read: Any) -> None:
    text = 'sent;a;b;label;score\n"One; ""two""\nthree";x;y;1;2.5\nfour;z;w;0;-1\n'
    first, second = read(
        "text",
        table("swag.csv", text),
        fields={"text": "sent", "choices": ["a", "b"], "answer": "label", "labels": {"graded": "score"}},
    )
    assert fields(first) == {
        "text": 'One; "two"\nthree',
        "choices": ["x", "y"],
        "answer": 1,
        "labels": {"graded": 2.5},
    }
    assert (second["answer"], second["labels"], second["meta"]["line"]) == (0, {"graded": -1}, 4)


def test_no_header(table: Write, read: Any) -> None:
    path = table("cola.tsv", "gj04\t1\t\tOur friends won't buy it.\ngj04\t0\t*\tOne more.\n")
    samples = read("text", path, header=False, fields={"text": "3", "labels": ["1"]})
    assert [fields(s) for s in samples] == [
        {"text": "Our friends won't buy it.", "labels": {"1": 1}},
        {"text": "One more.", "labels": {"1": 0}},
    ]


def test_a_tag_for_each_word(table: Write, read: Any) -> None:
    path = table("ner.tsv", "text_a\tlabel\n腹 痛 3 天\tB-S I-S O O\n")
    with pytest.raises(WorkbenchError, match=r"ner\.tsv:2: the column 'label' has as many words .*tags: label"):
        read("text", path)
    (sample,) = read("text", path, fields={"tags": "label"})
    assert sample["tags"] == [[0, 1, "B-S"], [2, 3, "I-S"], [4, 5, "O"], [6, 7, "O"]]
    (labelled,) = read("text", path, fields={"labels": ["label"]})
    assert labelled["labels"] == {"label": "B-S I-S O O"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "id\tbody\n1\tx\n",
            {},
            r"t\.tsv is a table with the columns id, body; none of them is named text or .*text: COL",
        ),
        ("text\tb\none cell\n", {}, r"t\.tsv:2: a line of 1 columns .*the first line has 2"),
        ("text\ttext\nx\ty\n", {}, "have a missing or repeated name.* header=false"),
        ("text\t\nx\ty\n", {}, r"have a missing or repeated name; name them in the first line$"),
        (
            "text\tlabel\nx\t1\n",
            {"fields": {"second": "other"}},
            r"t\.tsv:2: no field 'other'.*fields=\{second: NAME\}",
        ),
        ("text\tlabel\nx\t1\n", {"fields": {"seconds": "text"}}, "Did you mean 'second'"),
        (
            "text\tlabel\nx y\tO\n",
            {"fields": {"tags": "label"}},
            r"t\.tsv:2: the number of tags differs from the number of words",
        ),
        ("text\tlabel\nx\t\n", {}, r"t\.tsv:2: the field 'labels' does not fit .*'label' = '' is empty"),
        ("text\tn\nx\tmany\n", {"fields": {"answer": "n"}}, r"t\.tsv:2: field 'answer' has the wrong type"),
    ],
)
def test_tables_that_do_not_fit(table: Write, read: Any, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        read("text", table("t.tsv", text), **options)


def test_an_index_column_without_a_name_is_left_out(table: Write, read: Any) -> None:
    """As `DataFrame.to_csv` of pandas writes it."""
    for name, comma in (("p.csv", ","), ("p.tsv", "\t")):
        text = ",text,label\n0,one,a\n1,two,b\n".replace(",", comma)
        assert [fields(s) for s in read("text", table(name, text))] == [
            {"text": "one", "labels": {"label": "a"}},
            {"text": "two", "labels": {"label": "b"}},
        ]


def test_a_quote_that_is_never_closed(table: Write, read: Any) -> None:
    with pytest.raises(WorkbenchError, match=r"t\.csv:2: a quote is opened and never closed"):
        read("text", table("t.csv", 'text,label\n"x,1\ny,2\n'))


def test_real_tables(shared: Path, read: Any) -> None:
    folder = shared / "data" / "kbert_zh"
    reviews = read("text", folder / "chnsenticorp" / "dev.tsv")
    assert len(reviews) == 1200
    assert {s["labels"]["label"] for s in reviews} == {0, 1}
    tagged = read("text", folder / "medical_ner" / "dev.tsv", fields={"tags": "label"})
    assert len(tagged) == 939
    assert all(
        s["text"][a:b] == word for s in tagged for (a, b, _), word in zip(s["tags"], s["text"].split(), strict=True)
    )


def test_a_score_is_a_label(table: Write, read: Any) -> None:
    (sample,) = read("text", table("sts.tsv", "genre\tsentence1\tsentence2\tscore\nnews\tx\ty\t2.5\n"))
    assert (sample["labels"], sample["second"]) == ({"score": 2.5}, "y")


def test_a_class_keeps_its_spelling(table: Write, read: Any) -> None:
    """A cell is a number where the number is spelt so; regression reads the others as numbers, too."""
    cells = ["2.1", "2.10", "1", "01", "001", "12345678901234567890123", "12345678901234567890124", "1e5", "100000.0"]
    text = "text,label\n" + "".join(f"sentence {i},{cell}\n" for i, cell in enumerate(cells))
    found = [sample["labels"]["label"] for sample in read("text", table("t.csv", text))]
    assert [str(label) for label in found] == cells
    assert found[:5] == [2.1, "2.10", 1, "01", "001"]
    assert [number_of(label) for label in found] == [float(cell) for cell in cells]
    assert [number_of(label) for label in ("a", "1_0", "nan", "1e999")] == [None] * 4


QNLI = "index\tquestion\tsentence\tlabel\n0\tWho sang?\tAnn sang.\tentailment\n"


def test_a_question_is_read_with_the_sentence_that_may_answer_it(table: Write, read: Any) -> None:
    path = table("qnli.tsv", QNLI)
    (sample,) = read("text", path)
    assert fields(sample) == {"text": "Who sang?", "second": "Ann sang.", "labels": {"label": "entailment"}}
    (alone,) = read("text", path, fields={"second": None})
    assert fields(alone) == {"text": "Ann sang.", "labels": {"label": "entailment"}}


def test_whether_two_questions_are_duplicates_is_a_label(table: Write, read: Any) -> None:
    text = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWho?\tWhat?\t0\n"
    (sample,) = read("text", table("qqp.tsv", text))
    assert fields(sample) == {"text": "Who?", "second": "What?", "labels": {"is_duplicate": 0}}


def test_a_pair_without_a_gold_label_is_dropped(table: Write, read: Any, drops: Any) -> None:
    rows = [("-", "A man eats.", "He eats."), ("neutral", "A man eats.", "He is old.")]
    lines = ["gold_label\tsentence1\tsentence2", *map("\t".join, rows)]
    path = table("snli.tsv", "\n".join(lines) + "\n")
    assert [s["labels"] for s in read("text", path)] == [{"gold_label": "neutral"}]
    assert drops("text", path) == ["no gold label"]
    named = [dict(zip(("gold_label", "sentence1", "sentence2"), row, strict=True)) for row in rows]
    path = table("snli.jsonl", "".join(json.dumps(row) + "\n" for row in named))
    sources = {"text": "sentence1", "second": "sentence2", "labels": ["gold_label"]}
    assert drops("text", path, fields=sources) == ["no gold label"]
    assert len(read("text", path, text_field="sentence1")) == 1  # the other fields go by their names
    assert len(read("text", path, fields={"labels": None})) == 2  # then the label is not read


def test_what_goes_to_meta_is_reported(table: Write, read: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read("text", table("qnli.tsv", QNLI), table("again.tsv", QNLI))
    (line,) = caplog.messages
    assert line.endswith("is read with fields={text: question, labels: [label], second: sentence}; meta gets index")
    caplog.clear()
    read("text", table("cols.csv", "sentence,class\nx,1\n"))
    (line,) = caplog.messages
    assert line.endswith("is read with fields={text: sentence}; meta gets class")
    caplog.clear()
    read("text", table("all.tsv", "text\tlabel\nx\t1\n"))
    assert not caplog.messages
