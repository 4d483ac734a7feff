"""Readers of texts, on tiny files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from pipelines.readers.formats import detect, formats
from pipelines.readers.text.linked_wordpieces import join_wordpieces
from workbench.core.errors import WorkbenchError

STORY = "First line\nsecond line\n\n\nNext document é\n"


def texts(samples) -> list[str]:
    return [sample["text"] for sample in samples]


def test_plain_text_is_cut_at_blank_lines(tmp_path, read):
    (tmp_path / "story.txt").write_text(STORY, "utf-8")
    samples = read("text", tmp_path / "story.txt")
    assert texts(samples) == ["First line\nsecond line", "Next document é"]
    assert [s["key"] for s in samples] == ["story-1", "story-5"]
    assert samples[1]["meta"] == {"source": "story.txt", "line": 5}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("line", ["First line", "second line", "Next document é"]),
        ("file", ["First line\nsecond line\n\n\nNext document é"]),
    ],
)
def test_plain_text_documents(tmp_path, read, document, expected):
    (tmp_path / "story.txt").write_text(STORY, "utf-8")
    assert texts(read("text", tmp_path / "story.txt", document=document)) == expected


def test_heading_option(tmp_path, read):
    (tmp_path / "book.txt").write_text("preface\n\nChapter 1\na\n\nb\nChapter 2\nc\n", "utf-8")
    found = texts(read("text", tmp_path / "book.txt", document="heading", heading=r"Chapter \d+"))
    assert found == ["preface", "Chapter 1\na\n\nb", "Chapter 2\nc"]


def test_bad_heading_is_refused(tmp_path, read):
    (tmp_path / "book.txt").write_text("x\n", "utf-8")
    with pytest.raises(WorkbenchError, match="not a regular expression"):
        read("text", tmp_path / "book.txt", document="heading", heading="(")


def test_wikitext_articles(tmp_path, read):
    raw = " \n = Lobster = \n \n A <unk> animal . \n \n = = Size = = \n \n 60 cm \n \n = Whale = \n big \n"
    (tmp_path / "wiki.txt").write_text(raw, "utf-8")
    assert detect("text", [tmp_path / "wiki.txt"]) == "wikitext"
    found = texts(read("text", tmp_path / "wiki.txt"))
    assert len(found) == 2
    assert "= = Size = =" in found[0]
    assert found[1].split() == ["=", "Whale", "=", "big"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_text(tmp_path, read, suffix):
    raw = STORY.encode()
    # two members one after the other, as `cat a.gz b.gz` makes them
    halves = (raw[:7], raw[7:])
    compress = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"story.txt{suffix}"
    path.write_bytes(b"".join(map(compress, halves)))
    assert texts(read("text", path)) == ["First line\nsecond line", "Next document é"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_cut_off_compressed_text_is_an_error(tmp_path, read, suffix):
    raw = "".join(f"{i * i} some text\n" for i in range(5000)).encode()
    compress = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"story.txt{suffix}"
    path.write_bytes(compress(raw)[:-100])
    with pytest.raises(WorkbenchError, match=r"story\.txt.* is damaged or cut off"):
        read("text", path, format="plain-text")


def test_byte_order_mark_is_no_text(tmp_path, read):
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbfHello\n")
    assert texts(read("text", tmp_path / "bom.txt")) == ["Hello"]


def test_invalid_utf8_says_where(tmp_path, read):
    (tmp_path / "latin.txt").write_bytes(b"good\n\ncaf\xe9 au lait\n")
    with pytest.raises(WorkbenchError, match=r"latin\.txt:3.*not valid UTF-8.*iconv"):
        read("text", tmp_path / "latin.txt")


def test_json_lines_take_schema_fields_and_keep_the_rest_in_meta(json_lines, read):
    rows = [
        {"id": "a/b", "text": "Ann lives", "url": "http://x", "spans": [[0, 3, "Q1", 0.5]]},
        {"text": "no id", "types": ["person"], "mention": [0, 2]},
    ]
    first, second = read("text", json_lines("docs.jsonl", rows))
    assert first["spans"] == [[0, 3, "Q1", 0.5]]
    assert first["meta"] == {"source": "docs.jsonl", "line": 1, "url": "http://x"}
    assert first["key"].startswith("a_b-")
    assert second["key"] == "docs-2"
    assert (second["mention"], second["types"]) == ([0, 2], ["person"])


def test_json_lines_field_options(json_lines, read):
    path = json_lines("docs.jsonl", [{"body": "hello", "name": "n1", "junk": 3}])
    (sample,) = read("text", path, text_field="body", id_field="name", meta_fields=[])
    assert (sample["text"], sample["key"], sample["meta"]) == ("hello", "n1", {"source": "docs.jsonl", "line": 1})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', r"docs\.jsonl:2: not a line of JSON"),
        ("[1]", r"docs\.jsonl:2: a line must be a JSON object.*list"),
        ('{"body": "x"}', r"docs\.jsonl:2: no field 'text'.*body.*--option text_field"),
        ('{"text": 5}', r"docs\.jsonl:2: field 'text' has the wrong type.*int"),
    ],
)
def test_bad_json_lines(tmp_path, read, line, message):
    (tmp_path / "docs.jsonl").write_text(f'{{"text": "fine"}}\n{line}\n', "utf-8")
    with pytest.raises(WorkbenchError, match=message):
        read("text", tmp_path / "docs.jsonl")


def test_wordpieces_join_with_spans(json_lines, read):
    sentences = [
        {"tokens": ["ana", "##rch", "##ism", "is", "self", "-", "made"], "links": [[0, 3, "Q1"], [4, 7, "Q2"]]},
        {"tokens": ["##odd", "end"], "links": [[1, 2, "Q3"]]},
    ]
    (sample,) = read("text", json_lines("linked.jsonl", [{"doc_id": 7, "sentences": sentences}]))
    assert sample["text"] == "anarchism is self - made\n##odd end"
    named = [(sample["text"][a:b], entity) for a, b, entity, _ in sample["spans"]]
    assert named == [("anarchism", "Q1"), ("self - made", "Q2"), ("end", "Q3")]
    assert sample["meta"]["linker"]["name"] == "wikipedia-links"
    assert sample["key"] == "linked-7"


def test_joined_wordpieces_cover_the_text():
    text, starts, ends = join_wordpieces(["##", "a", "##b", "c"])
    assert text == "## ab c"
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)] == ["##", "a", "b", "c"]


def test_link_outside_of_its_sentence(json_lines, read):
    path = json_lines("linked.jsonl", [{"doc_id": 0, "sentences": [{"tokens": ["a"], "links": [[0, 2, "Q1"]]}]}])
    with pytest.raises(WorkbenchError, match=r"linked\.jsonl:1: a link lies outside of its sentence.*of 1 tokens"):
        read("text", path)


def test_typed_mentions(json_lines, read, drops):
    row = {"annot_id": "x", "left_context_token": ["Said"], "right_context_token": ["."], "y_str": ["user", "person"]}
    path = json_lines("typed.jsonl", [row | {"mention_span": "Web users"}, row | {"mention_span": " "}])
    (sample,) = read("text", path)
    start, end = sample["mention"]
    assert sample["text"] == "Said Web users ."
    assert sample["text"][start:end] == "Web users"
    assert sample["types"] == ["person", "user"]
    assert drops("text", path) == ["empty mention"]


def test_typed_mention_at_the_beginning(json_lines, read):
    row = {"left_context_token": [], "mention_span": "He", "right_context_token": ["ran"], "y_str": []}
    (sample,) = read("text", json_lines("typed.jsonl", [row]))
    assert (sample["text"], sample["mention"]) == ("He ran", [0, 2])


def test_a_folder_is_detected_by_its_first_data_file(tmp_path, json_lines, read):
    (tmp_path / "README.md").write_text("# not data\n")
    json_lines("a.jsonl", [{"text": "one"}])
    json_lines("b.jsonl", [{"text": "two"}])
    assert texts(read("text", tmp_path)) == ["one", "two"]


def test_unknown_format_names_the_nearest(tmp_path, read):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(WorkbenchError, match=r"unknown text format 'jsonlines'.*'json-lines'"):
        read("text", tmp_path / "a.txt", format="jsonlines")


def test_unknown_option_names_the_nearest(tmp_path, read):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(WorkbenchError, match=r"unknown option 'documents'.*'document'"):
        read("text", tmp_path / "a.txt", documents="line")


def test_undetectable_input_lists_the_formats(tmp_path, read):
    (tmp_path / "a.dat").write_text("[1, 2]\n")
    with pytest.raises(WorkbenchError, match=r"cannot detect the text format.*--format.*plain-text"):
        read("text", tmp_path / "a.dat")


def test_empty_and_missing_inputs(tmp_path, read):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(WorkbenchError, match="is empty"):
        read("text", tmp_path / "empty.txt")
    with pytest.raises(WorkbenchError, match=r"no file .*empti\.txt.*Did you mean empty\.txt"):
        read("text", tmp_path / "empti.txt")
    with pytest.raises(WorkbenchError, match=r"folder .*nowhere does not exist"):
        read("text", Path(tmp_path / "nowhere" / "x.txt"))


def test_every_kind_has_its_formats():
    named = {
        "text": "json-lines linked-wordpieces plain-text table typed-mentions wikitext",
        "image-text": "captions-jsonl coco-captions flickr-tokens media-jsonl vqa-jsonl vqa-official",
        "triples": "codex json-lines ntriples spo triples-tsv",
    }
    assert all(set(names.split()) <= formats(kind).keys() for kind, names in named.items())


@pytest.mark.data
def test_real_files(shared, read):
    data = shared / "data"
    articles = read("text", data / "wikitext2" / "valid.txt")
    assert len(articles) == 60
    assert len(read("text", data / "gutenberg")) == 11
    linked = read("text", data / "wiki_linked")
    assert (len(linked), sum(len(s["spans"]) for s in linked)) == (85, 12405)
    typed = read("text", data / "ufet" / "train.jsonl")
    assert len(typed) == 1998
    assert sum(bool(set(s["types"]) & NINE) for s in typed) == 1710


NINE = {"person", "group", "organization", "location", "entity", "time", "object", "event", "place"}


def test_mentions_that_are_related(json_lines, read):
    head = {"name": "b", "id": "Q2", "spans": [[2, 3], [5]]}
    row = {"relation": "P1", "tokens": ["A", "is", "the", "B", "of", "B"], "head": head, "tail": {"spans": [[0]]}}
    (sample,) = read("text", json_lines("few.jsonl", [row]))
    assert (sample["text"], sample["marks"]) == ("A is the B of B", [[0, 1, "tail"], [5, 10, "head"]])
    assert (sample["spans"], sample["labels"]) == ([[5, 10, "Q2", 1.0]], {"relation": "P1"})
    (tagged,) = read("text", json_lines("sem.jsonl", [{"relation": "R", "sentence": "A <e2>b</e2> of <e1>c d</e1>."}]))
    assert (tagged["text"], tagged["marks"]) == ("A b of c d.", [[2, 3, "tail"], [7, 10, "head"]])


def test_mentions_with_a_first_and_a_last_token(tmp_path, read):
    """TACRED, one list of rows."""
    ends = {"subj_start": 4, "subj_end": 5, "obj_start": 0, "obj_end": 0, "subj_type": "PERSON", "obj_type": "CITY"}
    row = {"id": "e1", "relation": "per:city_of_birth", "token": ["Oslo", "-LRB-", "of", "-RRB-", "Ann", "Lee"], **ends}
    (tmp_path / "train.json").write_text(json.dumps([row]))
    (sample,) = read("text", tmp_path / "train.json")
    assert (sample["text"], sample["marks"]) == ("Oslo ( of ) Ann Lee", [[0, 4, "tail"], [12, 19, "head"]])
    assert sample["labels"] == {"relation": "per:city_of_birth"}
    assert sample["meta"]["subj_type"] == "PERSON"
    (tmp_path / "train.json").write_text(json.dumps([{**row, "subj_end": 6}]))
    with pytest.raises(WorkbenchError, match=r"train\.json:1: the head has no place among the 6 tokens \(4 to 6\)"):
        read("text", tmp_path / "train.json")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head": {"spans": [[9]]}}, r"few\.jsonl:1: the head has no place among the 2 tokens"),
        ({"tail": {"spans": []}}, "the tail has no place"),
        ({"tokens": ["a", 3]}, "tokens must be strings"),
        ({"sentence": "a <e1>b</e1> <e2>c"}, "a mention is not marked by"),
    ],
)
def test_related_mentions_that_are_nowhere(json_lines, read, changed, message):
    row = {"relation": "P1", "tokens": ["A", "b"], "head": {"spans": [[0]]}, "tail": {"spans": [[1]]}}
    with pytest.raises(WorkbenchError, match=message):
        read("text", json_lines("few.jsonl", [{**row, **changed}]), format="related-mentions")


@pytest.mark.data
def test_real_relations(shared, read):
    data = shared / "data"
    few = read("text", data / "fewrel" / "wiki_dev.jsonl")
    assert len(few) == 1120
    assert len({s["labels"]["relation"] for s in few}) == 16
    (known,) = (s for s in read("text", data / "semeval2010_task8" / "train.jsonl") if s["key"] == "train-1")
    assert [known["text"][a:b] for a, b, _ in known["marks"]] == ["configuration", "elements"]
