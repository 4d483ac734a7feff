"""The builder `image_caption`."""

from __future__ import annotations

from tests.contracts.cases import BuilderCase
from tests.contracts.material import draws, tokenizer
from workbench.sequences.builders.image_caption import ImageCaptionBuilder

IMAGE = {"image_processor": "vision.patches", "size": 8, "patch": 4, "flip": 0.5, "crop_scale": 0.5}
SMALL = {"small": "captions make its sequences"}
CASES = {
    "": BuilderCase({"image_processor": IMAGE}, excused=SMALL),
    "target": BuilderCase({"image_processor": IMAGE, "target": "target"}, excused=SMALL),
}


def test_a_caption_that_is_to_be_written_is_not_read() -> None:
    builder, plain = (
        ImageCaptionBuilder(tokenizer(), 16, None, **reported) for reported in ({"target": "written"}, {})
    )
    sample = {"key": "a", "draw": (0,), "captions": ["river a", "b"], "caption_spans": [[[0, 5, "Q1", 1.0]], []]}
    made, read = (each([sample], draws()) for each in (builder, plain))
    for sequence, other in zip(made, read, strict=True):
        assert sequence.streams["text"]["special"].tolist() == [True, True]
        ids = [each["input_ids"].tolist() for each in (sequence.streams["written"], other.streams["text"])]
        assert ids[0] == ids[1]
        assert sequence.streams["written"]["rank"].tolist() == list(range(len(ids[0])))
    assert (len(made[0].spans), len(read[0].spans)) == (0, 1)
