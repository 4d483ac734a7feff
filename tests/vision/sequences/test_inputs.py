"""From a sample to the rows of the image stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from torchvision.transforms import v2

from vision.images import transforms
from vision.images.boxes import grid_boxes
from vision.images.decoding import EncodedImage
from vision.images.transforms import SquareCrop, random_region, speaks_of_sides
from vision.models.embeddings.regions import box_numbers
from vision.sequences.image_processors.patches import PatchesProcessor, cut
from vision.sequences.image_processors.pixels import PixelsProcessor
from vision.sequences.image_processors.regions import RegionsProcessor
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

Encode = Callable[..., bytes]


def flat(encode: Encode, colours: np.ndarray, cell: int) -> bytes:
    """An image of one-coloured cells: colours [rows, columns, 3]."""
    return encode(colours.repeat(cell, 0).repeat(cell, 1))


def test_patches_are_the_cells_row_by_row(encode: Encode) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    sample: Sample = {"key": "a", "image": flat(encode, colours, 8)}
    fields = PatchesProcessor(32, 8)(sample, None)
    assert (fields["patches"].shape, fields["patches"].dtype) == ((16, 192), np.uint8)
    assert np.array_equal(fields["patches"].reshape(16, 3, 64), colours.reshape(16, 3, 1).repeat(64, 2))
    assert fields["boxes"][5].tolist() == [0.25, 0.25, 0.5, 0.5]


def test_a_patch_is_laid_out_as_a_convolution_reads_it() -> None:
    pixels, kernel = torch.randn(3, 24, 24), torch.randn(5, 3, 8, 8)
    convolved = F.conv2d(pixels[None], kernel, stride=8)[0].flatten(1).T
    torch.testing.assert_close(cut(pixels, 8) @ kernel.flatten(1).T, convolved, atol=1e-4, rtol=0)


def test_the_class_row_is_first_and_special(samples: list[Sample]) -> None:
    plain, with_row = (PatchesProcessor(32, 16, class_row=c)(samples[0], None) for c in (False, True))
    assert with_row["boxes"][0].tolist() == [0, 0, 1, 1]
    assert with_row["special"].tolist() == [True, False, False, False, False]
    assert np.array_equal(with_row["patches"][1:], plain["patches"])


def test_pixels_hold_the_whole_image(encode: Encode) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (2, 2, 3), dtype=np.uint8)
    fields = PixelsProcessor(32, 4)({"key": "a", "image": flat(encode, colours, 16)}, None)
    assert fields["pixels"].dtype == np.uint8
    assert np.array_equal(fields["pixels"][0], colours.repeat(16, 0).repeat(16, 1).transpose(2, 0, 1))
    assert np.array_equal(fields["boxes"], grid_boxes(4))
    batch = collate([Sequence({"image": fields}, (0,)), Sequence({"image": fields}, (1,))])
    assert batch.streams["image"].fields["pixels"].shape == (2, 3, 32, 32)
    assert batch.streams["image"].lengths == [16, 16]


def test_augmentation_depends_on_the_generator_alone(samples: list[Sample]) -> None:
    part = PixelsProcessor(32, 4, crop_scale=0.3, flip=0.5)
    torch.manual_seed(0)
    first = part(samples[0], generator(1))["pixels"]
    before = torch.random.get_rng_state()
    assert np.array_equal(part(samples[0], generator(1))["pixels"], first)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not np.array_equal(part(samples[0], generator(2))["pixels"], first)
    assert np.array_equal(part(samples[0], None)["pixels"], PixelsProcessor(32, 4)(samples[0], None)["pixels"])


def test_mirroring_spares_left_and_right(samples: list[Sample]) -> None:
    part, plain = PixelsProcessor(32, 4, flip=1.0), PixelsProcessor(32, 4)
    assert np.array_equal(part(samples[0], generator(0))["pixels"], plain(samples[0], None)["pixels"][..., ::-1])
    spoken = {**samples[0], "captions": ["a dog", "A dog on the Left ."]}
    assert speaks_of_sides(spoken)
    assert np.array_equal(part(spoken, generator(0))["pixels"], plain(samples[0], None)["pixels"])
    assert speaks_of_sides({"questions": [{"question": "who is rightmost?"}]})
    assert not speaks_of_sides({"captions": ["a bright cleft"]})


def test_squash_keeps_all_and_crop_keeps_shape(encode: Encode) -> None:
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, :32], wide[:, 64:] = 255, 255
    from vision.images.decoding import decode

    image = decode(encode(wide), "here")
    assert SquareCrop(32, resize="squash")(image, None).float().mean() == pytest.approx(170, abs=4)
    assert SquareCrop(32, resize="crop")(image, None).float().mean() < 20


@pytest.mark.parametrize("size", [(2000, 2), (2, 2000)])
def test_the_centre_of_a_thin_image_costs_no_more_than_its_square(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 200 bytes may hold 20,000 x 2 pixels, which would become 2,240,000 x 224."""
    square = SquareCrop(32, resize="crop")
    resized: list[int] = []
    resize = transforms.resize

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        found = resize(*args, **options)
        resized.append(found.numel())
        return found

    monkeypatch.setattr(transforms, "resize", counted)
    strip = np.zeros((size[1], size[0], 3), np.uint8)
    strip[size[1] // 2 - 1 : size[1] // 2 + 1, size[0] // 2 - 1 : size[0] // 2 + 1] = 255
    seen = square(Image.fromarray(strip), None)
    assert torch.equal(seen, seen.flip(-1).flip(-2)), "the middle of the image"
    assert seen[:, 15:17, 15:17].float().mean() > 240
    assert max(resized) <= 3 * 32 * 32 * 4


def test_the_centre_is_what_torchvision_cuts_out(encode: Encode) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (75, 100, 3), dtype=np.uint8)
    steps = [v2.PILToTensor(), v2.Resize(32, v2.InterpolationMode.BICUBIC), v2.CenterCrop(32)]
    expected = v2.Compose(steps)(Image.fromarray(noise))
    assert torch.equal(SquareCrop(32, resize="crop")(Image.fromarray(noise), None), expected)


