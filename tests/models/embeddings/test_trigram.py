"""The embedding `trigram`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.trigram import TrigramEmbedding

_EXCUSED = {"masked": "hidden tokens have an id of their own", "frozen": "every parameter is trained"}
CASE = EmbeddingCase({"hidden_size": 8, "token_size": 3}, _EXCUSED, content="input_ids")


def test_a_row_reads_its_neighbours_and_none_of_another_text() -> None:
    made = TrigramEmbedding(4, 10, token_size=2, max_positions=4, token_types=0, norm=None).eval()
    ids, places = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 1, 0, 1])
    words, nothing = made.token.weight, torch.zeros(2)
    rows = [[words[2], words[1], nothing], [nothing, words[2], words[1]]]
    rows += [[words[4], words[3], nothing], [nothing, words[4], words[3]]]
    assert made.position is not None
    wanted = torch.stack([made.trigram(torch.cat(row)) for row in rows]) + made.position.weight[places]
    torch.testing.assert_close(made({"input_ids": ids, "position_ids": places}), wanted)


def test_a_text_that_is_read_from_left_to_right_is_refused() -> None:
    made = TrigramEmbedding(4, 10, token_size=2, max_positions=4, token_types=0)
    fields = {"input_ids": torch.tensor([1, 2, 3, 4]), "position_ids": torch.tensor([0, 1, 0, 1])}
    made({**fields, "rank": torch.tensor([0, 0, 1, 1])})
    with pytest.raises(WorkbenchError, match="read from left to right"):
        made({**fields, "rank": torch.tensor([0, 1, 0, 1])})
