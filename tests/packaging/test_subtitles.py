"""A raw format and a panel of the report next to a recipe, with nothing but the installed wheel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Run

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples/subtitles"
SCENE = """{n}
00:{minute:02}:01,000 --> 00:{minute:02}:03,500
<i>Where does the river go?</i>

{m}
00:{minute:02}:04,000 --> 00:{minute:02}:06,000
Past the town number {n},
and then to the sea.
"""


def write_subtitles(folder: Path, videos: int = 2, scenes: int = 20) -> None:
    folder.mkdir()
    for video in range(videos):
        cues = [SCENE.format(n=2 * i + 1, m=2 * i + 2, minute=i) for i in range(scenes)]
        (folder / f"video{video}.srt").write_text("\n".join(cues))


def test_a_format_and_a_panel_of_a_users_own(run: Run, tmp_path: Path) -> None:
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    write_subtitles(tmp_path / "videos")
    commands = [
        line.removeprefix("#     ").split()
        for line in (EXAMPLE / "subtitles.yaml").read_text().splitlines()
        if line.startswith("#     workbench ")
    ]
    assert [words[1] for words in commands] == ["prepare", "prepare", "pretrain", "report"]
    *preparing, pretrain, report = ([*words[1:]] for words in commands)
    for words in preparing:
        run("-m", "workbench", *words, *(["--workers", "1"] if words[1] == "text" else []))
    manifests = [json.loads((tmp_path / f"corpora/scenes{part}/corpus.json").read_text()) for part in ("", "-held-out")]
    assert sum(shard["records"] for manifest in manifests for shard in manifest["shards"]) == 40
    run("-m", "workbench", *pretrain)
    for name in ("subtitles.py", "perplexity.py", "subtitles.yaml"):  # the run has what its report needs
        (tmp_path / name).unlink()
    refused = run("-m", "workbench", *report[:-1], code=2).stderr
    assert "perplexity.py" in refused
    assert "--trust" in refused
    run("-m", "workbench", *report)
    page = (tmp_path / "runs/subtitles/report.html").read_text()
    assert "Perplexity" in page
    assert "perplexity over step: training, held out" in page


def test_what_does_not_fit_the_format_is_reported_with_its_place(run: Run, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "subtitles.py", tmp_path)
    write_subtitles(tmp_path / "videos", videos=1, scenes=3)
    with (tmp_path / "videos/video0.srt").open("a") as video:
        video.write("\n7\n00:02:07 -> soon\nNobody.\n")
    command = "prepare text videos --format subtitles:Subtitles --trust --workers 1 --output scenes"
    prepare = ("-m", "workbench", *command.split())
    reported = run(*prepare, code=2).stderr
    assert "video0.srt:28: a cue needs a number, and a time line" in " ".join(reported.split())
    kept = run(*prepare, "--on-error", "skip").stderr
    assert json.loads((tmp_path / "scenes/corpus.json").read_text())["shards"][0]["records"] == 2, kept
