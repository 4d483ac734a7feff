"""`make results`: its benchmarks are there, and what the data lack is named."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from benchmarks import first_results


def test_its_benchmarks_are_there_with_their_options() -> None:
    for result in first_results.RESULTS.values():
        found = importlib.util.find_spec(f"benchmarks.{result.benchmark}")
        assert found is not None
        assert found.origin is not None
        source = Path(found.origin).read_text("utf-8")
        for option in ("--data", "--output", *(word for word in result.options if word.startswith("--"))):
            assert f'"{option}"' in source, (result.benchmark, option)


def test_what_the_data_lack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["first_results", "--data", str(tmp_path), "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        first_results.main()
    assert ended.value.code == 2
    said = capsys.readouterr().out
    for name, result in first_results.RESULTS.items():
        assert f"{name}: left out, as {tmp_path} lacks {', '.join(result.needs)}" in said
