"""A row behind every sequence: the rows of others move, and links to them follow."""

from __future__ import annotations

import torch

from workbench.generation.decoder import grown, last_rows
from workbench.sequences.batch import Batch, Stream


def test_links_follow_the_rows_that_move() -> None:
    text = Stream({"input_ids": torch.arange(5), "boxes": torch.zeros(5, 4)}, torch.tensor([0, 2, 5]), [2, 3])
    entity = Stream({"token": torch.tensor([1, -1, 4])}, torch.tensor([0, 2, 3]), [2, 1], {"token": "text"})
    batch = Batch({"text": text, "entity": entity}, keys=["a", "b"])
    assert {name: values.tolist() for name, values in last_rows(text).items()} == {"input_ids": [1, 4]}
    longer = grown(batch, "text", {"input_ids": torch.tensor([8, 9])})
    assert longer.streams["text"].fields["input_ids"].tolist() == [0, 1, 8, 2, 3, 4, 9]
    assert longer.streams["text"].offsets.tolist() == [0, 3, 7]
    assert longer.streams["text"].lengths == [3, 4]
    assert longer.streams["entity"].fields["token"].tolist() == [1, -1, 5]
    assert batch.streams["entity"].fields["token"].tolist() == [1, -1, 4]
