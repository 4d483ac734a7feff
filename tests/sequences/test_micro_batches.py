"""What is made for a whole micro-batch at once equals what is made for one sequence at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.material import plain, text_samples, tokenizer
from workbench.core.keyed import digest, generator
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
