"""The image part `vision.regions`."""

from __future__ import annotations

from tests.contracts.cases import ImageCase

STORED = {"seed": "stored features are not augmented"}
CASES = {
    "": ImageCase({"backbone": "made-up"}, STORED, needs="regions"),
    "best": ImageCase({"backbone": "made-up", "max_regions": 3}, STORED, needs="regions"),
}
