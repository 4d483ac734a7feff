"""ProphetNet: states, loss and generated texts of the Hugging Face class, and its weights both ways.

Where their class reads several rows at once, it takes the relative positions of `query` from rows and heads in another
order than it multiplies them. A text that it generates with a cache, row by row, has them right; so had the released
code, whose order the test of losses puts in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.prophetnet import modeling_prophetnet

from tests.contracts.cases import FamilyCase
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, draw
from workbench.interop.families.prophetnet import Prophetnet
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.objectives.future_ngrams import FutureNgrams
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

CONFIG: dict[str, Any] = {
    "model_type": "prophetnet",
    "vocab_size": 40,
    "hidden_size": 16,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "num_encoder_attention_heads": 2,
    "num_decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 20,
    "ngram": 2,
    "num_buckets": 6,
    "relative_max_distance": 5,
}
ROWS = {f"prophetnet.{side}.position_embeddings.weight": slice(1, None) for side in ("encoder", "decoder")}
CASE = FamilyCase(config=CONFIG, rows=ROWS)
TEXTS = [[4, 9, 11, 13, 7, 5], [8, 30]]
WRITTEN = [[21, 8, 33, 12, 4, 17, 35, 3], [9, 3, 14, 25, 30, 7, 6, 2]]


class Both:
    """A model of theirs with random weights, and the same as our network, objective and head."""

    def __init__(self, ngram: int) -> None:
        torch.manual_seed(0)
        sizes = {name: value for name, value in CONFIG.items() if name != "model_type"}
        sizes |= {"num_encoder_layers": 3, "ngram": ngram}  # with fewer than in the decoder their cache fails
        config = transformers.ProphetNetConfig(**sizes, decoder_start_token_id=1, eos_token_id=39)
        self.theirs = transformers.ProphetNetForConditionalGeneration(config).eval()
        for name, parameter in self.theirs.named_parameters():
            if "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.3)
        stated = FamilyConfig(config.to_dict())
        weights, unused = to_ours(self.theirs.state_dict(), Prophetnet().rules(stated))
        assert unused == []
        spec = Prophetnet().network(stated)
        self.network = Network(spec).eval()
        for ours, other in spec.tie.items():
            stream, module = ours.split(".")
            setattr(self.network.embeddings[stream], module, self.network.embeddings.get_submodule(other))
        assert self.network.load_state_dict(weights, strict=False).unexpected_keys == []
        self.objective = FutureNgrams(tokenizer(), ngram)
        self.objective.name, self.objective.start, self.objective.end = "it", 1, 39
        self.head = self.objective.head(self.network)


def sequences() -> list[Sequence]:
    return [
        Sequence({"text": text_fields(np.array(text)), "target": text_fields(np.array(written))}, (i,))
        for i, (text, written) in enumerate(zip(TEXTS, WRITTEN, strict=True))
    ]


def padded() -> dict[str, Tensor]:
    longest = max(map(len, TEXTS))
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in TEXTS])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in TEXTS])
    return {"input_ids": ids, "attention_mask": mask}


def released(self: Any, states: Tensor, scores: Tensor, positions: Tensor, buckets: Tensor) -> Tensor:
    """The relative positions of `query` in their class, in the order of the released code."""
    numbers = self.relative_pos_embeddings(states).unflatten(-1, (self.num_buckets, -1)).permute(0, 2, 4, 1, 3)
    index = buckets.long()[:, None, None].expand(*numbers.shape[:4], -1)
    return numbers.gather(-1, index)  # type: ignore[no-any-return]


@pytest.mark.parametrize("ngram", [1, 2, 3])
@torch.no_grad()
def test_states_and_loss_are_theirs(ngram: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = modeling_prophetnet.ProphetNetNgramSelfAttention
    monkeypatch.setattr(attention, "get_predict_relative_pos_embeddings", released)
    both, made = Both(ngram), sequences()
    both.objective.corrupt(made, Draws(0, "task", "it", number=(0,)))
    batch = collate(made)
    states = both.network(batch)
    wanted = both.theirs(**padded(), labels=torch.tensor(WRITTEN), output_hidden_states=True)
    close = {"atol": 1e-5, "rtol": 1e-5}
    real = padded()["attention_mask"].bool()
    torch.testing.assert_close(states["text"], wanted.encoder_last_hidden_state[real], **close)
    torch.testing.assert_close(states["target"], wanted.decoder_hidden_states[-1].flatten(0, 1), **close)
    torch.testing.assert_close(states["query"], wanted.decoder_ngram_hidden_states[-1].flatten(0, 1), **close)
    output = both.head(HeadInputs.of(both.network, batch, batch.targets["it"], states))
    torch.testing.assert_close(output.loss / both.objective.count(batch), wanted.loss, **close)


@torch.no_grad()
def test_generated_texts_are_theirs() -> None:
    both, made = Both(2), sequences()
    continuation = both.objective.continuation(None)  # type: ignore[arg-type]
    for sequence in made:
        continuation.prompt(sequence)
    decoder = Decoder(both.network, both.head, continuation, collate(made))
    found = [text.tokens for text in draw(decoder, Decoding(max_new_tokens=9), [None, None])]  # type: ignore[list-item]
    wanted = both.theirs.generate(**padded(), max_new_tokens=9, do_sample=False)[:, 1:].tolist()
    assert found == [text[: text.index(39)] if 39 in text else text for text in wanted]
    assert any(len(set(text)) > 1 for text in found)


@pytest.mark.parametrize("change", [{"eps": 0.1}, {"disable_ngram_loss": True}])
def test_another_loss_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WorkbenchError, match="change the loss"):
        Prophetnet().network(FamilyConfig({**CONFIG, **change}))
