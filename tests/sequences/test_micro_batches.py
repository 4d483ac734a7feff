"""What is made for a whole micro-batch at once equals what is made for one sequence at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.material import plain, text_samples, tokenizer
from workbench.components.building import build
from workbench.core.keyed import Draws, digest, generator
from workbench.sequences.sequence import Sequence, Span
from workbench.sequences.text_layout import Frame, Visibility


@pytest.mark.parametrize("visibility", ["bidirectional", "causal", "anticausal", "prefix"])
@pytest.mark.parametrize("roles", [("cls", "sep"), (None, "sep"), ("cls", None), (None, None)])
def test_texts_are_laid_out_together_as_each_alone(visibility: Visibility, roles: tuple[str | None, ...]) -> None:
    texts = [tokenizer().encode(str(sample["text"])) for sample in text_samples(7)]
    frame = Frame(tokenizer(), *roles, visibility)
    layouts = [([], None, None), (texts[:1], None, None), (texts[1:3], (1, 0), None), (texts[3:5], None, "causal")]
    layouts += [([texts[5].part(0, 0), texts[6].part(2, 9)], None, None), (texts[:1], (3,), None)]
    together, alone = frame.lay_all(layouts), [frame.lay(*layout) for layout in layouts]
    assert plain([stream for stream, _ in together]) == plain([stream for stream, _ in alone])
    assert [rows for _, rows in together] == [rows for _, rows in alone]


def test_texts_are_encoded_together_as_each_alone() -> None:
    texts = [str(sample["text"]) for sample in text_samples(5)] + ["", " ", "a  b ", " [MASK] c"]
    together = tokenizer().encode_batch(texts)
    for text, found in zip(texts, together, strict=True):
        assert plain(list(found.columns)) == plain(list(tokenizer().encode(text).columns))


def test_the_key_of_a_generator_is_the_digest() -> None:
    for key in ((0,), (3, "text", "mlm", "sample", 7)):
        expected = np.random.Generator(np.random.Philox(key=digest(*key))).random(5)
        np.testing.assert_array_equal(generator(*key).random(5), expected)


MASKINGS = (
    "token",
    "whole_word",
    "span",
    "entity",
    {"masking": "field", "probability": 0.5},
    {"masking": "ngram", "lengths": [6, 3, 2]},
    {"masking": "ngram", "lengths": [6, 3, 2], "unit": "word"},
)


def documents(count: int) -> list[Sequence]:
    builder = build("builder", "document", "", tokenizer=tokenizer(), max_length=48)
    sequences: list[Sequence] = builder(text_samples(count), Draws(0, number=(0,)))
    for sequence in sequences:
        length = sequence.length("text")
        sequence.spans = [Span(1, min(4, length - 1), "a"), Span(min(3, length - 2), length - 1, "b")]
        sequence.mask_spans = sequence.spans[:1]
    return sequences


@pytest.mark.parametrize("masking", MASKINGS, ids=str)
@pytest.mark.parametrize("per", ["token", "word", "group"])
def test_a_sequence_is_masked_alike_whatever_is_in_its_micro_batch(masking: object, per: str) -> None:
    spec = {"objective": "mlm", "masking": masking, "rate": 0.3, "replace": {"per": per}, "max_predictions": 9}
    check_alike(spec)


def test_spans_are_replaced_alike_whatever_is_in_the_micro_batch() -> None:
    check_alike({"objective": "span_corruption", "rate": 0.3, "sentinels": 4})


def check_alike(spec: dict[str, object]) -> None:
    """Sequences are corrupted alike alone, in another order, and with others."""
    objective = build("objective", spec, "", tokenizer=tokenizer())

    def corrupted(chosen: list[int]) -> dict[int, object]:
        sequences = [documents(9)[number] for number in chosen]
        objective.corrupt(sequences, Draws(3, "text", number=(0,)))
        return {i: plain([s.streams, s.targets]) for i, s in zip(chosen, sequences, strict=True)}

    whole = corrupted([*range(9)])
    for chosen in ([4], [8, 0, 5], [7, 6, 5, 4, 3, 2, 1, 0]):
        assert corrupted(chosen) == {number: whole[number] for number in chosen}


def test_the_numbers_of_a_sample_depend_on_its_draw_alone() -> None:
    draws, names = Draws(1, "text", "mlm", number=(0,)), [(0, 1, 2), (0, 1, 2, 0), (0, 1), (), (7, 0, 2**40)]
    counts = np.array([3, 0, 5, 2, 4])
    together = draws.numbers(names)
    found = [np.split(together.random(own), np.cumsum(own)[:-1]) for own in (counts, counts[::-1])]
    for i, name in enumerate(names):
        alone = draws.numbers([name])
        for parts, own in zip(found, (counts, counts[::-1]), strict=True):
            np.testing.assert_array_equal(parts[i], alone.random(own[i : i + 1]))
    repeating = Draws(1, "text", "mlm", number=(0,), duplicates=2)
    assert repeating.numbers([(0, 5, 9)]).random() == repeating.numbers([(0, 3, 9)]).random()
    assert draws.numbers([(0, 5, 9)]).random() != draws.numbers([(0, 3, 9)]).random()


def test_numbers_are_uniform_and_those_of_samples_unrelated() -> None:
    """Of neighbouring draws, as records of a corpus have them."""
    numbers = Draws(0, number=(0,)).numbers([(0, 0, i, 0) for i in range(2000)])
    drawn = numbers.random(np.full(2000, 50)).reshape(2000, 50)
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 50  # chi-square of 19 degrees: one in 10,000
    for one, other in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:]), (drawn[:-1, 1:], drawn[1:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(one.size)
    whole = Draws(1, number=(0,)).numbers([(i,) for i in range(4000)]).integers(7)
    assert ((np.bincount(whole, minlength=7) - 4000 / 7) ** 2 / (4000 / 7)).sum() < 28
