"""What a control removes goes by the kinds of components and of what they open; these kinds exist."""

from __future__ import annotations

import pytest

from workbench.components.build_context import ALL_KINDS, BUILD_ARGUMENTS, BuildRecord, record
from workbench.components.controls import ABLATED, OF_SAMPLES, check_control
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError


class Component:
    controls: tuple[str, ...] = ()


def test_kinds_that_others_name_exist() -> None:
    assert {*OF_SAMPLES, *ALL_KINDS} <= {*KINDS}
    assert {kind for argument in BUILD_ARGUMENTS.values() for kind in argument.kinds} <= {*KINDS}


def test_an_image_processor_that_stays_is_no_control() -> None:
    """A builder that makes images and does not support what removes them."""
    control = "question-only"
    image = record(Component(), BuildRecord("tasks.a.sequence.image_processor: 'mine:Pixels'", "image_processor"))
    builder = record(Component(), BuildRecord("tasks.a.sequence: builder 'mine:Asked'", "builder", inside=(image,)))
    assert "image_processor" in ABLATED[control]
    with pytest.raises(WorkbenchError, match=f"{control} is not valid in it: .*'mine:Pixels' reads image_processor"):
        check_control(control, [builder], "it")
    image.controls = (control,)
    check_control(control, [builder], "it")
