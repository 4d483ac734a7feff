"""The layer `vision.boxes_in_text`, and B2T2 as a whole against the library's BERT on the sums of its released code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import BertConfig, BertModel

from vision.models.layers.boxes_in_text import BoxesInTextLayer
from workbench.core.errors import WorkbenchError
from workbench.interop import bert_names
from workbench.interop.rules import to_ours
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, Stream

EXCUSED = "it goes by links of a step that the batches of the contracts don't have"
CLOSE = {"atol": 1e-5, "rtol": 0.0}
BOX = torch.tensor([-1, 0, 2, 2, -1, 3, -1, 4])


def two() -> Batch:
    """Two texts of five and three words, with images of three and two rows."""
    text = Stream({"box": BOX}, torch.tensor([0, 5, 8]), [5, 3], {"box": "image"})
    return Batch({"text": text, "image": Stream({}, torch.tensor([0, 3, 5]), [3, 2])})


def test_words_get_the_vectors_of_their_boxes() -> None:
    torch.manual_seed(0)
    hidden = {"text": torch.randn(8, 4), "image": torch.randn(5, 4)}
    found = BoxesInTextLayer({"text": 4, "image": 4})(hidden, Context(two()))
    for row, box in enumerate(BOX.tolist()):
        wanted = hidden["text"][row] + (hidden["image"][box] if box >= 0 else 0)
        torch.testing.assert_close(found["text"][row], wanted)
    assert found["image"] is hidden["image"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="text has the width 4, image 6"):
        BoxesInTextLayer({"text": 4, "image": 6})
    batch = two()
    del batch.streams["text"].fields["box"]
    with pytest.raises(WorkbenchError, match=r"add the transform vision\.boxes_in_text"):
        BoxesInTextLayer({"text": 4, "image": 4})(
            {"text": torch.zeros(8, 4), "image": torch.zeros(5, 4)}, Context(batch)
        )


@torch.no_grad()
def test_b2t2_is_bert_on_words_with_boxes(jagged: Callable[..., Batch]) -> None:
    """The sums are made by a loop over tokens; then the library's layers and pooler follow."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512, "num_hidden_layers": 2}
    config = BertConfig(vocab_size=40, max_position_embeddings=80, **sizes)
    theirs = BertModel(config).eval()
    network = Network(load_recipe("b2t2-tiny").networks["main"], vocab_size=40).eval()
    load(network, theirs)
    lengths, rows = [6, 4], [5, 5]
    seen, there = (torch.arange(6) < torch.tensor(lengths)[:, None]), torch.ones(2, 5, dtype=torch.bool)
    ids = torch.randint(0, 40, (2, 6))
    box = torch.tensor([[-1, 0, -1, 3, 3, -1], [-1, 0, 2, -1, -1, -1]])
    features, corners = torch.randn(2, 5, 1280), torch.rand(2, 5, 4)
    starts = torch.tensor([0, rows[0]])[:, None]
    fields = {
        "input_ids": ids,
        "position_ids": torch.arange(6).expand(2, 6),
        "token_type_ids": torch.zeros_like(ids),
        "box": torch.where(box < 0, -1, box + starts),
    }
    batch = jagged(text=(seen, fields), image=(there, {"features": features, "boxes": corners}))
    vectors = network.embeddings["image"](batch.streams["image"].fields).view(2, 5, -1)
    words = theirs.embeddings(ids)
    for i in range(2):
        for t in range(lengths[i]):
            if box[i, t] >= 0:
                words[i, t] += vectors[i, box[i, t]]
    mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None, None]
    expected = theirs.encoder(words, attention_mask=mask).last_hidden_state
    states = network(batch)
    torch.testing.assert_close(states["text"], expected[seen], **CLOSE)
    torch.testing.assert_close(network.pool(states, batch), theirs.pooler(expected), **CLOSE)


def load(network: Network, bert: BertModel) -> None:
    """The library's weights, whose layers are ours behind the first."""
    rules = [
        *bert_names.embeddings("embeddings"),
        *bert_names.layers("encoder.layer", 2, first=1),
        *bert_names.both("pooler.dense", "poolers.text.dense"),
    ]
    weights = to_ours(bert.state_dict(), rules).tensors
    missing, unexpected = network.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(name.startswith("embeddings.image.") for name in missing)
