"""Rows of streams, in fields and targets, name the same rows in a batch and in what is picked of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Rows, Sequence, text_fields

HEADS = ([-1, 0, 0], [1, -1], [2, 2, 3, -1])
TOKENS = ([0, 2], [], [3])


def sequences() -> list[Sequence]:
    """Three texts whose rows name their heads, with entities that hang on rows; the second has no entity."""
    made = []
    for i, (heads, tokens) in enumerate(zip(HEADS, TOKENS, strict=True)):
        text = {**text_fields(10 * i + np.arange(len(heads))), "head": Rows("text", np.array(heads))}
        sequence = Sequence({"text": text}, (i,), f"k{i}")
        if tokens:
            hung = Rows("text", np.array(tokens), bound=True)
            sequence.streams["entity"] = {"entity_ids": np.arange(len(tokens)), "token": hung}
        sequence.targets["it"] = {"rows": Rows("text", np.arange(len(heads))[1:]), "labels": np.arange(len(heads) - 1)}
        made.append(sequence)
    return made


def heads_of(batch: Batch) -> list[list[int]]:
    """For each sequence the head of every row, as a token; -1 for none."""
    text = batch.streams["text"]
    ids, heads = text.fields["input_ids"], text.fields["head"]
    named = torch.where(heads < 0, -1, ids[heads])
    return [part.tolist() for part in named.split(text.lengths)]


def wanted(numbers: list[int]) -> list[list[int]]:
    return [[-1 if head < 0 else 10 * i + head for head in HEADS[i]] for i in numbers]


def test_rows_are_those_of_the_batch() -> None:
    batch = collate(sequences())
    assert batch.streams["text"].links == {"head": "text"}
    assert batch.streams["entity"].links == {"token": "text"}
    assert batch.links == {"it": {"rows": "text"}}
    assert batch.streams["text"].fields["head"].tolist() == [-1, 0, 0, 4, -1, 7, 7, 8, -1]
    assert batch.streams["entity"].fields["token"].tolist() == [0, 2, 8]
    assert batch.targets["it"]["rows"].tolist() == [1, 2, 4, 6, 7, 8]
    assert heads_of(batch.to("cpu")) == wanted([0, 1, 2])
    assert batch.to("cpu").links == batch.links


def test_picked_sequences_keep_their_rows() -> None:
    batch = collate(sequences())
    chosen = [2, 0, 1, 2]
    picked = batch.pick({"text": chosen, "entity": chosen})
    assert heads_of(picked) == wanted(chosen)
    tokens = picked.streams["text"].fields["input_ids"][picked.streams["entity"].fields["token"]]
    assert tokens.tolist() == [23, 0, 2, 23]
    again = picked.pick({"text": [3, 1]})
    assert heads_of(again) == wanted([2, 0])
    changed = again.replace("text", input_ids=again.streams["text"].fields["input_ids"] + 1)
    assert changed.streams["text"].links == {"head": "text"}
    assert changed.targets == changed.links == {}


def test_sequences_of_a_sample_are_a_group_also_where_they_are_picked() -> None:
    made = sequences()
    made[0].group = made[2].group = (7,)
    made[0].role, made[2].role = "head", "tail"
    batch = collate(made)
    assert (batch.groups, batch.roles) == ([0, 1, 0], ["head", "", "tail"])
    assert batch.of_role("tail") == [2]
    picked = batch.to("cpu").pick({"text": [1, 2, 0]})
    assert (picked.groups, picked.roles) == ([0, 1, 1], ["", "tail", "head"])
    assert picked.replace("text").groups == picked.groups


def test_linked_streams_are_picked_alike() -> None:
    batch = collate(sequences())
    for chosen in ({"text": [0, 1], "entity": [1, 0]}, {"entity": [0]}):
        with pytest.raises(ValueError, match=r"'token' of the stream 'entity' names rows of 'text'"):
            batch.pick(chosen)


def test_what_leads_to_a_stream_by_way_of_others_is_linked_to_it() -> None:
    batch = collate(sequences())
    assert batch.linked_to("text") == {"text", "entity"}
    assert batch.linked_to("entity") == {"entity"}


def test_a_stream_alone_names_no_rows_of_others() -> None:
    image = {"features": np.zeros((2, 3), np.float32), "token": Rows("text", np.array([1, 0]))}
    both = Sequence({"image": image, "text": sequences()[0].streams["text"]}, (0,))
    alone = both.alone("image")
    assert alone.streams["image"]["token"].index.tolist() == [-1, -1]
    assert collate([alone]).streams["image"].fields["token"].tolist() == [-1, -1]
    assert image["token"].index.tolist() == [1, 0]


def test_rows_that_are_not_there_are_refused() -> None:
    made = sequences()
    made[1].streams["text"]["head"].index[0] = 2
    with pytest.raises(ValueError, match="row 2 of stream 'text', which has 2 rows there"):
        collate(made)
    made = sequences()
    made[0].targets["it"]["rows"] = Rows("image", np.array([0, 0]))
    with pytest.raises(ValueError, match="of one stream in one sequence, of another in the next: image, text"):
        collate(made)
    with pytest.raises(ValueError, match="row 0 of stream 'image', which has 0 rows there"):
        collate(made[:1])


def test_what_the_loader_knew_is_known_where_the_device_says_no_values() -> None:
    batch = collate(sequences())
    moved = batch.to("meta")
    text = moved.streams["text"]
    assert torch.equal(text.known("input_ids"), batch.streams["text"].fields["input_ids"])
    assert torch.equal(moved.known("it", "labels"), batch.targets["it"]["labels"])
    assert torch.equal(batch.known("it", "labels"), batch.targets["it"]["labels"])
    assert batch.streams["text"].host == {} == batch.to("cpu").streams["text"].host


def test_what_was_made_on_the_device_is_not_taken_for_what_the_loader_knew() -> None:
    moved = collate(sequences()).to("meta")
    changed = moved.replace("text", input_ids=torch.zeros(9, dtype=torch.long, device="meta"))
    assert torch.equal(changed.streams["text"].known("head"), moved.streams["text"].known("head"))
    with pytest.raises(NotImplementedError, match="meta"):
        changed.streams["text"].known("input_ids")
    with pytest.raises(NotImplementedError, match="meta"):
        moved.pick({"text": [1], "entity": [1]}).streams["text"].known("input_ids")


@pytest.mark.parametrize("name", ["doc", "word_number"])
def test_a_field_of_another_number_of_rows_is_named(name: str) -> None:
    texts = [{"input_ids": np.arange(2), name: np.arange(length)} for length in (1, 3)]  # 4 in all, as there are rows
    with pytest.raises(WorkbenchError, match=f"'b': stream 'text' has 2 rows and 1 entries of '{name}'"):
        collate([Sequence({"text": text}, (0,), key=key) for key, text in zip("bc", texts, strict=True)])


@pytest.mark.parametrize("values", [[[1], [1]], [0.5, 1.0]])
def test_visibility_integers_that_are_not_one_for_each_row_are_named(values: Any) -> None:
    sequence = Sequence({"text": {"input_ids": np.arange(2), "doc": np.array(values)}}, (0,))
    with pytest.raises(WorkbenchError, match=r"stream 'text': the visibility integer 'doc' is .* for 2 rows"):
        collate([sequence])
