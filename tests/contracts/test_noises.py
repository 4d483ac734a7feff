"""Contracts of the noises, on documents: what they may touch, and what follows the rows that they move."""

from __future__ import annotations

import numpy as np

from tests.contracts.case_finder import make, over
from tests.contracts.material import draws, plain, small_samples, text_samples, tokenizer
from workbench.components.building import build
from workbench.components.calls import call
from workbench.core.keyed import generator
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.sequences.sequence_checks import noised_rows


def documents(samples: list[Sample]) -> list[Sequence]:
    made: list[Sequence] = build("builder", "document", "", tokenizer=tokenizer(), max_length=512)(samples, draws())
    return made


@over("noise")
def test_noises_depend_on_the_generator_alone(name: str) -> None:
    noise, found = make("noise", name), []
    for seed in (0, 0, 1):
        sequences = documents(text_samples(6))
        for i, sequence in enumerate(sequences):
            noise(sequence, "text", generator(seed, i))
        found.append(plain(sequences))
    assert found[0] == found[1] != found[2]
    assert found[0] != plain(documents(text_samples(6)))


@over("noise")
def test_special_and_taken_rows_stay_and_labels_follow(name: str) -> None:
    noise, rng = make("noise", name), np.random.default_rng(0)
    for i, sequence in enumerate(documents(text_samples(40))):
        text = sequence.streams["text"]
        text["taken"] = ~text["special"] & (rng.random(len(text["taken"])) < 0.3)
        labelled = np.flatnonzero(text["taken"])
        assert sequence.spans
        assert sequence.mask_spans
        labels, ends = text["input_ids"][labelled].copy(), text["input_ids"][[0, -1]].tolist()
        sequence.targets["it"] = {"rows": Rows("text", labelled), "labels": labels}
        call(noise, "", noised_rows(tokenizer().vocab_size), sequence, "text", generator(i))
        after = sequence.streams["text"]
        assert len({len(values) for values in after.values()}) == 1
        assert after["input_ids"][sequence.targets["it"]["rows"].index].tolist() == labels.tolist()
        assert after["special"].nonzero()[0].tolist() == [0, len(after["special"]) - 1]
        assert after["input_ids"][[0, -1]].tolist() == ends
        made = after["char_start"] < 0  # rows of no character: special ones and new ones
        assert after["taken"][made & ~after["special"]].all()


@over("noise")
def test_noises_on_empty_and_small_texts(name: str) -> None:
    noise = make("noise", name)
    left = noised_rows(tokenizer().vocab_size)
    for seed in range(20):
        for before, sequence in zip(documents(small_samples()), documents(small_samples()), strict=True):
            call(noise, "", left, sequence, "text", generator(seed))
            if before.length("text") == 2:
                assert plain(sequence) == plain(before)
