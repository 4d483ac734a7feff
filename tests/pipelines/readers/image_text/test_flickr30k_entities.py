"""The image-text format `flickr30k-entities`."""

from __future__ import annotations

import pytest

from workbench.core.errors import WorkbenchError

SENTENCE = (
    "[/EN#1/people Two young guys] with [/EN#2/bodyparts shaggy hair] look at [/EN#3/bodyparts/other their hands] ."
)
BOXES = """<annotation>
  <filename>0.png</filename>
  <size><width>200</width><height>100</height><depth>3</depth></size>
  <object><name>1</name><bndbox><xmin>20</xmin><ymin>10</ymin><xmax>80</xmax><ymax>50</ymax></bndbox></object>
  <object><name>1</name><name>2</name>
    <bndbox><xmin>100</xmin><ymin>10</ymin><xmax>150</xmax><ymax>50</ymax></bndbox></object>
  <object><name>3</name><nobndbox>1</nobndbox></object>
</annotation>"""


EXCUSED = "a file is one record, and the contracts ask one file for several"


@pytest.fixture
def folder(tmp_path, tar, photograph):
    tar("images.tar", {"0.png": photograph(1)})
    for name in ("Sentences", "Annotations"):
        (tmp_path / name).mkdir()
    (tmp_path / "Sentences" / "0.txt").write_text(f"{SENTENCE}\nA dog runs .\n")
    (tmp_path / "Annotations" / "0.xml").write_text(BOXES)
    return tmp_path


@pytest.mark.parametrize("inputs", ["", "Sentences", "Sentences/0.txt"])
def test_phrases_are_marked_and_have_boxes(folder, read, inputs):
    options = {"image_name": "{id}.png", "images": [str(folder / "images.tar")]}
    (sample,) = read("image-text", folder / inputs, **options)
    assert sample["captions"] == ["Two young guys with shaggy hair look at their hands .", "A dog runs ."]
    first, second = [0.1, 0.1, 0.4, 0.5], [0.5, 0.1, 0.75, 0.5]
    assert sample["caption_marks"] == [
        [
            [0, 14, "people", "1", [first, second]],
            [20, 31, "bodyparts", "2", [second]],
            [40, 51, "bodyparts/other", "3", []],
        ],
        [],
    ]
    caption, marks = sample["captions"][0], sample["caption_marks"][0]
    assert [caption[start:end] for start, end, *_ in marks] == ["Two young guys", "shaggy hair", "their hands"]


def test_what_does_not_fit_is_reported(folder, read):
    options = {"image_name": "{id}.png", "images": [str(folder / "images.tar")]}
    xml, sentences = folder / "Annotations" / "0.xml", folder / "Sentences"
    xml.write_text('<!DOCTYPE a [<!ENTITY b "c">]>' + BOXES)
    with pytest.raises(WorkbenchError, match=r"0\.xml:1: boxes with declarations of their own"):
        read("image-text", sentences, **options)
    xml.write_text(BOXES[:200])
    with pytest.raises(WorkbenchError, match=r"0\.xml:1: boxes that are not as in the set"):
        read("image-text", sentences, **options)
    xml.unlink()
    (sample,) = read("image-text", sentences, **options)
    assert [mark[4] for mark in sample["caption_marks"][0]] == [[], [], []]
    (sentences / "0.txt").write_text(f"{SENTENCE}\n[/EN#9 A dog] runs .\n")
    with pytest.raises(WorkbenchError, match=r"0\.txt:2: a phrase that is not \[/EN#number/type words\]"):
        read("image-text", sentences, **options)
