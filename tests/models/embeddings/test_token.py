"""The embedding `token`."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.token import TokenEmbedding
from workbench.models.initialisation import initialise

_EXCUSED = {"masked": "hidden tokens have an id of their own", "frozen": "every parameter is trained"}
_OPTIONS = {"hidden_size": 8, "dropout": 0.0}
CASES = {
    "": EmbeddingCase(_OPTIONS, _EXCUSED, content="input_ids"),
    "no bias": EmbeddingCase({**_OPTIONS, "norm_bias": False}, _EXCUSED, content="input_ids"),
    "languages": EmbeddingCase({**_OPTIONS, "extra": {"language_ids": 3}}, _EXCUSED, content="input_ids"),
}


def test_extra_fields_are_added_before_the_norm() -> None:
    embedding = TokenEmbedding(8, 10, 4, token_types=0, dropout=0.0, extra={"language_ids": 3, "task_ids": 2}).eval()
    ids, languages, tasks = torch.tensor([1, 2, 7]), torch.tensor([2, 0, 2]), torch.tensor([0, 1, 1])
    fields = {"input_ids": ids, "position_ids": torch.arange(3), "language_ids": languages, "task_ids": tasks}
    tables = embedding.extra
    summed = embedding.token.weight[ids] + embedding.position.weight[:3]
    summed = summed + tables["language_ids"].weight[languages] + tables["task_ids"].weight[tasks]
    torch.testing.assert_close(embedding(fields), embedding.norm(summed))


def test_what_an_extra_field_lacks_is_reported() -> None:
    embedding = TokenEmbedding(8, 10, extra={"language_ids": 3}).eval()
    ids = torch.tensor([1, 2])
    fields = {"input_ids": ids, "position_ids": ids, "token_type_ids": 0 * ids}
    with pytest.raises(WorkbenchError, match="a table for 'language_ids', which the sequences lack"):
        embedding(fields)
    with pytest.raises(WorkbenchError, match=r"language_ids 3, but the network has extra\.language_ids = 3: enlarge"):
        embedding({**fields, "language_ids": torch.tensor([0, 3])})
    with pytest.raises(WorkbenchError, match="extra: 'position_ids' has a table already"):
        TokenEmbedding(8, 10, extra={"position_ids": 3})


def test_the_table_of_tokens_may_begin_with_a_spread_of_its_own() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(64, 200, init_range=1.0)
    initialise(embedding, 0.02)
    assert float(embedding.token.weight.detach().std()) == pytest.approx(1.0, abs=0.05)
    assert float(embedding.position.weight.detach().std()) == pytest.approx(0.02, abs=0.002)