@pytest.mark.parametrize(("width", "shift"), [(33, 0), (34, 0), (35, 1), (36, 0), (37, 0), (39, 1)])
def test_the_centre_is_a_pixel_from_that_of_transformers_at_some_sizes(width: int, shift: int) -> None:
    """transformers rounds half of what is left over down; docs/vision-language/systems.md names the sizes."""
    noise = np.random.default_rng(0).integers(0, 256, (32, width, 3), dtype=np.uint8)
    left = (width - 32) // 2 + shift
    seen = SquareCrop(32, resize="crop")(Image.fromarray(noise), None)
    assert np.array_equal(seen.permute(1, 2, 0).numpy(), noise[:, left : left + 32])


@pytest.mark.parametrize("size", [(640, 480), (300, 700), (33, 35), (1000, 20), (2, 900), (1, 1)])
def test_regions_are_drawn_as_torchvision_draws_them(size: tuple[int, int]) -> None:
    width, height = size
    rng, crop = generator(0), v2.RandomResizedCrop(224, scale=(0.3, 1.0))
    torch.manual_seed(0)
    ours, theirs = [], []
    for _ in range(400):
        region = random_region(width, height, 0.3, rng)
        assert region.left >= 0 <= region.top
        assert 1 <= region.width <= width - region.left
        assert 1 <= region.height <= height - region.top
        ours.append(region)
        drawn = crop.make_params([torch.empty(3, height, width)])
        theirs.append([drawn[name] for name in ("left", "top", "width", "height")])
    spread = np.std(theirs, 0) / 20  # of the means
    assert (np.abs(np.mean(ours, 0) - np.mean(theirs, 0)) <= 5 * np.hypot(spread, np.std(ours, 0) / 20) + 1e-9).all()
    assert (np.abs(np.std(ours, 0) - np.std(theirs, 0)) <= 0.2 * np.std(theirs, 0) + 1e-9).all()


def test_a_crop_of_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same(
    encode: Encode, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC)
    data = encode(image, "JPEG", quality=95)
    shrinks = []
    pixels = EncodedImage.pixels
    monkeypatch.setattr(EncodedImage, "pixels", lambda self, shrink: shrinks.append(shrink) or pixels(self, shrink))
    square = SquareCrop(32, crop_scale=0.05)
    for seed in range(20):
        seen, whole = square(EncodedImage(data, "here"), generator(seed)), square(image, generator(seed))
        assert (seen.float() - whole.float()).abs().mean() < 3
    assert min(shrinks) < 4 <= max(shrinks), "as the crop asks for it"


def test_wrong_options_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="not a multiple of patch = 12"):
        PatchesProcessor(32, 12)


def test_regions_are_the_most_confident(samples: list[Sample]) -> None:
    fields = RegionsProcessor("made-up", max_regions=3)(samples[0], None)
    stored = samples[0]["regions"]
    best = np.sort(np.argsort(-stored["confidence"])[:3])
    assert np.array_equal(fields["features"], stored["features"][best])
    assert np.array_equal(fields["boxes"], stored["boxes"][best])
    fields["features"][:] = 0
    assert stored["features"].any(), "the sample's own arrays must not be changed"


def test_regions_keep_the_type_that_they_are_stored_with(samples: list[Sample]) -> None:
    (sample, *_) = samples
    stored = {**sample["regions"], "features": sample["regions"]["features"].astype(np.float16)}
    fields = RegionsProcessor(sample["meta"]["backbone"])({**sample, "regions": stored}, None)
    assert fields["features"].dtype == np.float16
    fields["features"][:] = 0
    assert stored["features"].any()  # hooks change their own copy


def test_features_of_another_backbone_are_refused(samples: list[Sample]) -> None:
    with pytest.raises(
        WorkbenchError, match=r"'tiny', key '0': .* 'made-up', but this model needs those of 'vg-detector'"
    ):
        RegionsProcessor("vg-detector")(samples[0], None)
    with pytest.raises(WorkbenchError, match="backbone None"):
        RegionsProcessor("vg-detector")({**samples[0], "meta": {}}, None)
    with pytest.raises(WorkbenchError, match="prepare regions"):
        RegionsProcessor("made-up")({"key": "a"}, None)


def test_boxes_in_pixels_are_refused(samples: list[Sample]) -> None:
    samples[0]["regions"]["boxes"][2] = [10, 10, 200, 100]
    with pytest.raises(WorkbenchError, match=r"box 2 is \[10.0.*divide pixels"):
        RegionsProcessor("made-up")(samples[0], None)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(4, [0.1, 0.2, 0.5, 0.8]), (5, [0.1, 0.2, 0.5, 0.8, 0.24]), (7, [0.1, 0.2, 0.5, 0.8, 0.4, 0.6, 0.24])],
)
def test_box_numbers(size: int, wanted: list[float]) -> None:
    torch.testing.assert_close(box_numbers(torch.tensor([[0.1, 0.2, 0.5, 0.8]]), size), torch.tensor([wanted]))
