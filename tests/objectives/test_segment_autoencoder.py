"""The autoencoder of sounds, against a loop over its equation."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.material import draws, tokenizer
from tests.sequences.builders.test_spoken_words import sample
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives.segment_autoencoder import SegmentAutoencoder
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.builders.spoken_words import SpokenWordsBuilder

EXCUSED = "it reads the embedding `segments`, which the contracts' network has not; tested here"


def seen(words: list[list[float]] | None = None) -> tuple[SegmentAutoencoder, HeadInputs]:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 16, "vocab_size": tokenizer().vocab_size}
    speech = {"embedding": "segments", "hidden_size": 16, "vocab_size": text["vocab_size"], "feature_size": 3}
    layer = {"layer": "joint", "streams": ["text", "speech"], "num_heads": 2}
    network = Network(NetworkSpec({"text": text, "speech": speech}, [layer], [])).eval()
    objective = SegmentAutoencoder(weight_l1=0.5, inner_size=8)
    objective.name = "it"
    given = sample() if words is None else sample(words=words)
    sequences = SpokenWordsBuilder(tokenizer(), 10, 8)([given], draws())
    objective.corrupt(sequences, draws())
    batch = collate(sequences, {})
    return objective, HeadInputs.of(network, batch, batch.targets["it"])


def test_the_loss_is_that_of_a_loop() -> None:
    objective, view = seen()
    head = objective.head(view.network).eval()
    got = head(view)
    fields, embedding = view.batch.streams["speech"].fields, view.network.embeddings["speech"]
    vectors, total = embedding.encode(fields), 0.0
    for row, length in enumerate(fields["frames"].tolist()):
        state, error = torch.zeros(1, 1, 8), 0.0
        for t in range(length):
            out, state = head.decoder(vectors[row][None, None], state)
            error += (head.output(out[0, 0]) - fields["features"][row, t].float()).square().mean().item()
        apart = (vectors[row] - embedding.token.weight[fields["said_ids"][row]]).abs().mean().item()
        total += error / length + 0.5 * apart
    assert objective.count(view.batch) == 4
    torch.testing.assert_close(got.loss.item(), total, atol=1e-5, rtol=1e-5)
    got.loss.backward()
    assert embedding.encoder.weight_ih_l0.grad.abs().sum() > 0
    assert embedding.token.weight.grad is None, "the words stay"


def test_speech_without_words() -> None:
    objective, view = seen([])
    assert objective.count(view.batch) == 0
    assert objective.head(view.network)(view).loss.item() == 0


def test_another_embedding_is_refused() -> None:
    _, view = seen()
    with pytest.raises(WorkbenchError, match="of the stream 'text' must be `segments`; found Token"):
        SegmentAutoencoder(stream="text").head(view.network)
