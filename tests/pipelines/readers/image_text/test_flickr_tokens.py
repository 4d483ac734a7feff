"""The image-text format `flickr-tokens`."""

from __future__ import annotations

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images, lines

CASE = ReaderCase(
    excused={"streams": "what belongs to an image is gathered from the whole file"},
    text=lines(lambda i: f"{i}.png#0\tA dog ."),
    file="flickr.token.txt",
    alongside=images,
)
