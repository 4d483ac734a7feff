"""TensorBoard: the files of a run are read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.contracts.cases import Curves, TrackerCase


def _world(folder: Path, _: pytest.MonkeyPatch) -> Callable[[], list[tuple[dict[str, Any], Curves]]]:
    def read() -> list[tuple[dict[str, Any], Curves]]:
        found = []
        for board in sorted(folder.rglob("tensorboard")):
            events = EventAccumulator(str(board)).Reload()
            text = events.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()
            scalars = {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}
            assert all(len({step for step, _ in points}) == len(points) for points in scalars.values())
            found.append((json.loads(text), scalars))
        return found

    return read


CASE = TrackerCase(world=_world)
