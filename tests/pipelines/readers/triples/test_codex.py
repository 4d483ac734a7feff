"""The triples format `codex`."""

from __future__ import annotations

import pytest

from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"Q{i + 9}\tP1\tQ1"),
    file="train.txt",
    more=1,
    folder=True,
)


def test_columns_next_to_the_triples_describe_entities(tmp_path, read):
    folder = tmp_path / "WN"
    folder.mkdir()
    (folder / "train.txt").write_text("01\t_hypernym\t02\n")
    (folder / "entity2text.txt").write_text("01\tstool\n03\tbench\n")
    (folder / "entity2textlong.txt").write_text("01\ta seat without a back\n")
    (folder / "wordnet-definitions.txt").write_text("02\t__seat_NN_1\tfurniture to sit on\n")
    (folder / "relation2text.txt").write_text("_hypernym\tis a kind of\n")
    stool, seat, bench = read("triples", folder)
    assert (stool["label"], stool["description"]) == ("stool", "a seat without a back")
    assert (seat["label"], seat["description"]) == ("__seat_NN_1", "furniture to sit on")
    assert (bench["id"], bench["label"], bench["triples"]) == ("03", "bench", [])
    assert stool["triples"][0]["relation_text"] == "is a kind of"
    (folder / "entity2text.txt").write_text("01 stool\n")
    with pytest.raises(MalformedError, match=r"entity2text\.txt:1: expected id<tab>text"):
        read("triples", folder)
    (folder / "entity2text.txt").write_bytes(b"01\t\xff\n")
    with pytest.raises(MalformedError, match=r"entity2text\.txt:1: not valid UTF-8"):
        read("triples", folder)


@pytest.mark.slow
@pytest.mark.data
def test_wordnet_has_entities_that_no_training_triple_has(shared, read):
    samples = read("triples", shared / "data" / "wn18rr")
    assert len(samples) == 40_943
    assert sum(len(s["triples"]) for s in samples) == 86_835
    assert all(s["label"] != s["id"] for s in samples)
