"""The image part `vision.clip_tokens`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import ImageProcessorCase
from tests.contracts.material import make_samples
from vision.sequences.image_processors.clip_tokens import ClipTokensProcessor
from workbench.core.errors import BadValueError, WorkbenchError

OPTIONS = {"clustering": "tree", "codes": 6, "backbone": "made-up"}
CASES = {
    "": ImageProcessorCase(OPTIONS, {"seed": "every clip is read"}, needs="clips"),
    "every": ImageProcessorCase({**OPTIONS, "max_clips": 3, "every": 4}, needs="clips"),
}


def test_tokens_stand_behind_one_that_begins() -> None:
    samples = make_samples(1)
    fields = ClipTokensProcessor(**OPTIONS)(samples[0], None)
    assert fields["input_ids"].tolist() == [7, *samples[0]["clips"]["codes"].tolist()]
    assert fields["special"].nonzero()[0].tolist() == [0]
    assert fields["position_ids"].tolist() == list(range(len(fields["input_ids"])))


def test_other_tokens_are_refused() -> None:
    samples = make_samples(1)
    with pytest.raises(WorkbenchError, match="visual tokens are of 'tree', but this model needs those of 'other'"):
        ClipTokensProcessor("other", 6, "made-up")(samples[0], None)
    samples[0]["clips"]["codes"][1] = 6
    with pytest.raises(BadValueError, match="visual token 6; codes = 6 allows 0 to 5"):
        ClipTokensProcessor(**OPTIONS)(samples[0], None)
    del samples[0]["clips"]["codes"]
    with pytest.raises(WorkbenchError, match="prepare clip-tokens"):
        ClipTokensProcessor(**OPTIONS)(samples[0], None)
