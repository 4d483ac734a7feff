"""Blank filling: the paper's own example, who sees whom by the paper's words, spans by their statistics, prompts."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws, generator
from workbench.models.attention.visibility import visible
from workbench.models.network import Network
from workbench.objectives._blanks import BlankFillings
from workbench.objectives.blank_filling import BlankFilling, placed
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, Span, text_fields

EXCUSED = "it moves rows, and the network of the contracts does not read their places in blanks"
DRAWS = Draws(0, "task", "it", number=(0,))
MASK, START, END = 90, 91, 92


def plain(length: int, special: tuple[int, ...] = (0, -1)) -> Sequence:
    marks = np.zeros(length, np.bool_)
    marks[list(special)] = True
    return Sequence({"text": text_fields(np.arange(length), special=marks)}, (0,))


def documents(tokenizer: Any, samples: list[dict[str, Any]], **options: Any) -> list[Sequence]:
    spec = {"builder": "document", **options}
    made: list[Sequence] = build("builder", spec, "", tokenizer=tokenizer, max_length=512)(samples, DRAWS)
    return made


def corrupted(tokenizer: Any, sequences: list[Sequence], **options: Any) -> list[Sequence]:
    part = BlankFilling(tokenizer, **options)
    part.name = "it"
    part.corrupt(sequences, DRAWS)
    return sequences


def blanks(sequence: Sequence) -> list[np.ndarray]:
    """The rows of part B of each blank, its start token first."""
    places = sequence.streams["text"]["block_ids"]
    starts = np.flatnonzero(places == 1)
    return np.split(np.arange(len(places)), starts)[1:]


def test_the_example_of_the_paper() -> None:
    """Figure 2: x1 .. x6 with x3 and x5 x6 cut out, written in the order x5 x6, x3 (positions count from 0 here)."""
    sequence = Sequence({"text": text_fields(np.arange(1, 7))}, (0,))
    rows, labels = BlankFillings("text", MASK, START, END)([np.array([4, 5]), np.array([2])], sequence)
    text = sequence.streams["text"]
    assert text["input_ids"].tolist() == [1, 2, MASK, 4, MASK, START, 5, 6, START, 3]
    assert text["position_ids"].tolist() == [0, 1, 2, 3, 4, 4, 4, 4, 2, 2]
    assert text["block_ids"].tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 1, 2]
    assert rows.tolist() == [5, 6, 7, 8, 9]
    assert labels.tolist() == [5, 6, END, 3, END]
    assert text["taken"].tolist() == [False, False, True, False, True, *[True] * 5]


@pytest.mark.parametrize("level", ["span", "sentence", "document"])
def test_who_sees_whom_and_what_is_written_where(level: str, tokenizer: Any, make_samples: Any) -> None:
    samples = make_samples(12)
    before = documents(tokenizer, samples)
    for old, new in zip(before, corrupted(tokenizer, documents(tokenizer, samples), level=level), strict=True):
        text, targets = new.streams["text"], new.targets["it"]
        ids, places = text["input_ids"], text["block_ids"]
        part_a, spans = np.flatnonzero(places == 0), blanks(new)
        masks = part_a[ids[part_a] == tokenizer.id("mask")]
        assert len(masks) == len(spans) > 0
        assert text["position_ids"][part_a].tolist() == list(range(len(part_a)))
        length = len(ids)
        expected = np.zeros((length, length), np.bool_)
        expected[:, part_a] = True  # all see part A
        for i in range(len(part_a), length):  # part B sees its antecedents, and itself
            expected[i, len(part_a) : i + 1] = True
        rank = {"rank": torch.from_numpy(text["rank"])}
        seen = visible(rank, rank)
        assert seen is not None
        assert np.array_equal(seen.numpy(), expected)
        whole: list[int] = []
        by_place = {int(text["position_ids"][span[0]]): span for span in spans}
        assert sorted(by_place) == masks.tolist()
        for row in part_a.tolist():
            whole += ids[by_place[row][1:]].tolist() if row in by_place else [int(ids[row])]
        assert whole == old.streams["text"]["input_ids"].tolist()
        labels = np.concatenate([np.append(ids[span[1:]], tokenizer.id("eos")) for span in spans])
        assert targets["labels"].tolist() == labels.tolist()
        assert np.asarray(targets["rows"]).tolist() == list(range(len(part_a), length))
        assert all((text["position_ids"][span] == text["position_ids"][span[0]]).all() for span in spans)
        assert [places[span].tolist() for span in spans] == [list(range(1, len(span) + 1)) for span in spans]


def test_lengths_and_rate_of_spans(tokenizer: Any) -> None:
    """Poisson with mean 3 without 0; 15 % at least, and no more than one span above."""
    part, lengths, cut, total = BlankFilling(tokenizer), Counter[int](), 0, 0
    for number in range(120):
        found = part._lengths(400, generator(number))
        assert 60 <= sum(found) < 60 + found[-1]
        lengths.update(found[:-1])  # the last one is likelier to be long: it is the one that reaches the rate
        cut, total = cut + sum(found), total + 400
    count = sum(lengths.values())
    # the number of spans depends on their lengths, so bounds are wider than those of independent draws
    for length in range(1, 9):
        share = math.exp(-3) * 3**length / math.factorial(length) / (1 - math.exp(-3))
        assert abs(lengths[length] - share * count) < 5 * math.sqrt(share * (1 - share) * count) + 0.01 * count, length
    assert 0.15 <= cut / total < 0.16


def test_places_are_uniform_and_spans_never_touch() -> None:
    seen: Counter[tuple[tuple[int, int], ...]] = Counter(
        tuple(placed([2, 1], 6, generator(number))) for number in range(4000)
    )
    expected = {((a, a + 2), (b, b + 1)) for a in range(6) for b in range(a + 3, 6)}
    assert set(seen) == expected
    for count in seen.values():
        assert abs(count - 4000 / len(expected)) < 4 * math.sqrt(4000 / len(expected))


def test_spans_are_written_in_random_order(tokenizer: Any) -> None:
    orders: Counter[bool] = Counter()
    for number in range(600):
        sequence = plain(9)
        sequence.draw = (number,)
        corrupted(tokenizer, [sequence], rate=0.4, mean_span=1.0)
        first = [int(sequence.streams["text"]["position_ids"][span[0]]) for span in blanks(sequence)]
        orders.update([first == sorted(first)] if len(first) == 2 else [])
    assert orders.total() > 200
    assert abs(orders[True] - orders.total() / 2) < 4 * math.sqrt(orders.total() / 4)


def test_a_document_has_one_blank_of_half_to_all_of_it(tokenizer: Any) -> None:
    shares = []
    for number in range(300):
        sequence = plain(102)
        sequence.draw = (number,)
        corrupted(tokenizer, [sequence], level="document")
        [span] = blanks(sequence)
        shares.append((len(span) - 1) / 100)
    assert min(shares) >= 0.5
    assert max(shares) <= 1
    assert abs(np.mean(shares) - 0.75) < 4 * math.sqrt(0.25 / 12 / 300)
    assert np.mean(np.array(shares) > 0.9) > 0.1


def test_blanks_of_the_level_sentence_are_sentences(tokenizer: Any) -> None:
    words = "They like the river. Boats look for songs. Winter came near the water. Nobody answered. "
    [sequence] = corrupted(
        tokenizer, documents(tokenizer, [{"key": "k", "draw": (0,), "text": words * 3}]), level="sentence", rate=0.5
    )
    text = sequence.streams["text"]
    cut = [(words * 3)[text["char_start"][span[1]] : text["char_end"][span[-1]]] for span in blanks(sequence)]
    assert len(cut) > 2
    assert set(cut) <= {f"{sentence.strip()}." for sentence in words.split(".") if sentence.strip()}
    sizes = [len(span) - 1 for span in blanks(sequence)]
    free = int((~text["special"] & (text["char_start"] >= 0)).sum())
    assert sum(sizes) >= 0.5 * free > sum(sizes) - sizes[-1] - max(sizes)


def test_what_points_into_the_text_follows(tokenizer: Any) -> None:
    sequence = plain(8)
    sequence.spans = [Span(4, 6, "inside"), Span(2, 5, "cut in two")]
    sequence.streams["entity"] = {"entity_ids": np.array([1, 2]), "token": Rows("text", np.array([4, 6]))}
    BlankFillings("text", MASK, START, END)([np.array([4, 5])], sequence)
    assert sequence.streams["text"]["input_ids"].tolist() == [0, 1, 2, 3, MASK, 6, 7, START, 4, 5]
    assert [(s.start, s.end, s.entity) for s in sequence.spans] == [(8, 10, "inside")]
    assert np.asarray(sequence.streams["entity"]["token"]).tolist() == [8, 5]


def test_rows_that_are_not_free_stay_where_they_are(tokenizer: Any) -> None:
    for level in ("span", "sentence", "document"):
        sequence = plain(40, special=(0, 20, -1))
        sequence.streams["text"]["taken"][[5, 6]] = True
        corrupted(tokenizer, [sequence], level=level, rate=0.9)
        text = sequence.streams["text"]
        assert np.isin([0, 5, 6, 20, 39], text["input_ids"][text["block_ids"] == 0]).all()
    for empty in (plain(2), plain(1, special=(0,))):
        corrupted(tokenizer, [empty])
        assert empty.targets["it"]["labels"].tolist() == []
        assert set(empty.streams["text"]["block_ids"]) == {0}


def make_network(tokenizer: Any, embedding: str = "blank_token") -> Network:
    torch.manual_seed(0)
    text = {"embedding": embedding, "hidden_size": 16, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "repeat": 2}
    return Network(NetworkSpec({"text": text}, [layer], init_range=0.2), vocab_size=tokenizer.vocab_size).eval()


def test_sequences_together_have_the_losses_they_have_alone(tokenizer: Any, make_samples: Any) -> None:
    sequences = corrupted(tokenizer, documents(tokenizer, make_samples(5)))
    network = make_network(tokenizer)
    head = BlankFilling(tokenizer).head(network)

    def loss(chosen: list[Sequence]) -> torch.Tensor:
        batch = collate(chosen)
        found: torch.Tensor = head(HeadInputs.of(network, batch, batch.targets["it"])).loss
        return found

    together = loss(sequences)
    together.backward()
    torch.testing.assert_close(together, sum(loss([sequence]) for sequence in sequences), atol=1e-4, rtol=1e-5)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_what_cannot_be_is_refused(tokenizer: Any, make_samples: Any) -> None:
    samples = make_samples(3, words=20)
    with pytest.raises(WorkbenchError, match="packed from several documents"):
        corrupted(tokenizer, documents(tokenizer, samples, builder="packed"))
    with pytest.raises(WorkbenchError, match=r"not read in both directions.*remove `visibility` from the builder"):
        corrupted(tokenizer, documents(tokenizer, samples, visibility="causal"))
    with pytest.raises(WorkbenchError, match="has blanks already"):
        corrupted(tokenizer, corrupted(tokenizer, documents(tokenizer, samples)))
    with pytest.raises(WorkbenchError, match="embedding: blank_token"):
        BlankFilling(tokenizer).head(make_network(tokenizer, "token"))


@pytest.mark.parametrize(
    ("text", "place"), [("the old [MASK] past", 3), ("the old river", 4), ("", 1), ("[MASK]", 1), ("[MASK] the old", 1)]
)
def test_a_prompt_has_its_blank_where_it_is_spelled_or_at_its_end(text: str, place: int, tokenizer: Any) -> None:
    part = BlankFilling(tokenizer)
    builder = build("builder", "document", "", tokenizer=tokenizer, max_length=64).evaluating()
    continuation = part.continuation(builder)
    [sequence] = builder([continuation.arrange({"key": "k", "draw": (0,), "text": text})], DRAWS)
    continuation.prompt(sequence)
    fields = sequence.streams["text"]
    ids = fields["input_ids"].tolist()
    known = tokenizer.encode(text.replace("[MASK]", "")).ids.tolist()
    assert ids.count(tokenizer.id("mask")) == 1
    place = len(tokenizer.encode(text.partition("[MASK]")[0]).ids) + 1 if "[MASK]" in text else len(known) + 1
    assert ids[place] == tokenizer.id("mask")
    assert [i for i in ids if i != tokenizer.id("mask")] == [
        tokenizer.id("cls"), *known, tokenizer.id("sep"), tokenizer.id("bos")
    ]  # fmt: skip
    last = {name: torch.from_numpy(fields[name][-1:]) for name in ("position_ids", "block_ids", "rank", "input_ids")}
    assert [int(last[name]) for name in ("position_ids", "block_ids", "rank")] == [place, 1, 1]
    row = continuation.next_rows(last, torch.tensor([7]))
    assert [int(row[name]) for name in ("position_ids", "block_ids", "rank", "input_ids")] == [place, 2, 2, 7]


def test_a_prompt_with_several_blanks_is_refused(tokenizer: Any) -> None:
    builder = build("builder", "document", "", tokenizer=tokenizer, max_length=64)
    continuation = BlankFilling(tokenizer).continuation(builder)
    [sequence] = builder([continuation.arrange({"key": "k", "draw": (0,), "text": "[MASK] and [MASK]"})], DRAWS)
    with pytest.raises(WorkbenchError, match=r"'k' has 2 blanks; one is filled at a time.*\[MASK\] once"):
        continuation.prompt(sequence)


def test_what_a_sample_has_masked_is_the_blank(tokenizer: Any) -> None:
    builder = build("builder", "document", "", tokenizer=tokenizer, max_length=64)
    continuation = BlankFilling(tokenizer).continuation(builder)
    sample = {"key": "k", "draw": (0,), "text": "the old river", "mask_spans": [[4, 7, "", 1.0]]}
    [sequence] = builder([continuation.arrange(sample)], DRAWS)
    continuation.prompt(sequence)
    ids = sequence.streams["text"]["input_ids"].tolist()
    assert ids[1 : ids.index(tokenizer.id("mask"))] == tokenizer.encode("the").ids.tolist()
    assert not set(tokenizer.encode("old").ids.tolist()) & set(ids)
