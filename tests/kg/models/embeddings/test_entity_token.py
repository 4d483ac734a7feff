"""LUKE's embedding of entity tokens, against its equation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from kg.models.embeddings.entity_token import EntityTokenEmbedding
from kg.sequences.entity_vocabulary import save_entity_vocabulary
from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import ENTITIES
from workbench.core.errors import WorkbenchError

EXCUSED_CONTRACTS = {"masked": "what is masked has an id of its own", "frozen": "all of it is trained"}
SMALL = {"vocabulary": ENTITIES + 1, "hidden_size": 8, "max_positions": 6, "token_types": 2, "dropout": 0.0}
CASES = {
    "": EmbeddingCase({**SMALL, "embedding_size": 3}, EXCUSED_CONTRACTS, content="entity_ids"),
    "wide": EmbeddingCase({**SMALL, "embedding_size": 8}, EXCUSED_CONTRACTS, content="entity_ids"),
}


@torch.no_grad()
def test_an_entity_stands_at_the_mean_of_its_positions() -> None:
    torch.manual_seed(0)
    made = EntityTokenEmbedding(vocabulary=5, hidden_size=8, embedding_size=3, max_positions=9, dropout=0.0).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    numbers = {"entity_ids": [4, 0, 4], "position_ids": [2, 8, 0], "last_position_ids": [6, 8, 1]}
    fields = {name: torch.tensor(values) for name, values in numbers.items()}
    found = made({**fields, "token_type_ids": torch.zeros(3, dtype=torch.long)})
    for row, (entity, first, last) in enumerate(zip(*numbers.values(), strict=True)):
        places = sum(made.position.weight[p] for p in range(first, last + 1)) / (last - first + 1)
        summed = made.project.weight @ made.token.weight[entity] + places + made.token_type.weight[0]
        torch.testing.assert_close(found[row], made.norm(summed), atol=1e-5, rtol=1e-5)


def test_one_type_is_that_of_entities_of_any_segment() -> None:
    made = EntityTokenEmbedding(vocabulary=5, hidden_size=8, max_positions=9, token_types=1, dropout=0.0)
    fields = {name: torch.tensor([1, 2]) for name in ("entity_ids", "position_ids", "last_position_ids")}
    found = [made({**fields, "token_type_ids": torch.tensor(types)}) for types in ([0, 1], [0, 0])]
    torch.testing.assert_close(*found, atol=0, rtol=0)


@pytest.mark.parametrize("beyond", ["entity_ids", "last_position_ids"])
def test_a_number_beyond_its_table_is_reported(beyond: str) -> None:
    made = EntityTokenEmbedding(vocabulary=5, hidden_size=8, max_positions=9)
    names = ("entity_ids", "position_ids", "last_position_ids", "token_type_ids")
    fields = {name: torch.zeros(1, dtype=torch.long) for name in names}
    made(fields)
    with pytest.raises(WorkbenchError, match=beyond):
        made({**fields, beyond: torch.tensor([9])})


def test_the_table_has_a_row_for_each_entity_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    save_entity_vocabulary(path, Counter("aab"), 9, {})
    assert EntityTokenEmbedding(vocabulary=str(path), hidden_size=8).token.num_embeddings == 3 + 2
