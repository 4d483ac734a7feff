"""The embedding `segments`: sounds as vectors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.segments import SegmentsEmbedding

EXCUSED = "its features are of three dimensions, those of the contracts of two; tested here"


def made() -> tuple[SegmentsEmbedding, dict[str, Tensor]]:
    torch.manual_seed(0)
    ids = torch.tensor([3, 4, 5])
    fields = {
        "input_ids": ids,
        "said_ids": ids.clone(),
        "position_ids": torch.arange(3),
        "features": torch.randn(3, 6, 4),
        "frames": torch.tensor([2, 6, 1]),
    }
    return SegmentsEmbedding(8, 10, 4, inner_size=5, max_positions=7, dropout=0.0), fields


def test_a_sound_is_read_to_its_end_and_by_itself() -> None:
    segments, fields = made()
    together = segments.encode(fields)
    for row, length in enumerate(fields["frames"].tolist()):
        _, last = segments.encoder(fields["features"][row : row + 1, :length])
        torch.testing.assert_close(together[row], segments.project(torch.cat([last[0, 0], last[1, 0]])))
    changed = {**fields, "features": fields["features"].clone()}
    changed["features"][0, 2:] = 9
    torch.testing.assert_close(segments(changed), segments(fields))


def test_a_hidden_sound_is_the_token_in_its_place() -> None:
    segments, fields = made()
    hidden = {**fields, "input_ids": torch.tensor([3, 9, 5])}
    louder = {**hidden, "features": fields["features"] + torch.tensor([0.0, 5.0, 0.0])[:, None, None]}
    torch.testing.assert_close(segments(hidden), segments(louder))
    want = segments.norm(segments.token.weight[9] + segments.position.weight[1] + segments.type_vector)
    torch.testing.assert_close(segments(hidden)[1], want)
    torch.testing.assert_close(segments(hidden)[[0, 2]], segments(fields)[[0, 2]])
    assert not torch.allclose(segments(fields)[1], want)
    other = {**fields, "said_ids": torch.tensor([1, 1, 1]), "input_ids": torch.tensor([1, 1, 1])}
    torch.testing.assert_close(segments(other), segments(fields), msg="what is said is not read where it is heard")


def test_no_rows_and_frames_of_another_size() -> None:
    segments, fields = made()
    assert segments({name: value[:0] for name, value in fields.items()}).shape == (0, 8)
    with pytest.raises(WorkbenchError, match="a frame has 3 numbers, the embedding's feature_size is 4"):
        segments({**fields, "features": fields["features"][..., :3]})
