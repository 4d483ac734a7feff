"""Contracts of the image processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contracts.case_finder import case_of, make, over
from tests.contracts.material import make_samples, photograph, plain, travelled
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence


@over("image_processor", "seed")
def test_images_are_augmented_by_the_generator(name: str) -> None:
    part, sample = make("image_processor", name), make_samples(1)[0]
    assert plain(part(sample, generator(1))) != plain(part(sample, generator(2)))


@over("image_processor")
def test_images_depend_on_sample_and_generator_alone(name: str) -> None:
    part = make("image_processor", name)
    for sample in make_samples(2):
        before, state = plain(sample), torch.random.get_rng_state()
        fixed, drawn = plain(part(sample, None)), plain(part(sample, generator(1)))
        for fields in (part(sample, None), part(sample, generator(1))):
            for values in fields.values():  # they are the caller's own
                values[...] = 0
        there = travelled(part)
        assert plain(there(sample, None)) == plain(part(sample, None)) == fixed
        assert plain(there(sample, generator(1))) == plain(part(sample, generator(1))) == drawn
        assert plain(sample) == before
        assert torch.equal(torch.random.get_rng_state(), state)
        assert (fixed == drawn) or "seed" not in case_of("image_processor", name).excused


@over("image_processor")
def test_image_rows_are_finite_and_have_boxes(name: str) -> None:
    part = make("image_processor", name)
    tiny = {**make_samples(1)[0], "image": photograph(3, 1, 1), "regions": make_samples(1, regions=1)[0]["regions"]}
    made = [part(sample, rng) for sample in [*make_samples(3), tiny] for rng in (None, generator(5))]
    for fields in made:
        boxes = fields["boxes"]
        assert boxes.dtype == np.float32
        assert boxes.shape == (len(boxes), 4)
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, :2] <= boxes[:, 2:]).all()
        assert all(np.isfinite(values).all() for values in fields.values())
        assert {len(values) for field, values in fields.items() if field != "pixels"} == {len(boxes)}
    batch = collate([Sequence({"image": fields}, (i,)) for i, fields in enumerate(made)])
    assert batch.streams["image"].lengths == [len(fields["boxes"]) for fields in made]


@over("image_processor")
def test_a_sample_without_its_image_is_named(name: str) -> None:
    sample = make_samples(1)[0]
    needs = case_of("image_processor", name).needs
    del sample[needs]
    with pytest.raises(WorkbenchError, match=f"'k0' of corpus 'c': it has no .{needs}.*`workbench prepare"):
        make("image_processor", name)(sample, None)
