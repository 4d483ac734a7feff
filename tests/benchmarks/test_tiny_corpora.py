"""What the tiny systems read is made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.raw_vision import RawVision
from benchmarks.tiny_corpora import MAKERS, VIDEOS, overrides_of
from benchmarks.tiny_systems import systems
from tests.videos import video
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import as_tree

SYSTEMS = systems("vision_language")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of videos that knows what made it."""
    folder = tmp_path_factory.mktemp("corpora")
    about = {"backbone": "timm:some:1.5s", "codes": "k-means:some"}
    with ShardWriter(folder / VIDEOS / "part-000000.tar", kind="video-text") as writer:
        writer.add("a", {"captions": ["a video"], "video": video()})
    assert writer.info is not None
    finish_corpus(folder / VIDEOS, kind="video-text", shards=[writer.info], provenance={"command": "test"}, about=about)
    return folder


@pytest.fixture
def made(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    for name in ("videos", "spoken"):
        monkeypatch.setattr(RawVision, name, lambda raw, part: Path(f"{part}.jsonl"))
    commands = [*MAKERS["vision_language"](Path("data"), corpora)]
    return {name for name, *_ in commands} | {
        f"{name}-held-out" for name, *reported in commands if "--split" in reported
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_file_of_a_vision_language_system_is_made(system: str, corpora: Path, made: set[str]) -> None:
    named = {*re.findall(rf"{corpora}/([\w./-]+)", text_of(f"{system}-tiny", system, corpora))}
    assert named
    assert named <= made | {"pooled", *(file.name for file in corpora.glob("*.txt"))}
    of_tasks = {name for name in named if "." not in name and name != "pooled"}
    assert {f"{name}-held-out" for name in of_tasks} <= made


def text_of(name: str, system: str, corpora: Path) -> str:
    """A recipe's values as text."""
    return str(as_tree(load_recipe(name, overrides_of(system, corpora))))


def test_features_of_videos_are_those_of_their_corpus(corpora: Path) -> None:
    recipe = text_of("videobert-tiny", "videobert", corpora)
    assert "timm:some:1.5s" in recipe
    assert "k-means:some" in recipe
