"""The triples format `wordnet`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.readers.reader import MalformedError
from pipelines.readers.triples.wordnet import CLASSES
from tests.contracts.cases import ReaderCase
from workbench.core.errors import WorkbenchError

LICENCE = "  1 This software and database is being provided to you\n  2 under a license.  \n"
DOG = "02084071 05 n 03 dog 0 domestic_dog 0 Canis_familiaris 0 002 @ 02083346 n 0000 + 01234567 v 0101 | a pet  \n"
CANINE = "02083346 05 n 01 canine 2 001 ~ 02084071 n 0000 | a mammal with claws  \n"
CHASE = '01234567 38 v 01 dog 1 000 01 + 08 00 | go after; "she dogged him"  \n'
GALORE = "00013887 00 s 02 galore(ip) 0 a-plenty(ip) 0 001 & 00013160 a 0000 | in great numbers  \n"
ABUNDANT = "00013160 00 a 01 abundant 0 001 ! 00013887 a 0101 | present in great quantity  \n"
ALONE = "00001740 02 r 0a " + " ".join(f"lonely{n} 0" for n in range(10)) + " 000 | by itself  \n"


def numbered(records: int) -> str:
    row = "{:08} 03 n 01 thing_{} 0 001 @ {:08} n 0000 | a thing  \n"
    return LICENCE + "".join(row.format(i, i, i + 1) for i in range(records))


CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"}, text=numbered, file="data.noun", more=1, folder=True
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "dict"
    made.mkdir()
    (made / "data.noun").write_text(LICENCE + DOG + CANINE)
    (made / "data.verb").write_text(LICENCE + CHASE)
    (made / "data.adj").write_text(LICENCE + GALORE + ABUNDANT)
    (made / "data.adv").write_text(LICENCE + ALONE)
    (made / "index.noun").write_text("not read")
    return made


def test_synsets_with_words_glosses_classes_and_pointers(folder, read):
    samples = {s["id"]: s for s in read("triples", folder)}
    dog = samples["02084071-n"]
    assert (dog["label"], dog["aliases"]) == ("dog", ["domestic dog", "Canis familiaris"])
    assert (dog["description"], dog["types"]) == ("a pet", ["noun.animal"])
    assert [(t["relation"], t["relation_text"], t["tail"], t["tail_text"]) for t in dog["triples"]] == [
        ("hypernym", "hypernym", "02083346-n", "canine"),
        ("derivationally_related_form", "derivationally related form", "01234567-v", "dog"),
    ]
    chase = samples["01234567-v"]
    assert (chase["types"], chase["triples"]) == (["verb.motion"], [])
    assert chase["description"] == 'go after; "she dogged him"'


def test_satellites_are_adjectives_and_words_lose_their_marks(folder, read):
    samples = {s["id"]: s for s in read("triples", folder)}
    galore, abundant = samples["00013887-a"], samples["00013160-a"]
    assert (galore["label"], galore["aliases"]) == ("galore", ["a-plenty"])
    assert [(t["relation"], t["tail"]) for t in galore["triples"]] == [("similar_to", "00013160-a")]
    assert [(t["relation"], t["tail"]) for t in abundant["triples"]] == [("antonym", "00013887-a")]


def test_a_synset_without_pointers_is_kept_and_counts_are_hexadecimal(folder, read):
    (alone,) = [s for s in read("triples", folder) if s["id"] == "00001740-r"]
    assert len(alone["aliases"]) == 9
    assert (alone["types"], alone["triples"]) == (["adv.all"], [])


def test_there_are_45_classes():
    assert len(set(CLASSES)) == 45
    assert (CLASSES[5], CLASSES[38], CLASSES[44]) == ("noun.animal", "verb.motion", "adj.ppl")


@pytest.mark.parametrize(
    "line",
    [
        "00000001 03 n 01 thing 0 002 @ 00000002 n 0000 | a pointer is missing\n",
        "00000001 03 n 01 thing 0 000\n",
        "00000001 45 n 01 thing 0 000 | a class too many\n",
        "00000001 03 n 01 thing 0 001 ? 00000002 n 0000 | an unknown symbol\n",
        "x 03 n 01 thing 0 000 | no number\n",
        "00000001 03 n 00 000 | no word\n",
    ],
)
def test_bad_lines(folder, read, line):
    (folder / "data.noun").write_text(LICENCE + line)
    with pytest.raises(MalformedError, match=r"no synset of WordNet.*data\.noun:3|data\.noun:3.*no synset"):
        read("triples", folder)


def test_a_folder_without_data_files(tmp_path, read):
    (tmp_path / "dict").mkdir()
    with pytest.raises(WorkbenchError, match=r"data\.noun"):
        read("triples", tmp_path / "dict", format="wordnet")
