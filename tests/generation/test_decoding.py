"""Greedy, beams and draws: with a KV cache as without, one prompt as among others."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.generation.beams import Search, beam_search
from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, distribution, draw, drawn
from workbench.models.network import Network
from workbench.objectives._token_head import TokenHead
from workbench.pretraining.objective import Continuation
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, Stream, collate

CAUSAL = {"builder": "document", "begin": "cls", "visibility": "causal"}
PREFIX = {"builder": "sentence_pair", "visibility": "prefix"}
MIXTURE = {"builder": "sentence_pair", "visibility": {"bidirectional": 1, "prefix": 1}}
SETTINGS = [
    (CAUSAL, {}),
    (CAUSAL, {"rotary": 10000.0, "norm_place": "pre"}),
    (CAUSAL, {"score_bias": "alibi", "window": 6}),
    (PREFIX, {"share": "all", "score_bias": "buckets"}),
    (PREFIX, {"objective": "mlm"}),
    (MIXTURE, {"objective": "mlm", "score_bias": "buckets"}),
    ({"builder": "document"}, {"objective": "blank_filling", "embedding": "blank_token"}),
    ({"builder": "document"}, {"objective": "blank_filling", "embedding": "blank_token", "blank": " [MASK] water"}),
]
pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients() -> Any:
    with torch.no_grad():
        yield


def generators(count: int, seed: int = 0) -> list[Any]:
    return [generator(seed, i) for i in range(count)]


@pytest.mark.parametrize(("builder", "layer"), SETTINGS)
def test_logits_with_a_kv_cache_are_those_without(builder: dict, layer: dict, decoders: Any) -> None:
    cached, uncached = decoders(builder, **layer)
    torch.testing.assert_close(cached.begin(), uncached.begin(), atol=1e-5, rtol=1e-5)
    for tokens, origins in (([7, 8, 9, 10], [0, 1, 2, 3]), ([11, 12, 13], [2, 0, 2]), ([14], [1])):
        found, expected = cached.step(tokens, origins), uncached.step(tokens, origins)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("builder", "layer"), SETTINGS)
@pytest.mark.parametrize("beams", [1, 3])
def test_texts_with_a_kv_cache_are_those_without(builder: dict, layer: dict, beams: int, decoders: Any) -> None:
    decoding = Decoding(max_new_tokens=12, beams=beams)
    found, expected = (
        beam_search(decoder, decoding, 4) if beams > 1 else draw(decoder, decoding, generators(4))
        for decoder in decoders(builder, **layer)
    )
    assert [text.tokens for text in found] == [text.tokens for text in expected]
    assert [text.score for text in found] == pytest.approx([text.score for text in expected], abs=1e-4)


def test_what_follows_a_prefix_is_the_second_segment(decoders: Any) -> None:
    cached, _ = decoders(PREFIX)
    cached.begin()
    cached.step([7, 8, 9, 10], [0, 1, 2, 3])
    stream = cached._cache.stream("text")
    fields = stream.fields
    ends = (stream.offsets[1:] - 1).tolist()
    assert fields["token_type_ids"].sum() == 4
    assert fields["token_type_ids"][ends].tolist() == fields["rank"][ends].tolist() == [1, 1, 1, 1]
    assert int(fields["rank"].sum()) == 4


def test_masks_that_ask_for_a_token_leave_nothing(decoders: Any, tokenizer: Any) -> None:
    """UniLM: the mask stands in the next token's place, which then takes it; the target's type is 5 in a mixture."""
    cached, _ = decoders(MIXTURE, objective="mlm")
    cached.begin()
    lengths = list(cached._cache.streams["text"].lengths)
    cached.step([7, 8, 9, 10], [0, 1, 2, 3])
    stream = cached._cache.stream("text")
    assert stream.lengths == [length + 1 for length in lengths]
    assert tokenizer.id("mask") not in stream.fields["input_ids"].tolist()
    ends = (stream.offsets[1:] - 1).tolist()
    assert stream.fields["token_type_ids"][ends].tolist() == [5] * 4
    assert stream.fields["position_ids"][ends].tolist() == lengths
    assert stream.fields["rank"][ends].tolist() == [1] * 4


def test_a_text_ends_with_its_end_token(setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    batch = collate(prompts)
    free = draw(Decoder(network, head, continuation, batch), Decoding(max_new_tokens=8), generators(4))
    continuation.end = free[0].tokens[3]
    made = draw(Decoder(network, head, continuation, batch), Decoding(max_new_tokens=8), generators(4))
    for one, other in zip(made, free, strict=True):
        assert one.ended == (continuation.end in other.tokens)
        end = other.tokens.index(continuation.end) if one.ended else 8
        assert one.tokens == other.tokens[:end]


class Table:
    """A decoder whose logits depend on the last token alone: table[token]; the first token is 0."""

    def __init__(self, table: list[list[float]], prompts: int = 1) -> None:
        self.table = torch.tensor(table).log()
        self.prompts = prompts
        self.continuation = type("End", (), {"end": len(table) - 1})()

    def begin(self) -> torch.Tensor:
        return self.table[[0] * self.prompts]

    def step(self, tokens: list[int], origins: list[int]) -> torch.Tensor:
        return self.table[tokens]


GARDEN = [  # the likeliest first token leads to unlikely texts; 3 ends
    [0.0, 0.55, 0.44, 0.01],
    [0.3, 0.2, 0.3, 0.2],
    [0.02, 0.01, 0.01, 0.96],
    [0.0, 0.0, 0.0, 1.0],
]


def test_beams_find_what_greed_misses() -> None:
    greedy = draw(Table(GARDEN), Decoding(max_new_tokens=4), generators(1))[0]  # type: ignore[arg-type]
    best = beam_search(Table(GARDEN), Decoding(max_new_tokens=4, beams=2), 1)[0]  # type: ignore[arg-type]
    assert greedy.tokens[0] == 1
    assert (best.tokens, best.ended) == ([2], True)
    assert best.score == pytest.approx(math.log(0.44 * 0.96) / 2, rel=1e-5)


@pytest.mark.parametrize(("penalty", "tokens"), [(0.0, []), (2.0, [1, 1, 1])])
def test_the_length_penalty_favours_long_texts(penalty: float, tokens: list[int]) -> None:
    table = [[0.0, 0.6, 0.4], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]]
    decoding = Decoding(max_new_tokens=3, beams=2, length_penalty=penalty, early_stopping="never")
    assert beam_search(Table(table), decoding, 1)[0].tokens == tokens  # type: ignore[arg-type]


@pytest.mark.parametrize(("stopping", "steps"), [("true", 2), ("false", 3), ("never", 4)])
def test_early_stopping_says_when_a_search_is_done(stopping: Any, steps: int) -> None:
    """Two texts have ended after two steps; after three no running one is better by its length; after four by any."""
    first, then = torch.tensor([[0.88, 0.10, 0.02]]).log(), torch.tensor([[0.01, 0.97, 0.02]]).log()
    search = Search(Decoding(max_new_tokens=5, beams=2, early_stopping=stopping), end=1)
    done = 0
    while search.running:
        done += 1
        search.advance((first if done < 3 else then).expand(len(search.running), -1), done)
    assert done == steps


@pytest.mark.parametrize("options", [{"sample": True}, {"beams": 3}])
def test_no_prompt_depends_on_its_company(options: dict, setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    decoding = Decoding(max_new_tokens=6, **options)
    made = []
    for some in (slice(0, 4), slice(2, 3)):
        decoder = Decoder(network, head, continuation, collate(prompts[some]))
        drawing = draw(decoder, decoding, generators(4)[some]) if decoding.sample else None
        made.append(drawing or beam_search(decoder, decoding, len(prompts[some])))
    assert made[0][2].tokens == made[1][0].tokens


def test_draws_follow_the_seed(setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    decoding = Decoding(max_new_tokens=6, sample=True)
    made = []
    for seed in (0, 0, 1):
        texts = draw(Decoder(network, head, continuation, collate(prompts)), decoding, generators(4, seed))
        made.append([text.tokens for text in texts])
    assert made[0] == made[1] != made[2]


CUTS = [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 8, "top_p": 0.5}]


@pytest.mark.parametrize("options", CUTS)
def test_the_distribution_is_that_of_the_field(options: dict) -> None:
    warpers = pytest.importorskip("transformers.generation.logits_process")
    logits = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)) * 2
    expected = logits
    if "temperature" in options:
        expected = warpers.TemperatureLogitsWarper(options["temperature"])(None, expected)
    if "top_k" in options:
        expected = warpers.TopKLogitsWarper(options["top_k"])(None, expected)
    if "top_p" in options:
        expected = warpers.TopPLogitsWarper(options["top_p"])(None, expected)
    found = distribution(logits, Decoding(sample=True, **options))
    torch.testing.assert_close(found.float(), expected.softmax(-1), atol=1e-6, rtol=1e-5)


def test_a_number_falls_on_the_token_whose_share_it_is_in() -> None:
    shares = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25]], dtype=torch.float64)
    numbers = [0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53]
    assert drawn(shares.expand(6, -1).contiguous(), numbers).tolist() == [1, 1, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sample": True, "beams": 2}, "--sample draws one text"),
        ({"temperature": 0.5}, "--temperature needs --sample"),
        ({"top_k": 3}, "--top-k needs --sample"),
        ({"length_penalty": 2.0}, "--length-penalty needs --beams"),
    ],
)
def test_options_of_another_way_to_choose_are_refused(options: dict, said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        Decoding(**options)


def test_broken_weights_are_reported(setting: Any) -> None:
    network, head, continuation, prompts = setting(CAUSAL)
    network.embeddings["text"].token.weight.fill_(float("nan"))
    with pytest.raises(WorkbenchError, match="that are NaN"):
        Decoder(network, head, continuation, collate(prompts)).begin()


def test_what_stays_of_a_prompt_is_not_moved() -> None:
    """The encoder's keys and values are the very tensors, until there are other prompts or other numbers of texts."""
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 16, "vocab_size": 20, "max_positions": None, "token_types": 0}
    layers = [{"layer": "cross", "stream": "target", "to": "text", "num_heads": 2}]
    network = Network(NetworkSpec({"text": text, "target": text}, layers)).eval()
    ids = {"text": [3, 2], "target": [1, 1]}
    streams = {
        name: Stream({"input_ids": torch.arange(sum(n))}, torch.tensor([0, *n]).cumsum(0), n) for name, n in ids.items()
    }
    decoder = Decoder(network, TokenHead(network, "target"), Continuation("target", None), Batch(streams))

    def kept() -> int:
        return decoder._cache.kept["0.1"]["text"].data_ptr()

    decoder.begin()
    decoder.step([1, 2, 3, 4], [0, 0, 1, 1])
    first = kept()
    decoder.step([5, 6, 7, 8], [1, 0, 3, 3])
    decoder.step([5, 6, 7, 8], [0, 1, 2, 3])
    assert kept() == first
    assert decoder._cache.streams["text"].lengths == [3, 3, 2, 2]
    decoder.step([5, 6], [0, 3])
    assert decoder._cache.streams["text"].lengths == [3, 2]


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e6])
def test_no_temperature_leaves_the_numbers(temperature: float) -> None:
    logits = torch.tensor([[3e4, -2.0, 3e4 - 1, float("-inf")], [-5.0, -4.0, -3.0, -2.0]])
    found = distribution(logits, Decoding(sample=True, temperature=temperature))
    torch.testing.assert_close(found.sum(-1), torch.ones(2, dtype=torch.float64))
    assert temperature > 1 or drawn(found, [0.999, 0.0]).tolist() == [0, 3]
