"""The layer `translated_words`: attention by the paper's equation, with all three parts of W."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import LayerCase
from tests.models.conftest import stream
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.layers.translated_words import TranslatedWordsLayer
from workbench.sequences.batch import Batch

CASE = LayerCase({"stream": "text", "to": "image"}, {"attention": "it has one head and no options of attention"})


@torch.no_grad()
def test_rows_are_those_of_the_equation() -> None:
    torch.manual_seed(0)
    made = TranslatedWordsLayer("text", "to", {"text": 4, "to": 4})
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    lengths, others = [3, 2], [2, 5]
    s, t = torch.randn(5, 4), torch.randn(7, 4)
    places = torch.tensor([0, 1, 2, 0, 1])
    batch = Batch({"text": stream(lengths, position_ids=places), "to": stream(others)})
    found = made({"text": s, "to": t}, Context(batch))
    assert found["to"] is t
    matrix = torch.cat([torch.randn(4), made.bias, made.weight]) / 4**0.5
    for i in range(5):
        words = t[:2] if i < 3 else t[2:]
        scores = torch.stack([matrix @ torch.cat([s[i], word, s[i] * word]) for word in words])
        mixed = scores.softmax(0) @ words + made.position.weight[places[i]]
        torch.testing.assert_close(found["text"][i], made.norm(mixed), atol=1e-5, rtol=1e-5)
    assert made({"text": s}, Context(batch))["text"] is s


def test_streams_of_two_widths_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="4 and 8; give both the same"):
        TranslatedWordsLayer("text", "to", {"text": 4, "to": 8})
