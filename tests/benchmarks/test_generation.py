"""Both sides of the benchmark of generation write the same texts, otherwise it has no speeds to compare."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import generation


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", ["gpt2", "bart", "t5"])
def test_both_write_the_same_texts(name: str, beams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generation.SIZES, "small", (32, 2, 2, 60))
    options = argparse.Namespace(size="small", batch=3, new=5, rounds=1, device="cpu", threads=1, beams=beams)
    speeds = generation.measured(name, options)
    assert speeds.keys() == {"ours", "Hugging Face"}
    assert all(speed > 0 for speed in speeds.values())


def test_other_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generation.SIZES, "small", (32, 2, 2, 60))
    monkeypatch.setattr(generation, "theirs", lambda model, beams: lambda prompts, new: [[1] * new] * len(prompts))
    options = argparse.Namespace(size="small", batch=2, new=3, rounds=1, device="cpu", threads=1, beams=1)
    with pytest.raises(SystemExit, match="gpt2: the texts differ"):
        generation.measured("gpt2", options)
